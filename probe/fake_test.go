package probe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// fake is one scripted engine.
type fake struct {
	e *engine.Engine

	mu      sync.Mutex // guards the following
	mode    string     // ok, refused, late, unreachable, unnamed, starved, reset, page, or a status such as 503
	tokens  float64    // < 0: no metrics page
	start   float64
	models  string
	checks  []time.Time
	reads   int // of /v1/models
	trial   error
	trials  int
	running int
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// count reads a counter of the fake.
func (f *fake) count(of func(f *fake) int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of(f)
}

// get answers one GET as the mode says.
func (f *fake) get(ctx context.Context, path string) (int, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if path == "/health" {
		f.checks = append(f.checks, time.Now())
	}
	switch f.mode {
	case "refused":
		return 0, nil, fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	case "unreachable":
		return 0, nil, fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)})
	case "starved":
		return 0, nil, fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)})
	case "unnamed":
		return 0, nil, fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}})
	case "reset":
		return 0, nil, fmt.Errorf("cannot read: %w", syscall.ECONNRESET)
	case "late":
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return 0, nil, fmt.Errorf("cannot ask: %w", ctx.Err())
	case "page":
		return 0, nil, fmt.Errorf("malformed HTTP response %q", strings.Repeat("é", 30<<10))
	case "503":
		return 503, nil, nil
	}
	switch path {
	case "/v1/models":
		f.reads++
		return 200, []byte(f.models), nil
	case "/metrics":
		if f.tokens < 0 {
			return 404, nil, nil
		}
		return 200, fmt.Appendf(nil, "vllm:generation_tokens_total{engine=\"0\"} %v\nprocess_start_time_seconds %v\nvllm:num_requests_running %d\n", f.tokens, f.start, f.running), nil
	}
	return 200, nil, nil
}

// rig is a monitor over fakes with its log.
type rig struct {
	*Monitor
	fakes map[string]*fake
	log   bytes.Buffer
	l     *telemetry.Log
}

// newRig makes a monitor over engines of these names; nothing runs yet.
func newRig(t *testing.T, change func(o *Options), names ...string) *rig {
	t.Helper()
	r := &rig{fakes: map[string]*fake{}}
	r.l = telemetry.NewLog(&r.log, telemetry.LevelInfo, telemetry.FormatJSON)
	var engines []*engine.Engine
	for _, name := range names {
		u, err := url.Parse("http://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(engine.Options{Name: name, URL: u})
		engines = append(engines, e)
		r.fakes[name] = &fake{e: e, mode: "ok", start: 100, models: `{"object":"list","data":[{"id":"m-` + name + `","x":1}]}`}
	}
	o := Defaults()
	o.Log = r.l
	o.Metrics = telemetry.NewMetrics("v", "g")
	o.Get = func(ctx context.Context, e *engine.Engine, path string, _ []byte, _ int64) (int, []byte, error) {
		return r.fakes[e.Name].get(ctx, path)
	}
	o.Trial = func(_ context.Context, e *engine.Engine) error {
		f := r.fakes[e.Name]
		f.mu.Lock()
		defer f.mu.Unlock()
		f.trials++
		return f.trial
	}
	if change != nil {
		change(&o)
	}
	r.Monitor = New(o, engines)
	return r
}

// bubble runs f with a running monitor in virtual time and checks that it
// stops.
func bubble(t *testing.T, change func(o *Options), names []string, prepare func(r *rig), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change, names...)
		if prepare != nil {
			prepare(r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		defer func() {
			cancel()
			<-done
			_ = r.l.Close()
			synctest.Wait()
		}()
		synctest.Wait()
		f(t, r)
	})
}

// is fails the test unless the engine is in a state.
func (r *rig) is(t *testing.T, name string, want telemetry.State) {
	t.Helper()
	synctest.Wait()
	if s := r.fakes[name].e.Status(); s.State != want {
		t.Fatalf("%s is %s (%s), want %s", name, s.State, s.Reason, want)
	}
}

// until waits in virtual time for a state and returns how long it took.
func (r *rig) until(t *testing.T, name string, want telemetry.State, limit time.Duration) time.Duration {
	t.Helper()
	from := time.Now()
	for time.Since(from) < limit {
		if r.fakes[name].e.State() == want {
			return time.Since(from)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
	}
	s := r.fakes[name].e.Status()
	t.Fatalf("%s is %s (%s) after %s, want %s", name, s.State, s.Reason, limit, want)
	return 0
}

func (r *rig) page() string {
	var b strings.Builder
	r.o.Metrics.WritePrometheus(&b)
	return b.String()
}

// stream is an attempt under way.
type stream struct {
	mu      sync.Mutex
	n       uint64
	gone    []telemetry.End
	prefill bool
	blocked bool
}

func (s *stream) EngineGone(cause telemetry.End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, cause)
}
func (s *stream) Streaming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.prefill
}
func (s *stream) Blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}
func (s *stream) Progress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}
func (s *stream) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
}
func (s *stream) setPrefill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefill = true
}
func (s *stream) setBlocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = true
}
func (s *stream) ended() []telemetry.End {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}
