package wire

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// contractCodes is the closed list, by status; 0 is for those that occur only
// in a stream.
var contractCodes = map[int][]string{
	400: {"invalid_request", "malformed_http"}, 401: {"invalid_api_key"}, 404: {"model_not_found", "path_not_found"}, 405: {"method_not_allowed"}, 408: {"request_timeout"},
	413: {"body_too_large"}, 415: {"unsupported_media_type", "unsupported_encoding"}, 426: {"websocket_unsupported"}, 429: {"queue_full"}, 431: {"header_too_large"},
	500: {"internal_error"}, 501: {"not_implemented"}, 502: {"engine_unreachable", "engine_bad_response"}, 503: {"no_engine", "overloaded", "draining"}, 504: {"engine_timeout"},
	0: {"engine_died", "engine_stalled"},
}

func TestCodesAreTheClosedList(t *testing.T) {
	t.Parallel()
	got := map[int][]string{}
	var inStream []string
	for c := range Codes {
		status := c.Status()
		if c.OnlyInStream() {
			status = 0
		}
		got[status] = append(got[status], c.String())
		if c.InStream() {
			inStream = append(inStream, c.String())
		}
		if m := c.Message(); !strings.HasSuffix(m, ".") || strings.Count(m, ". ") == 0 {
			t.Errorf("%s: %q should say what is wrong and then what to do", c, m)
		}
		if c.NoRetry() && c.RetryAfter() != 0 {
			t.Errorf("%s both forbids and times a retry", c)
		}
		if c.Status() == 429 && c.RetryAfter() == 0 || c.Status() == 503 && c.RetryAfter() == 0 {
			t.Errorf("%s does not say when to come back", c)
		}
		if c.Status() < 500 && c != CodeQueueFull && c != CodeRequestTimeout && !c.NoRetry() {
			t.Errorf("%s may not be retried, but does not say so", c)
		}
	}
	for status, want := range contractCodes {
		if !slices.Equal(got[status], want) {
			t.Errorf("status %d has %v, want %v", status, got[status], want)
		}
	}
	if len(got) != len(contractCodes) {
		t.Errorf("statuses: %v", got)
	}
	slices.Sort(inStream)
	if want := []string{"draining", "engine_bad_response", "engine_died", "engine_stalled", "engine_timeout", "internal_error"}; !slices.Equal(inStream, want) {
		t.Errorf("in a stream: %v, want %v", inStream, want)
	}
	if CodeNoEngine.RetryAfter() != 5 {
		t.Errorf("no_engine: Retry-After %d", CodeNoEngine.RetryAfter())
	}
	if CodeNone.String() != "none" || Code(200).Status() != 500 {
		t.Error("a code outside the list must read as an internal error")
	}
}

var documented = regexp.MustCompile("(?m)^### `([a-z_]+)` \\(([^)]*)\\)$")

func TestDocumentedErrorsAreTheCodes(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "ERRORS.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	heads := documented.FindAllStringSubmatchIndex(string(raw), -1)
	var order []string
	for i, h := range heads {
		end := len(raw)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		word := string(raw[h[2]:h[3]])
		order = append(order, word)
		text[word] = string(raw[h[4]:h[5]]) + "\n" + string(raw[h[1]:end])
	}
	var want []string
	for c := range Codes {
		want = append(want, c.String())
		checkDocumented(t, c, text[c.String()])
	}
	if !slices.Equal(order, want) {
		t.Errorf("docs/ERRORS.md has %v\nthe code has %v", order, want)
	}
}

func checkDocumented(t *testing.T, c Code, text string) {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n")
	status := strconv.Itoa(c.Status())
	if c.OnlyInStream() {
		status = "in a stream only"
	}
	if !strings.HasPrefix(head, status) || c.InStream() != strings.Contains(head, "in a stream") {
		t.Errorf("%s is headed (%s)", c, head)
	}
	if !strings.Contains(body, "**When:**") || !strings.Contains(body, "**What to do:**") {
		t.Errorf("%s: the section lacks its two parts", c)
	}
	never, after := strings.Contains(body, "`x-should-retry: false`"), strings.Contains(body, "`Retry-After: "+strconv.Itoa(c.RetryAfter())+"`")
	if never != c.NoRetry() || after != (c.RetryAfter() > 0) {
		t.Errorf("%s: the section does not state the headers of the code", c)
	}
}

