package sim

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldens are requests whose whole answer, byte for byte and write for write,
// stands in testdata/golden. The clock is virtual, so dates are fixed; the
// request id is given, so ids are too, apart from those of items and tools.
var goldens = []struct{ name, method, path, body string }{
	{"chat-stream", "POST", "/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"Hello"}]}`},
	{"chat-stream-usage", "POST", "/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":2,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello, there are enough words in here for one block"}]}`},
	{"chat-stream-every-usage", "POST", "/v1/chat/completions", `{"stream":true,"max_tokens":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"messages":[{"role":"user","content":"Hello"}]}`},
	{"chat-stream-ids", "POST", "/v1/chat/completions", `{"stream":true,"max_tokens":2,"return_token_ids":true,"messages":[{"role":"user","content":"Hello"}]}`},
	{"chat-stream-two", "POST", "/v1/chat/completions", `{"stream":true,"max_tokens":2,"n":2,"messages":[{"role":"user","content":"Hello"}]}`},
	{"chat-stream-required", "POST", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"Hello"}],"tool_choice":"required","tools":[` + weather + `]}`},
	{"chat-stream-named", "POST", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"Hello"}],"tool_choice":{"type":"function","function":{"name":"weather"}},"tools":[` + weather + `]}`},
	{"chat", "POST", "/v1/chat/completions", `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"Hello"}]}`},
	{"chat-tool", "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"use the TOOL"}],"tools":[` + weather + `]}`},
	{"completions-stream", "POST", "/v1/completions", `{"stream":true,"max_tokens":2,"prompt":"Hello","stream_options":{"include_usage":true}}`},
	{"completions-two-prompts", "POST", "/v1/completions", `{"max_tokens":2,"prompt":[[1,2,3],[4,5]],"n":2,"echo":true}`},
	{"responses-stream", "POST", "/v1/responses", `{"stream":true,"max_output_tokens":2,"input":"Hello"}`},
	{"responses-stream-tool", "POST", "/v1/responses", `{"stream":true,"input":"Hello","tool_choice":"required","tools":[{"type":"function","name":"weather","parameters":{"type":"object","properties":{"days":{"type":"integer"}}}}]}`},
	{"responses", "POST", "/v1/responses", `{"max_output_tokens":2,"input":[{"role":"user","content":[{"type":"input_text","text":"Hello"}]}],"instructions":"Be brief."}`},
	{"messages-stream", "POST", "/v1/messages", `{"model":"m","stream":true,"max_tokens":2,"messages":[{"role":"user","content":"Hello"}]}`},
	{"messages-stream-tool", "POST", "/v1/messages", `{"model":"m","stream":true,"max_tokens":99,"messages":[{"role":"user","content":"Hello"}],"tool_choice":{"type":"any"},"tools":[{"name":"weather","description":"d","input_schema":{"type":"object","properties":{"days":{"type":"integer"}}}}]}`},
	{"messages", "POST", "/v1/messages", `{"model":"m","max_tokens":2,"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}]}`},
	{"count-tokens", "POST", "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`},
	{"tokenize", "POST", "/tokenize", `{"model":"m","prompt":"Hello","return_token_strs":true}`},
	{"detokenize", "POST", "/detokenize", `{"tokens":[1,2,3]}`},
	{"models", "GET", "/v1/models", ""},
	{"health", "GET", "/health", ""},
	{"load", "GET", "/load", ""},
}

const weather = `{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["C","F"]},"days":{"type":"integer"}}}}}`

var randomIDs = regexp.MustCompile(`(chatcmpl-tool-|call_|msg_|fc_|modelperm-)[0-9a-f]{16}`)

// show makes writes readable: each one with its line ends visible.
func show(out []string, closed bool) string {
	var b strings.Builder
	for i, w := range out {
		w = randomIDs.ReplaceAllString(w, "${1}RANDOM")
		w = strings.NewReplacer("\r\n", "␍␊\n", "\n", "␊\n").Replace(w)
		fmt.Fprintf(&b, "== write %d\n%s\n", i+1, w)
	}
	fmt.Fprintf(&b, "== closed: %v\n", closed)
	return b.String()
}

func TestGoldenAnswers(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
				raw := post(g.path, g.body, "X-Request-Id: golden\r\n", "Connection: close\r\n")
				if g.method == "GET" {
					raw = "GET " + g.path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
				}
				s.created = 946684800
				out, closed := writes(t, dial(), raw)
				compareGolden(t, g.name, show(out, closed))
			})
		})
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test -run %s -update writes it anew. Got:\n%s", file, t.Name(), got)
	}
}

// TestEventsAreOneWriteOfOneChunk checks the framing of every stream of
// TestGoldenAnswers: the head alone, then one whole chunk with one whole
// event in each write, then the last chunk.
func TestEventsAreOneWriteOfOneChunk(t *testing.T) {
	for _, g := range goldens {
		if !strings.Contains(g.body, `"stream":true`) {
			continue
		}
		virtual(t, slowOptions(), func(t *testing.T, _ *Server, dial func() net.Conn) {
			out, _ := writes(t, dial(), post(g.path, g.body))
			if len(out) < 4 || !strings.HasSuffix(out[0], "\r\ntransfer-encoding: chunked\r\n\r\n") || out[len(out)-1] != "0\r\n\r\n" {
				t.Fatalf("%s: %q", g.name, out)
			}
			for _, w := range out[1 : len(out)-1] {
				size, rest, _ := strings.Cut(w, "\r\n")
				var n int
				if _, err := fmt.Sscanf(size, "%x", &n); err != nil || len(rest) != n+2 || !strings.HasSuffix(rest, "\n\n\r\n") || strings.Count(rest, "\n\n") != 1 {
					t.Errorf("%s: write %q", g.name, w)
				}
			}
		})
	}
}
