package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// engineRequest is what the fake engine reads of a request.
type engineRequest struct {
	method, path string
	closing      bool
	ask          Ask
	received     int64 // monotonic nanoseconds at which the last byte of the body was read
}

var errEngineHead = errors.New("cannot read the request: malformed head")

// parseEngineRequest reads one request from the front of b and says how many bytes it used; 0 means that b does not hold
// a whole request yet. Only what the proxies under test send is understood: Content-Length framing, no chunks.
func parseEngineRequest(b []byte) (req engineRequest, used int, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return req, 0, nil
	}
	line, rest, _ := bytes.Cut(b[:end], []byte("\r\n"))
	parts := bytes.Fields(line)
	if len(parts) != 3 {
		return req, 0, errEngineHead
	}
	length := 0
	closing := bytes.Equal(parts[2], []byte("HTTP/1.0"))
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(field, []byte(":"))
		if !ok {
			return req, 0, errEngineHead
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return req, 0, errEngineHead
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return req, 0, fmt.Errorf("cannot read the request: transfer-encoding %q is not understood here", value)
		case bytes.EqualFold(name, []byte("connection")):
			closing = bytes.EqualFold(value, []byte("close"))
		}
	}
	total := end + 4 + length
	if len(b) < total {
		return req, 0, nil
	}
	req = engineRequest{method: string(parts[0]), path: string(parts[1]), closing: closing}
	if req.method == "POST" {
		req.ask = parseAsk(b[end+4 : total])
	}
	return req, total, nil
}

// get answers the paths that a router asks before it trusts an engine.
func (s *session) get(path string) error {
	switch path {
	case "/health":
		return s.plain(200, "text/plain", nil)
	case "/version":
		return s.plain(200, "application/json", []byte(`{"version":"0.32.0"}`))
	case "/v1/models":
		return s.plain(200, "application/json", []byte(`{"object":"list","data":[{"id":"`+Model+`","object":"model","created":1764460800,`+
			`"owned_by":"vllm","root":"`+Model+`","parent":null,"max_model_len":131072}]}`))
	case "/metrics":
		return s.plain(200, "text/plain; version=0.0.4; charset=utf-8", s.metrics())
	}
	return s.plain(404, "application/json", []byte(`{"detail":"Not Found"}`))
}

// metrics lists the counters under vLLM's names, and those which the orchestrator reads under ours.
func (s *session) metrics() []byte {
	c := s.engine.Counts()
	return fmt.Appendf(nil, `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="%[1]s"} %[2]d
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="%[1]s"} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="%[1]s"} 0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="%[1]s"} %[3]d
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1764460800
bench_requests_total %[4]d
bench_tokens_total %[3]d
bench_in_flight %[2]d
bench_aborted_total %[5]d
`, Model, c.InFlight, c.Tokens, c.Requests, c.Aborted)
}

// plain writes a whole answer in one write, as uvicorn does for small bodies.
func (s *session) plain(status int, contentType string, body []byte) error {
	reason := "OK"
	if status == 404 {
		reason = "Not Found"
	}
	s.out = append(s.out[:0], "HTTP/1.1 "...)
	s.out = strconv.AppendInt(s.out, int64(status), 10)
	s.out = append(s.out, ' ')
	s.out = append(s.out, reason...)
	s.out = append(s.out, "\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: "...)
	s.out = append(s.out, contentType...)
	s.out = append(s.out, "\r\ncontent-length: "...)
	s.out = strconv.AppendInt(s.out, int64(len(body)), 10)
	s.out = append(s.out, "\r\n\r\n"...)
	s.out = append(s.out, body...)
	_, err := s.conn.Write(s.out)
	return err
}
