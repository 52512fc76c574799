package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ramjet/route"
	"ramjet/telemetry"
)

// listener is a server on a port of its own, as main runs it.
func (r *rig) listener(t *testing.T, change func(*http.Server)) (url string, srv *http.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv = r.HTTPServer()
	if change != nil {
		change(srv)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return "http://" + ln.Addr().String(), srv
}

// events reads a stream: name and data of each event.
type events struct {
	*bufio.Reader
	res *http.Response
}

func look(t *testing.T, url string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return &events{bufio.NewReader(res.Body), res}
}

func (e *events) next(t *testing.T) (name string, data map[string]any) {
	t.Helper()
	for {
		line, err := e.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			if err := json.Unmarshal([]byte(line[6:]), &data); err != nil {
				t.Fatal(err)
			}
		case line == "" && name != "":
			return name, data
		}
	}
}

func record(id string, engines int) *route.Explanation {
	x := &route.Explanation{RequestID: route.Text(id), Time: telemetry.Stamp(time.Now().UnixMilli()), Engine: "e1", RunnerUp: "e2", Keys: "exact", Reason: "load"}
	for i := range engines {
		x.Candidates = append(x.Candidates, route.Candidate{Engine: fmt.Sprintf("e%d", i), Usable: true})
	}
	x.Result = route.Result{Ended: true, Status: 200, End: telemetry.EndDone, DurationSecond: 1}
	return x
}

func TestStreamTellsAll(t *testing.T) {
	t.Parallel()
	ring := route.NewRing(100)
	ring.Put(record("before", 2))
	r := newRig(t, func(o *Options) { o.Decisions = ring })
	url, _ := r.listener(t, nil)
	now := time.Now()
	r.step(now, true)
	e := look(t, url)
	if kind := e.res.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("type %q", kind)
	}
	name, data := e.next(t)
	if name != "topology" {
		t.Fatalf("the first event is %s", name)
	}
	has(t, "", data)
	for i := range 25 { // more than a tick may bear
		ring.Put(record(fmt.Sprint("r", i), 40))
	}
	r.step(now.Add(sampleEvery), false)
	if name, data = e.next(t); name != "gpu" || len(data["tokens"].(map[string]any)["time"].([]any)) != 1 || data["note"] == nil {
		t.Fatalf("%s %v", name, data)
	}
	for i := 15; i < 25; i++ { // the newest ten, in order
		name, data = e.next(t)
		if name != "decision" || data["request_id"] != fmt.Sprint("r", i) || data["result"].(map[string]any)["end"] != "done" {
			t.Fatalf("%d: %s %v", i, name, data)
		}
		if c := data["candidates"].([]any); len(c) != 2 {
			t.Errorf("%d candidates, want the winner and the next", len(c))
		}
	}
	r.step(now.Add(2*sampleEvery), true)
	if name, _ = e.next(t); name != "topology" {
		t.Errorf("then %s", name)
	}
	if name, _ = e.next(t); name != "gpu" {
		t.Errorf("then %s, though nothing was decided", name)
	}
}

// A record of few engines is told whole.
func TestBriefKeepsFewWhole(t *testing.T) {
	t.Parallel()
	if x := brief(record("r", mostCandidates)); len(x.Candidates) != mostCandidates {
		t.Errorf("%d", len(x.Candidates))
	}
	x := record("r", mostCandidates+1)
	x.Engine, x.RunnerUp = "e3", ""
	if brief(x); len(x.Candidates) != 1 || x.Candidates[0].Engine != "e3" {
		t.Errorf("%v", x.Candidates)
	}
}

// A stream outlives the limit on reading a request, and ends with the server.
func TestStreamOutlivesTheReadLimitAndNotTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	url, srv := r.listener(t, func(s *http.Server) { s.ReadTimeout = time.Second })
	e := look(t, url)
	e.next(t)
	time.Sleep(3 * time.Second) // three times the limit
	r.step(time.Now(), true)
	if name, _ := e.next(t); name != "topology" {
		t.Errorf("got %s", name)
	}
	from := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil || time.Since(from) > 5*time.Second {
		t.Errorf("stopping took %s: %v", time.Since(from), err)
	}
	if r.hub.join() != nil {
		t.Error("a stopped hub takes readers")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for range maxStreams {
		if r.hub.join() == nil {
			t.Fatal("refused too early")
		}
	}
	w := r.ask("GET", "/api/v1/stream")
	if wantError(t, w, 503, "overloaded"); w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A reader that does not read misses frames and holds nobody up.
func TestSlowReaderMissesFrames(t *testing.T) {
	t.Parallel()
	var h hub
	slow, quick := h.join(), h.join()
	for i := range 3 * queuedFrames {
		h.publish([]byte{byte(i)})
		<-quick.frames
	}
	if len(slow.frames) != queuedFrames {
		t.Errorf("%d frames wait", len(slow.frames))
	}
	h.leave(slow)
	h.leave(quick)
	if h.watched() {
		t.Error("somebody is left")
	}
}

func TestStreamIsGuarded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	wantError(t, r.ask("GET", "/api/v1/stream", "Host", "evil.example"), 421, "invalid_request")
	wantError(t, r.ask("GET", "/api/v1/stream", "Origin", "http://evil.example"), 403, "invalid_request")
	wantError(t, r.ask("POST", "/api/v1/stream"), 405, "method_not_allowed")
	wantError(t, r.ask("GET", "/api/v1/gpu", "Origin", "http://evil.example"), 403, "invalid_request")
	wantError(t, r.ask("DELETE", "/api/v1/gpu"), 405, "method_not_allowed")
	wantError(t, r.ask("GET", "/", "Host", "evil.example"), 421, "invalid_request")
	if w := r.ask("HEAD", "/api/v1/stream"); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Run goes on")
	}
}
