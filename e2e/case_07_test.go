package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestCaseC07ChunkedRequests: a chunked request body reaches the engine under
// one framing field with equal bytes, again and again on one connection.
func TestCaseC07ChunkedRequests(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--limits.body=1KiB")
	body := `{"model":"m","messages":[{"role":"user","content":"100 € please"}]}`
	euro := strings.Index(body, "€") + 1 // inside the three bytes of the character
	pieces := []string{chunk(body[:euro]), chunk(body[euro : euro+1]), fmt.Sprintf("%x;x=y\r\n%s\r\n", len(body)-euro-1, body[euro+1:]), lastChunk}
	head := func(id string) string {
		return "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + id + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	}
	c := r.dial(t)
	for i := range 6 {
		id := r.id("c07")
		if i%2 == 0 {
			c.send(append([]string{head(id)}, pieces...)...)
		} else {
			c.send(head(id) + strings.Join(pieces, ""))
		}
		if resp := c.response(patience); resp.status != 200 || !resp.complete {
			t.Fatalf("request %d: %d %.200q", i, resp.status, resp.body)
		}
		x := waitFor(t, id, a, b)
		if string(x.body) != body {
			t.Errorf("request %d: the engine's body is %q", i, x.body)
		}
		if n := len(x.fields.all("Content-Length")) + len(x.fields.all("Transfer-Encoding")); n != 1 {
			t.Errorf("request %d: %d framing fields at the engine", i, n)
		}
	}
	// The limit counts decoded bytes: 1 KiB in one-byte chunks is 6 KiB on the wire.
	pad := body + strings.Repeat(" ", 1024-len(body))
	id := r.id("c07")
	if resp := r.do(t, head(id)+chunkEach(pad, 1)+lastChunk); resp.status != 200 || string(waitFor(t, id, a, b).body) != pad {
		t.Errorf("exactly the limit in small chunks: %d %.200q", resp.status, resp.body)
	}
	if resp := r.do(t, head(r.id("c07"))+chunkEach(pad+" ", 1)+lastChunk); resp.status != 413 {
		t.Errorf("one byte over the limit in small chunks: %d %.200q", resp.status, resp.body)
	}
	noAnomalies(t, a, b)
}

// TestCaseC07Kind: every endpoint with a body takes chunks, the streamed kind
// included; an unknown model inside chunks is still seen.
func TestCaseC07Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	multipart := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" +
		strings.Repeat("sound", 100_000) + "\r\n--b--\r\n"
	for path, tc := range map[string][2]string{
		"/v1/completions":          {"application/json", `{"model":"m","prompt":"x"}`},
		responsesPath:              {"application/json", `{"model":"m","input":"x"}`},
		messagesPath:               {"application/json", chatBody(true)},
		"/v1/embeddings":           {"application/json", `{"model":"m","input":"x"}`},
		"/tokenize":                {"application/json", `{"model":"m","prompt":"x"}`},
		"/v1/audio/transcriptions": {"multipart/form-data; boundary=b", multipart},
	} {
		id := r.id("c07")
		resp := r.do(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nX-Request-Id: "+id+"\r\nContent-Type: "+tc[0]+"\r\nTransfer-Encoding: chunked\r\n\r\n"+chunkEach(tc[1], 4000)+lastChunk)
		if resp.status != 200 {
			t.Errorf("%s: answered %d %.200q", path, resp.status, resp.body)
			continue
		}
		if x := waitFor(t, id, a, b); string(x.body) != tc[1] {
			t.Errorf("%s: %d bytes at the engine, want %d equal ones", path, len(x.body), len(tc[1]))
		}
	}
	other := strings.Replace(chatBody(false), `"m"`, `"nobody"`, 1)
	if resp := r.do(t, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+chunkEach(other, 5)+lastChunk); resp.code() != "model_not_found" {
		t.Errorf("an unknown model in chunks: %d %.200q", resp.status, resp.body)
	}
	noAnomalies(t, a, b)
}

// noAnomalies checks that the engines received nothing malformed.
func noAnomalies(t *testing.T, engines ...*engine) {
	t.Helper()
	for _, e := range engines {
		if _, odd := e.seen(); len(odd) > 0 {
			t.Errorf("engine %s received: %q", e.name, odd)
		}
	}
}
