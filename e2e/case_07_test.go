package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC07ChunkedRequests: a chunked request body reaches the engine under
// one framing field with equal bytes, again and again on one connection.
func TestCaseC07ChunkedRequests(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--limits.body=1KiB")
	body := `{"model":"m","messages":[{"role":"user","content":"100 € please"}]}`
	euro := strings.Index(body, "€") + 1 // inside the three bytes of the character
	pieces := []string{rig.Chunk(body[:euro]), rig.Chunk(body[euro : euro+1]), fmt.Sprintf("%x;x=y\r\n%s\r\n", len(body)-euro-1, body[euro+1:]), rig.LastChunk}
	head := func(id string) string {
		return "POST " + rig.ChatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + id + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	}
	c := r.Dial(t)
	for i := range 6 {
		id := r.ID("c07")
		if i%2 == 0 {
			c.Send(append([]string{head(id)}, pieces...)...)
		} else {
			c.Send(head(id) + strings.Join(pieces, ""))
		}
		if resp := c.Response(rig.Patience); resp.Status != 200 || !resp.Complete {
			t.Fatalf("request %d: %d %.200q", i, resp.Status, resp.Body)
		}
		x := rig.WaitFor(t, id, a, b)
		if string(x.Body) != body {
			t.Errorf("request %d: the engine's body is %q", i, x.Body)
		}
		if n := len(x.Fields.All("Content-Length")) + len(x.Fields.All("Transfer-Encoding")); n != 1 {
			t.Errorf("request %d: %d framing fields at the engine", i, n)
		}
	}
	// The limit counts decoded bytes: 1 KiB in one-byte chunks is 6 KiB on the wire.
	pad := body + strings.Repeat(" ", 1024-len(body))
	id := r.ID("c07")
	if resp := r.Do(t, head(id)+rig.ChunkEach(pad, 1)+rig.LastChunk); resp.Status != 200 || string(rig.WaitFor(t, id, a, b).Body) != pad {
		t.Errorf("exactly the limit in small chunks: %d %.200q", resp.Status, resp.Body)
	}
	if resp := r.Do(t, head(r.ID("c07"))+rig.ChunkEach(pad+" ", 1)+rig.LastChunk); resp.Status != 413 {
		t.Errorf("one byte over the limit in small chunks: %d %.200q", resp.Status, resp.Body)
	}
	rig.NoAnomalies(t, a, b)
}

// TestCaseC07Kind: every endpoint with a body takes chunks, the streamed kind
// included; an unknown model inside chunks is still seen.
func TestCaseC07Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	multipart := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" +
		strings.Repeat("sound", 100_000) + "\r\n--b--\r\n"
	for path, tc := range map[string][2]string{
		"/v1/completions":          {"application/json", `{"model":"m","prompt":"x"}`},
		rig.ResponsesPath:          {"application/json", `{"model":"m","input":"x"}`},
		rig.MessagesPath:           {"application/json", rig.ChatBody(true)},
		"/v1/embeddings":           {"application/json", `{"model":"m","input":"x"}`},
		"/tokenize":                {"application/json", `{"model":"m","prompt":"x"}`},
		"/v1/audio/transcriptions": {"multipart/form-data; boundary=b", multipart},
	} {
		id := r.ID("c07")
		resp := r.Do(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nX-Request-Id: "+id+"\r\nContent-Type: "+tc[0]+"\r\nTransfer-Encoding: chunked\r\n\r\n"+rig.ChunkEach(tc[1], 4000)+rig.LastChunk)
		if resp.Status != 200 {
			t.Errorf("%s: answered %d %.200q", path, resp.Status, resp.Body)
			continue
		}
		if x := rig.WaitFor(t, id, a, b); string(x.Body) != tc[1] {
			t.Errorf("%s: %d bytes at the engine, want %d equal ones", path, len(x.Body), len(tc[1]))
		}
	}
	other := strings.Replace(rig.ChatBody(false), `"m"`, `"nobody"`, 1)
	if resp := r.Do(t, "POST "+rig.ChatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+rig.ChunkEach(other, 5)+rig.LastChunk); resp.Code() != "model_not_found" {
		t.Errorf("an unknown model in chunks: %d %.200q", resp.Status, resp.Body)
	}
	rig.NoAnomalies(t, a, b)
}