func TestErrorFacts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e      Error
		status int
		after  int
		never  bool
		types  [3]string // OpenAI, Responses, Anthropic
	}{
		{Error{Code: CodeInvalidRequest}, 400, 0, true, [3]string{"invalid_request_error", "invalid_request_error", "invalid_request_error"}},
		{Error{Code: CodeInvalidAPIKey}, 401, 0, true, [3]string{"authentication_error", "authentication_error", "authentication_error"}},
		{Error{Code: CodeInvalidRequest, Status: 403}, 403, 0, true, [3]string{"permission_error", "permission_error", "permission_error"}},
		{Error{Code: CodeModelNotFound}, 404, 0, true, [3]string{"not_found_error", "not_found_error", "not_found_error"}},
		{Error{Code: CodeRequestTimeout}, 408, 0, false, [3]string{"invalid_request_error", "invalid_request_error", "invalid_request_error"}},
		{Error{Code: CodeBodyTooLarge}, 413, 0, true, [3]string{"invalid_request_error", "invalid_request_error", "invalid_request_error"}},
		{Error{Code: CodeQueueFull}, 429, 1, false, [3]string{"rate_limit_error", "rate_limit_error", "rate_limit_error"}},
		{Error{Code: CodeQueueFull, RetryAfter: 9}, 429, 9, false, [3]string{"rate_limit_error", "rate_limit_error", "rate_limit_error"}},
		{Error{Code: CodeInternalError}, 500, 0, false, [3]string{"server_error", "server_error", "api_error"}},
		{Error{Code: CodeEngineUnreachable, NoRetry: true}, 502, 0, true, [3]string{"server_error", "server_error", "api_error"}},
		{Error{Code: CodeNoEngine}, 503, 5, false, [3]string{"server_error", "server_error", "overloaded_error"}},
		{Error{Code: CodeEngineTimeout}, 504, 0, false, [3]string{"server_error", "server_error", "api_error"}},
		{Error{Code: CodeOverloaded, Status: 529}, 529, 1, false, [3]string{"server_error", "server_error", "overloaded_error"}},
		{Error{Code: CodeEngineDied}, 502, 0, false, [3]string{"server_error", "server_error", "api_error"}},
	} {
		after, never := c.e.Retry()
		if c.e.HTTPStatus() != c.status || after != c.after || never != c.never {
			t.Errorf("%v: status %d, Retry-After %d, never %v", &c.e, c.e.HTTPStatus(), after, never)
		}
		for d, want := range c.types {
			if got := c.e.Type(Dialect(d)); got != want {
				t.Errorf("%v in %s: type %s, want %s", &c.e, Dialect(d), got, want)
			}
		}
	}
	e := &Error{Code: CodeModelNotFound, Message: "No such model."}
	if e.Error() != "model_not_found: No such model." {
		t.Error(e.Error())
	}
}

func TestErrorBodies(t *testing.T) {
	t.Parallel()
	e := &Error{Code: CodeModelNotFound, Message: "The model `a\"b` is\nnot served.", Param: "model"}
	openAI := `{"error":{"message":"The model ` + "`" + `a\"b` + "`" + ` is\nnot served.","type":"not_found_error","param":"model","code":"model_not_found"}}`
	anthropic := `{"type":"error","error":{"type":"not_found_error","message":"The model ` + "`" + `a\"b` + "`" + ` is\nnot served.","code":"model_not_found"},"request_id":"req-1"}`
	for d, want := range map[Dialect]string{DialectOpenAI: openAI, DialectResponses: openAI, DialectAnthropic: anthropic} {
		if got := string(AppendErrorBody([]byte("x"), d, e, "req-1")); got != "x"+want {
			t.Errorf("%s: %s", d, got)
		}
	}
	bare := &Error{Code: CodeNoEngine}
	for d, want := range map[Dialect]string{
		DialectOpenAI:    `{"error":{"message":` + string(AppendQuoted(nil, CodeNoEngine.Message())) + `,"type":"server_error","param":null,"code":"no_engine"}}`,
		DialectAnthropic: `{"type":"error","error":{"type":"overloaded_error","message":` + string(AppendQuoted(nil, CodeNoEngine.Message())) + `,"code":"no_engine"},"request_id":null}`,
	} {
		if got := string(AppendErrorBody(nil, d, bare, "")); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
}

func TestErrorEvents(t *testing.T) {
	t.Parallel()
	e := &Error{Code: CodeEngineDied, Message: "Gone.\r\n\r\ndata: x"}
	for d, want := range map[Dialect]string{
		DialectOpenAI:    `data: {"error":{"message":"Gone.\r\n\r\ndata: x","type":"server_error","param":null,"code":"engine_died"}}` + "\n\n",
		DialectResponses: "event: error\n" + `data: {"type":"error","code":"engine_died","message":"Gone.\r\n\r\ndata: x","param":null,"sequence_number":41}` + "\n\n",
		DialectAnthropic: "event: error\n" + `data: {"type":"error","error":{"type":"api_error","message":"Gone.\r\n\r\ndata: x","code":"engine_died"}}` + "\n\n",
	} {
		if got := string(AppendErrorEvent([]byte("x"), d, e, 41)); got != "x"+want {
			t.Errorf("%s: %s", d, got)
		}
	}
}

// Whatever the texts hold, each code in each dialect gives valid JSON, and an
// event of one data line.
func TestEveryErrorIsWellFormed(t *testing.T) {
	t.Parallel()
	for c := range Codes {
		for _, message := range []string{"", "a\"b\\\n\r\u2028\xff\x00</script>"} {
			e := &Error{Code: c, Message: message, Param: message}
			for _, d := range []Dialect{DialectOpenAI, DialectResponses, DialectAnthropic} {
				body := AppendErrorBody(nil, d, e, message)
				if !json.Valid(body) {
					t.Errorf("%s %s: %s", c, d, body)
				}
				event := string(AppendErrorEvent(nil, d, e, 1<<40))
				lines := strings.Split(event, "\n")
				data, ok := strings.CutPrefix(lines[len(lines)-3], "data: ")
				if !ok || !json.Valid([]byte(data)) || lines[len(lines)-2] != "" || lines[len(lines)-1] != "" || strings.Contains(event, "\r") {
					t.Errorf("%s %s: %q", c, d, event)
				}
				if withName := d != DialectOpenAI; len(lines) != 3 && !withName || withName && (len(lines) != 4 || lines[0] != "event: error") {
					t.Errorf("%s %s: %q", c, d, event)
				}
			}
		}
	}
}
