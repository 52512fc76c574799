package sdk

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every endpoint that a person can try by hand, as the README and the log suggest it. {public} and {admin} are the two
// ports; {id} is the response that an earlier line stored. want are pieces of head or body.
var curlCalls = []struct {
	name string
	args string // split at spaces; data stands in body
	body string
	code int
	want []string
}{
	{"root", "{public}/", "", 200, []string{`"service":"ramjet"`}},
	{"root, head only", "--head {public}/", "", 200, nil},
	{"health", "{public}/health", "", 200, []string{`"status":"ok"`, `"a":{"state":"ready"`, `"b":{"state":"ready"`}},
	{"version", "{public}/version", "", 200, []string{`"version":`}},
	{"models", "{public}/v1/models", "", 200, []string{`"id":"sim"`, `"max_model_len"`}},
	{"model", "{public}/v1/models/sim", "", 200, []string{`"id":"sim"`}},
	{"no such model", "{public}/v1/models/none", "", 404, []string{`"code":"model_not_found"`}},
	{"chat", "{public}/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":3}`, 200, []string{`"object":"chat.completion"`, "X-Ramjet-Engine: ", "Server-Timing: "}},
	{"chat stream", "{public}/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true}`, 200, []string{"text/event-stream", "data: [DONE]"}},
	{"chat over HTTP/1.0", "--http1.0 {public}/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true}`, 200, []string{"data: [DONE]"}},
	{"completions", "{public}/v1/completions", `{"prompt":"once","max_tokens":3}`, 200, []string{`"object":"text_completion"`}},
	{"responses", "{public}/v1/responses", `{"input":"hi","max_output_tokens":3}`, 200, []string{`"object":"response"`}},
	{"stored response", "{public}/v1/responses/{id}", "", 200, []string{`"id":"{id}"`}},
	{"no such response", "{public}/v1/responses/resp_none", "", 404, nil},
	{"messages", "{public}/v1/messages", `{"model":"sim","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`, 200, []string{`"type":"message"`}},
	{"messages stream", "{public}/v1/messages", `{"model":"sim","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true}`, 200, []string{"event: message_stop"}},
	{"count tokens", "{public}/v1/messages/count_tokens", `{"model":"sim","messages":[{"role":"user","content":"hi"}]}`, 200, []string{`"input_tokens":`}},
	{"embeddings", "{public}/v1/embeddings", `{"input":["one","two"]}`, 200, []string{`"object":"list"`, `"embedding":`}},
	{"tokenize", "{public}/tokenize", `{"prompt":"hello"}`, 200, []string{`"tokens":[`}},
	{"detokenize", "{public}/detokenize", `{"tokens":[1,2,3]}`, 200, []string{`"prompt":`}},
	{"transcription", "-F file=@{wav} -F model=sim {public}/v1/audio/transcriptions", "", 200, []string{`"text":`}},
	{"translation", "-F file=@{wav} -F model=sim {public}/v1/audio/translations", "", 200, []string{`"text":`}},
	{"closed path", "-X POST {public}/sleep", "", 404, []string{`"code":"path_not_found"`}},
	{"simulator's control is no public path", "{public}/sim/state", "", 404, []string{`"code":"path_not_found"`}},
	{"wrong method", "{public}/v1/chat/completions", "", 405, []string{"Allow: POST"}},
	{"compressed body", "-H Content-Encoding:gzip {public}/v1/chat/completions", `{}`, 415, []string{`"code":"unsupported_encoding"`}},
	{"half a body", "{public}/v1/chat/completions", `{"messages":`, 400, []string{`"code":"invalid_request"`}},
	{"alive", "{admin}/livez", "", 200, nil},
	{"ready", "{admin}/readyz", "", 200, []string{`"ready":true`}},
	{"metrics", "{admin}/metrics", "", 200, []string{"# TYPE ramjet_requests_total counter", `ramjet_engine_state{engine="a",state="ready"} 1`}},
	{"topology", "{admin}/api/v1/topology", "", 200, []string{`"engines":[`}},
	{"configuration", "{admin}/api/v1/config", "", 200, []string{"client_write"}},
}

func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	s := start(t, "20")
	wav := filepath.Join(t.TempDir(), "a.wav")
	if err := os.WriteFile(wav, waveFile(16000), 0o600); err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, c := range curlCalls {
		t.Run(c.name, func(t *testing.T) {
			fill := strings.NewReplacer("{public}", s.public, "{admin}", s.admin, "{id}", id, "{wav}", wav)
			args := []string{"-sS", "-i", "--no-buffer", "--max-time", "20", "--noproxy", "*"}
			args = append(args, strings.Fields(fill.Replace(c.args))...)
			if c.body != "" {
				args = append(args, "-H", "Content-Type: application/json", "-d", c.body)
			}
			cmd := exec.Command("curl", args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("curl %q: %v: %s", args, err, stderr.String())
			}
			m := regexp.MustCompile(`^HTTP/1\.[01] (\d{3}) `).FindSubmatch(out)
			if m == nil || string(m[1]) != fmt.Sprint(c.code) {
				t.Fatalf("got %.300q, want status %d", out, c.code)
			}
			for _, want := range c.want {
				if want = fill.Replace(want); !bytes.Contains(out, []byte(want)) {
					t.Errorf("no %q in the answer:\n%.2000s", want, out)
				}
			}
			if m := regexp.MustCompile(`"id":"(resp_[^"]+)"`).FindSubmatch(out); m != nil && c.name == "responses" {
				id = string(m[1])
			}
		})
	}
}

// waveFile is a second of silence, 16 bit mono.
func waveFile(rate int) []byte {
	data := make([]byte, 2*rate)
	head := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00")
	put := func(at, value int) {
		head[at], head[at+1], head[at+2], head[at+3] = byte(value), byte(value>>8), byte(value>>16), byte(value>>24)
	}
	put(4, 36+len(data))
	put(24, rate)
	put(28, 2*rate)
	put(40, len(data))
	return append(head, data...)
}
