package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
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
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	body := multipart(48 << 20)
	before := r.RSS()
	id := r.ID("upload")
	resp := r.Do(t, uploadHead(id, len(body))+body)
	if resp.Status != 200 {
		t.Fatalf("answered %d %.200q", resp.Status, resp.Body)
	}
	if x := rig.WaitFor(t, id, a); string(x.Body) != body {
		t.Errorf("%d bytes at the engine, want %d equal ones", len(x.Body), len(body))
	}
	if grown := r.RSS() - before; grown > 16<<20 && !rig.RaceEnabled {
		t.Errorf("memory grew by %d bytes for an upload of %d", grown, len(body))
	}
}

// TestUploadClientLeaves: a client that leaves in the middle of an upload ends
// the engine's side; the next request is served.
func TestUploadClientLeaves(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	body := multipart(4 << 20)
	for _, way := range []string{"fin", "rst"} {
		id := r.ID("upload")
		c := r.Dial(t)
		c.Send(uploadHead(id, len(body)) + body[:1<<20])
		time.Sleep(50 * time.Millisecond)
		rig.LeaveWays[way](c)
		r.Ended(t, id, "client-gone-waiting", "rejected")
		for _, x := range a.ByID(id) {
			if !x.Cut {
				t.Errorf("%s: the engine took a part of an upload for a whole request", way)
			}
		}
	}
}

// TestUploadAnsweredEarly: an engine that refuses before it has the body: its
// answer reaches the client, and nothing of the rest is taken for a request.
func TestUploadAnsweredEarly(t *testing.T) {
	t.Parallel()
	refuse := rig.NewRawServer(t, rig.JSONResponse(413, `{"error":{"message":"too big","type":"x","param":null,"code":413}}`))
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=http://" + refuse}, NotReady: true})
	r.AwaitReady()
	body := multipart(8 << 20)
	id := r.ID("upload")
	c := r.Dial(t)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.Send(uploadHead(id, len(body)) + body)
	}()
	resp := c.Response(rig.Patience)
	c.Close()
	<-sent
	if resp.Status != 413 && resp.Status != 502 {
		t.Errorf("answered %d %.200q", resp.Status, resp.Body)
	}
	r.Line(t, id)
}

// TestExpectContinue: 100 comes before the body, and not when the request is
// refused by its head alone.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--limits.body=64KiB")
	head := func(path string, n int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, r.ID("expect"), n)
	}
	c := r.Dial(t)
	c.Send(head(rig.ChatPath, len(rig.VectorBody)))
	if _, err := c.Until(rig.Patience, func(*rig.Response) bool { return strings.HasPrefix(string(c.Raw), "HTTP/1.1 100 ") }); err != nil {
		t.Errorf("no 100: %v, %.100q", err, c.Raw)
	}
	c.Send(rig.VectorBody)
	if resp := c.Response(rig.Patience); resp.Status != 200 || len(resp.Interim) != 1 {
		t.Errorf("answered %d after %v", resp.Status, resp.Interim)
	}
	for raw, want := range map[string]int{head(rig.ChatPath, 64<<10+1): 413, head("/nothing", 10): 404} {
		c := r.Dial(t)
		c.Send(raw)
		if resp := c.Response(rig.Patience); resp.Status != want || len(resp.Interim) != 0 {
			t.Errorf("%.40q: answered %d after %v, want %d at once", raw, resp.Status, resp.Interim, want)
		}
	}
}

// TestHeadAndBodiless: answers without a body keep the connection in step.
func TestHeadAndBodiless(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, e := range []*rig.Engine{a, b} {
		e.Get("/v1/empty", "HTTP/1.1 204 No Content\r\n\r\n")
		e.Get("/v1/same", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 500\r\n\r\n")
		e.Get("/v1/long", rig.JSONResponse(200, strings.Repeat("x", 100_000)))
	}
	c := r.Dial(t)
	for _, step := range []struct {
		method, path string
		status, size int
	}{{"GET", "/v1/empty", 204, 0}, {"GET", "/v1/same", 304, 0}, {"GET", "/v1/long", 200, 100_000}, {"HEAD", "/v1/models", 200, 0}, {"GET", "/v1/empty", 204, 0}, {"POST", rig.ChatPath, 200, -1}} {
		c.Method = step.method
		body := ""
		if step.method == "POST" {
			body = rig.ChatBody(true)
		}
		c.Send(rig.Request(step.method, step.path, r.ID("step"), body))
		resp := c.Response(rig.Patience)
		if resp.Status != step.status && step.method != "HEAD" || step.size >= 0 && len(resp.Body) != step.size || !resp.Complete {
			t.Errorf("%s %s: %d with %d bytes, whole %v", step.method, step.path, resp.Status, len(resp.Body), resp.Complete)
		}
	}
}
