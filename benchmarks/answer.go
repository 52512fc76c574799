package benchmarks

import (
	"bytes"
	"errors"
	"strconv"
)

// Model is the only model id that the fake engine serves.
const Model = "bench-model"

// chatPath is the only path that the fake engine answers with tokens.
const chatPath = "/v1/chat/completions"

// Ask is what one request wants from the fake engine. It travels inside the JSON body, because a proxy passes bodies
// byte for byte and may drop headers that it does not know.
type Ask struct {
	// Seed names the request: it is part of every event, so that bytes of another stream are noticed.
	Seed uint64
	// Tokens is the number of events, one per token.
	Tokens int
	// PaceMicros is the time between two events; 0 means as fast as the socket takes them.
	PaceMicros int
	// FirstMicros is the time between the request and its first event.
	FirstMicros int
	// Stream asks for server-sent events; otherwise the answer is one small JSON object.
	Stream bool
}

// appendBody appends the JSON body of the request to dst.
func (a Ask) appendBody(dst []byte) []byte {
	dst = append(dst, `{"model":"`+Model+`","messages":[{"role":"user","content":"Tell me about the number `...)
	dst = strconv.AppendUint(dst, a.Seed, 10)
	dst = append(dst, `, please."}],"stream":`...)
	dst = strconv.AppendBool(dst, a.Stream)
	if a.Stream {
		dst = append(dst, `,"stream_options":{"include_usage":true}`...)
	}
	dst = append(dst, `,"max_tokens":`...)
	dst = strconv.AppendInt(dst, int64(a.Tokens), 10)
	dst = append(dst, `,"seed":`...)
	dst = strconv.AppendUint(dst, a.Seed, 10)
	dst = append(dst, `,"pace_us":`...)
	dst = strconv.AppendInt(dst, int64(a.PaceMicros), 10)
	dst = append(dst, `,"first_us":`...)
	dst = strconv.AppendInt(dst, int64(a.FirstMicros), 10)
	return append(dst, '}')
}

// appendRequest appends the whole HTTP request for host to dst; body is scratch space and is returned for reuse.
func (a Ask) appendRequest(dst, body []byte, host string, closing bool) (request, scratch []byte) {
	body = a.appendBody(body[:0])
	dst = append(dst, "POST "+chatPath+" HTTP/1.1\r\nHost: "...)
	dst = append(dst, host...)
	dst = append(dst, "\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer none\r\n"...)
	if closing {
		dst = append(dst, "Connection: close\r\n"...)
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, body...), body
}

// parseAsk reads the fields of appendBody back. Both ends are ours, so a search for the exact key is enough.
func parseAsk(body []byte) Ask {
	return Ask{
		Seed:        uint64(numberAfter(body, `"seed":`, 0)),
		Tokens:      numberAfter(body, `"max_tokens":`, 16),
		PaceMicros:  numberAfter(body, `"pace_us":`, 0),
		FirstMicros: numberAfter(body, `"first_us":`, 0),
		Stream:      bytes.Contains(body, []byte(`"stream":true`)),
	}
}

func numberAfter(body []byte, key string, missing int) int {
	at := bytes.Index(body, []byte(key))
	if at < 0 {
		return missing
	}
	n, digits := 0, 0
	for _, c := range body[at+len(key):] {
		if c < '0' || c > '9' || digits == 18 {
			break
		}
		n, digits = n*10+int(c-'0'), digits+1
	}
	if digits == 0 {
		return missing
	}
	return n
}

// The shape of an event is vLLM 0.32's chat.completion.chunk of about 200 bytes: first the role, then content, the
// finish reason in the last one. The two stamps stand in system_fingerprint, which clients ignore.
const (
	eventOpen  = `data: {"id":"chatcmpl-`
	eventModel = `","object":"chat.completion.chunk","created":1764460800,"model":"` + Model + `","system_fingerprint":"`
	eventText  = `","choices":[{"index":0,"delta":{"content":" tok`
	eventRole  = `","choices":[{"index":0,"delta":{"role":"assistant","content":"`
	eventEnd   = `"},"finish_reason":null}]}` + "\n\n"
	eventLast  = `"},"finish_reason":"length"}]}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"

	hexLen  = 16
	stampAt = len(eventOpen) + hexLen + len(eventModel)
)

// appendEvent appends event i of the answer to a: sent and received are monotonic nanoseconds, the time of this event's
// write and the time at which the engine had read the request.
func (a Ask) appendEvent(dst []byte, i int, sent, received int64) []byte {
	dst = append(dst, eventOpen...)
	dst = appendHex(dst, a.Seed)
	dst = append(dst, eventModel...)
	dst = appendHex(dst, uint64(sent))
	dst = append(dst, '-')
	dst = appendHex(dst, uint64(received))
	if i == 0 {
		dst = append(dst, eventRole...)
	} else {
		dst = append(dst, eventText...)
		dst = appendPadded(dst, i)
	}
	if i == a.Tokens-1 {
		return append(dst, eventLast...)
	}
	return append(dst, eventEnd...)
}

// eventLen returns the length of event i of the answer to a.
func (a Ask) eventLen(i int) int {
	n := stampAt + hexLen + 1 + hexLen
	if i == 0 {
		n += len(eventRole)
	} else {
		n += len(eventText) + 7
	}
	if i == a.Tokens-1 {
		return n + len(eventLast)
	}
	return n + len(eventEnd)
}

// appendUsage appends the event that carries the token counts.
func (a Ask) appendUsage(dst []byte) []byte {
	dst = append(dst, eventOpen...)
	dst = appendHex(dst, a.Seed)
	dst = append(dst, `","object":"chat.completion.chunk","created":1764460800,"model":"`+Model+`","choices":[],"usage":`...)
	dst = a.appendCounts(dst)
	return append(dst, "}\n\n"...)
}

// appendShort appends the body of the answer without streaming.
func (a Ask) appendShort(dst []byte) []byte {
	dst = append(dst, `{"id":"chatcmpl-`...)
	dst = appendHex(dst, a.Seed)
	dst = append(dst, `","object":"chat.completion","created":1764460800,"model":"`+Model+`","choices":[{"index":0,"message":`+
		`{"role":"assistant","content":" two tokens"},"logprobs":null,"finish_reason":"length"}],"usage":`...)
	dst = a.appendCounts(dst)
	return append(dst, '}')
}

func (a Ask) appendCounts(dst []byte) []byte {
	const promptTokens = 12
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, promptTokens, 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(promptTokens+a.Tokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(a.Tokens), 10)
	return append(dst, '}')
}

var errStamp = errors.New("cannot read the stamps of an event")

// stamps reads both times out of an event.
func stamps(event []byte) (sent, received int64, err error) {
	if len(event) < stampAt+2*hexLen+1 {
		return 0, 0, errStamp
	}
	s, ok1 := parseHex(event[stampAt : stampAt+hexLen])
	r, ok2 := parseHex(event[stampAt+hexLen+1 : stampAt+2*hexLen+1])
	if !ok1 || !ok2 {
		return 0, 0, errStamp
	}
	return int64(s), int64(r), nil
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, v uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[v>>shift&15])
	}
	return dst
}

func parseHex(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// appendPadded appends i as seven digits, so that every event but the first has one length.
func appendPadded(dst []byte, i int) []byte {
	for div := 1_000_000; div > 0; div /= 10 {
		dst = append(dst, byte('0'+i/div%10))
	}
	return dst
}
