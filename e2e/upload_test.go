package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// uploadHead begins a multipart request of n bytes in all.
func uploadHead(id string, n int) string {
	return fmt.Sprintf("POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n", id, n)
}

// multipart is an upload whose file part has n bytes.
func multipart(n int) string {
	return "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" +
		strings.Repeat("s", n) + "\r\n--b--\r\n"
}

// TestUploadIsStreamed: an audio upload of 48 MB passes without being held
// whole.
func TestUploadIsStreamed(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	body := multipart(48 << 20)
	before := r.rss()
	id := r.id("upload")
	resp := r.do(t, uploadHead(id, len(body))+body)
	if resp.status != 200 {
		t.Fatalf("answered %d %.200q", resp.status, resp.body)
	}
	if x := waitFor(t, id, a); string(x.body) != body {
		t.Errorf("%d bytes at the engine, want %d equal ones", len(x.body), len(body))
	}
	if grown := r.rss() - before; grown > 16<<20 && !raceEnabled {
		t.Errorf("memory grew by %d bytes for an upload of %d", grown, len(body))
	}
}

// TestUploadClientLeaves: a client that leaves in the middle of an upload ends
// the engine's side; the next request is served.
func TestUploadClientLeaves(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	body := multipart(4 << 20)
	for _, way := range []string{"fin", "rst"} {
		id := r.id("upload")
		c := r.dial(t)
		c.send(uploadHead(id, len(body)) + body[:1<<20])
		time.Sleep(50 * time.Millisecond)
		leaveWays[way](c)
		r.ended(t, id, "client-gone-waiting", "rejected")
		for _, x := range a.byID(id) {
			if !x.cut {
				t.Errorf("%s: the engine took a part of an upload for a whole request", way)
			}
		}
	}
}

// TestUploadAnsweredEarly: an engine that refuses before it has the body: its
// answer reaches the client, and nothing of the rest is taken for a request.
func TestUploadAnsweredEarly(t *testing.T) {
	t.Parallel()
	refuse := newRawServer(t, jsonResponse(413, `{"error":{"message":"too big","type":"x","param":null,"code":413}}`))
	r := startWith(t, setup{urls: []string{"a=http://" + refuse}, notReady: true})
	r.awaitReady()
	body := multipart(8 << 20)
	id := r.id("upload")
	c := r.dial(t)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.send(uploadHead(id, len(body)) + body)
	}()
	resp := c.response(patience)
	c.close()
	<-sent
	if resp.status != 413 && resp.status != 502 {
		t.Errorf("answered %d %.200q", resp.status, resp.body)
	}
	r.line(t, id)
}

// TestExpectContinue: 100 comes before the body, and not when the request is
// refused by its head alone.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--limits.body=64KiB")
	head := func(path string, n int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, r.id("expect"), n)
	}
	c := r.dial(t)
	c.send(head(chatPath, len(vectorBody)))
	if _, err := c.until(patience, func(*response) bool { return strings.HasPrefix(string(c.raw), "HTTP/1.1 100 ") }); err != nil {
		t.Errorf("no 100: %v, %.100q", err, c.raw)
	}
	c.send(vectorBody)
	if resp := c.response(patience); resp.status != 200 || len(resp.interim) != 1 {
		t.Errorf("answered %d after %v", resp.status, resp.interim)
	}
	for raw, want := range map[string]int{head(chatPath, 64<<10+1): 413, head("/nothing", 10): 404} {
		c := r.dial(t)
		c.send(raw)
		if resp := c.response(patience); resp.status != want || len(resp.interim) != 0 {
			t.Errorf("%.40q: answered %d after %v, want %d at once", raw, resp.status, resp.interim, want)
		}
	}
}

// TestHeadAndBodiless: answers without a body keep the connection in step.
func TestHeadAndBodiless(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, e := range []*engine{a, b} {
		e.get("/v1/empty", "HTTP/1.1 204 No Content\r\n\r\n")
		e.get("/v1/same", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 500\r\n\r\n")
		e.get("/v1/long", jsonResponse(200, strings.Repeat("x", 100_000)))
	}
	c := r.dial(t)
	for _, step := range []struct {
		method, path string
		status, size int
	}{{"GET", "/v1/empty", 204, 0}, {"GET", "/v1/same", 304, 0}, {"GET", "/v1/long", 200, 100_000}, {"HEAD", "/v1/models", 200, 0}, {"GET", "/v1/empty", 204, 0}, {"POST", chatPath, 200, -1}} {
		c.method = step.method
		body := ""
		if step.method == "POST" {
			body = chatBody(true)
		}
		c.send(request(step.method, step.path, r.id("step"), body))
		resp := c.response(patience)
		if resp.status != step.status && step.method != "HEAD" || step.size >= 0 && len(resp.body) != step.size || !resp.complete {
			t.Errorf("%s %s: %d with %d bytes, whole %v", step.method, step.path, resp.status, len(resp.body), resp.complete)
		}
	}
}
