package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/route"
	"ramjet/wire"
)

// explainer is a dry run that a test holds up.
type explainer struct {
	inside  chan struct{} // one for each that began
	release chan struct{}
	e       *wire.Error
}

func newExplainer() *explainer {
	return &explainer{inside: make(chan struct{}, 8), release: make(chan struct{}), e: &wire.Error{Code: wire.CodeInvalidRequest, Message: "as the test wants"}}
}

func (x *explainer) options(o *Options) {
	o.Explain = func([]byte, func(string) []byte, []byte) (*route.Explanation, *wire.Error) {
		x.inside <- struct{}{}
		<-x.release
		return nil, x.e
	}
}

// TestFewDryRunsAtOnce: their bodies are outside of limits.body_memory, so two
// are held, and the others wait their turn.
func TestFewDryRunsAtOnce(t *testing.T) {
	t.Parallel()
	x := newExplainer()
	s := newRig(t, x.options)
	s.dryRunWait = time.Minute
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			s.ask(http.MethodPost, "/api/v1/explain")
		})
	}
	<-x.inside
	<-x.inside
	select {
	case <-x.inside:
		t.Error("a third dry run is under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(x.release)
	wg.Wait()
	if n := len(x.inside); n != 3 {
		t.Errorf("%d of three more dry runs came to an end", n)
	}
}

// A dry run whose turn does not come is told when to try again.
func TestDryRunDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	x := newExplainer()
	s := newRig(t, x.options)
	s.dryRunWait = 20 * time.Millisecond
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { s.ask(http.MethodPost, "/api/v1/explain") })
		<-x.inside
	}
	w := s.ask(http.MethodPost, "/api/v1/explain")
	if wantError(t, w, 503, "overloaded"); w.Header().Get("Retry-After") != "1" {
		t.Errorf("headers %v", w.Header())
	}
	close(x.release)
	wg.Wait()
}

// The time that a dry run waited for others is not taken from its body's.
func TestDryRunThatWaitedIsRead(t *testing.T) {
	t.Parallel()
	x := newExplainer()
	s := newRig(t, x.options)
	s.dryRunWait = time.Minute
	url, _ := s.listener(t, func(srv *http.Server) { srv.ReadTimeout = time.Second })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { s.ask(http.MethodPost, "/api/v1/explain") })
		<-x.inside
	}
	wg.Go(func() {
		// More than the server reads ahead with the head.
		res, err := http.Post(url+"/api/v1/explain", "application/json", strings.NewReader(strings.Repeat(" ", 1<<20)))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), "as the test wants") {
			t.Errorf("%d %s", res.StatusCode, text)
		}
	})
	time.Sleep(2 * time.Second) // twice the limit
	close(x.release)
	wg.Wait()
}

// TestDryRunIsRefusedAsARequest: status, type, param and what is said about
// trying again are the public port's.
func TestDryRunIsRefusedAsARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e                   wire.Error
		status              int
		kind, param         string
		after, never, allow string
	}{
		{wire.Error{Code: wire.CodeNoEngine}, 503, "server_error", "", "5", "", ""},
		{wire.Error{Code: wire.CodeModelNotFound, Message: "no", Param: "model"}, 404, "not_found_error", "model", "", "false", ""},
		{wire.Error{Code: wire.CodeOverloaded, Status: 529, RetryAfter: 9}, 529, "server_error", "", "9", "", ""},
		{wire.Error{Code: wire.CodeMethodNotAllowed, Allow: "POST"}, 405, "invalid_request_error", "", "", "false", "POST"},
	} {
		r := newRig(t, func(o *Options) {
			o.Explain = func([]byte, func(string) []byte, []byte) (*route.Explanation, *wire.Error) { return nil, &c.e }
		})
		w := r.ask(http.MethodPost, "/api/v1/explain")
		var body errorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error == nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		param := ""
		if body.Error.Param != nil {
			param = *body.Error.Param
		}
		h := w.Header()
		if w.Code != c.status || body.Error.Type != c.kind || body.Error.Code != c.e.Code.String() || body.Error.Message == "" || param != c.param ||
			h.Get("Retry-After") != c.after || h.Get("X-Should-Retry") != c.never || h.Get("Allow") != c.allow || h.Get("Content-Type") != "application/json" {
			t.Errorf("%v: %d %s %v", &c.e, w.Code, w.Body, h)
		}
	}
}
