package proxy

import (
	"bytes"
	"encoding/json"
	"net"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// fixture is a Server on a loopback port in front of scripted engines.
type fixture struct {
	t       testing.TB
	srv     *Server
	addr    string
	engines []*rawEngine
	members []*engine.Engine
	book    *lease.Book
	set     *route.Set
	log     *syncBuffer
	access  *syncBuffer
	judged  judged
	watch   *engine.Watch
}

// setup is what a test may change before the server starts.
type setup struct {
	Options
	policy   route.Policy
	blind    bool // engine connections are not watched
	listener net.Listener
	engine   func(i int, o *engine.Options)
}

// start runs a server in front of engines, named a, b, c, that follow the
// scripts. Its end checks that nothing is left behind: no lease, no body, no
// flight, no watched connection, no engine connection outside the pool.
func start(t testing.TB, scripts []script, tweaks ...func(*setup)) *fixture {
	t.Helper()
	f := &fixture{t: t, log: &syncBuffer{}, access: &syncBuffer{}, set: &route.Set{}}
	s := setup{policy: route.PolicyRoundRobin}
	metrics := telemetry.NewMetrics("test", runtime.Version())
	log := telemetry.NewLog(f.log, telemetry.LevelDebug, telemetry.FormatJSON)
	access := telemetry.NewAccessLog(f.access, telemetry.FormatJSON)
	s.Options = Options{
		Metrics: metrics, Log: log, Access: access, Version: "test",
		Outcomes: &f.judged,
		Health:   func(dst []byte) ([]byte, bool) { return append(dst, `{"status":"ok","engines":{}}`...), true },
		Settings: Settings{
			XRamjet:  true,
			Limits:   Limits{Body: 64 << 20, BodyMemory: 1 << 30, Header: 32 << 10, QueueWait: 30 * time.Second},
			Timeouts: Timeouts{ClientHeader: 10 * time.Second, ClientBodyRate: 16 << 10, ClientWrite: 60 * time.Second},
		},
	}
	for _, tweak := range tweaks {
		tweak(&s)
	}
	var err error
	if f.watch, err = engine.NewWatch(); err != nil {
		t.Fatal(err)
	}
	for i, sc := range scripts {
		f.addEngine(i, sc, &s, metrics)
	}
	f.book = lease.NewBook(func() { f.srv.Released() })
	s.Router = route.New(f.book, radix.NewIndex(), radix.NewMemory(), route.Settings{
		Policy: s.policy, Profile: route.ProfileRule, Threshold: 256, Exact: route.ExactPercent, Percent: 100, Tie: 0.02,
	}, f.set)
	if f.srv, err = New(s.Options); err != nil {
		t.Fatal(err)
	}
	ln := s.listener
	if ln == nil {
		ln = listen(t)
	}
	f.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.srv.Serve(ln) }()
	t.Cleanup(func() {
		f.checkIdle()
		f.srv.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		f.checkEmpty()
		for _, e := range f.engines {
			e.stop()
		}
		if n := f.watch.Len(); n != 0 {
			t.Errorf("%d engine connections are still watched", n)
		}
		f.watch.Close()
		_, _ = access.Close(), log.Close()
	})
	return f
}

func (f *fixture) addEngine(i int, sc script, s *setup, metrics *telemetry.Metrics) {
	raw := startEngine(f.t, sc)
	o := engine.Options{
		Name: string(rune('a' + i)), URL: &url.URL{Scheme: "http", Host: raw.addr},
		Metrics: metrics.Engine(string(rune('a' + i))), Dial: 5 * time.Second,
	}
	if !s.blind {
		o.Watch = f.watch
	}
	if s.engine != nil {
		s.engine(i, &o)
	}
	e := engine.New(o)
	raw.mu.Lock()
	raw.member = e
	raw.mu.Unlock()
	e.SetState(telemetry.StateReady, "test")
	e.SetModels(engine.NewModels([]string{"m"}, [][]byte{[]byte(`{"id":"m","object":"model"}`)}, nil))
	f.engines = append(f.engines, raw)
	f.members = append(f.members, e)
	f.set.Members = append(f.set.Members, route.Member{Engine: e, Account: lease.NewAccount(""), Slot: i})
}

// checkIdle waits until no request is under way.
func (f *fixture) checkIdle() {
	f.t.Helper()
	if !settled(func() bool { return f.srv.InFlight() == 0 }) {
		f.t.Errorf("%d requests are still under way", f.srv.InFlight())
	}
}

// checkEmpty looks for whatever a request may have left behind.
func (f *fixture) checkEmpty() {
	f.t.Helper()
	if n := f.srv.BodyBytes(); n != 0 {
		f.t.Errorf("%d bytes of bodies are still booked", n)
	}
	for i, e := range f.members {
		if l := f.book.Load(f.set.Members[i].Account); l != (lease.Load{}) {
			f.t.Errorf("engine %s still has leases: %+v", e.Name, l)
		}
		if n := e.Flights(); n != 0 {
			f.t.Errorf("engine %s still has %d flights", e.Name, n)
		}
		if open, idle := e.Pool().Open(), e.Pool().Idle(); open != idle {
			f.t.Errorf("engine %s has %d connections open and %d idle", e.Name, open, idle)
		}
		e.Pool().Close()
		if open := e.Pool().Open(); open != 0 {
			f.t.Errorf("engine %s has %d connections after its pool closed", e.Name, open)
		}
	}
	f.checkWatch()
}

// records returns the access records once there are n of them.
func (f *fixture) records(n int) []record {
	f.t.Helper()
	var out []record
	eventually(f.t, "access records", func() bool {
		out = out[:0]
		for line := range bytes.Lines(f.access.bytes()) {
			var r record
			if err := json.Unmarshal(line, &r); err != nil {
				f.t.Fatalf("access line %q: %v", line, err)
			}
			out = append(out, r)
		}
		return len(out) >= n
	})
	if len(out) != n {
		f.t.Fatalf("%d access records, want %d:\n%s", len(out), n, f.access.bytes())
	}
	return out
}

// ends fails unless the requests so far ended as said.
func (f *fixture) ends(want ...telemetry.End) []record {
	f.t.Helper()
	out := f.records(len(want))
	for i, r := range out {
		if r.End != want[i].String() {
			f.t.Errorf("request %d ended %q, want %q (error %q)", i, r.End, want[i], r.Error)
		}
	}
	return out
}

// endsInAnyOrder is for requests of several connections: a record is written
// behind the answer, so another request's may come first.
func (f *fixture) endsInAnyOrder(want ...telemetry.End) {
	f.t.Helper()
	got := map[string]int{}
	for _, r := range f.records(len(want)) {
		got[r.End]++
	}
	for _, e := range want {
		got[e.String()]--
	}
	for e, n := range got {
		if n != 0 {
			f.t.Errorf("%+d requests ended %q", n, e)
		}
	}
}

// record is an access line.
type record struct {
	Time, ID, End, Method, Path, Model, Engine, Reason, Keys, Session, Error string
	Status, Attempts                                                         int
	Engines                                                                  []string
	PromptTokens                                                             *int     `json:"prompt_tokens"`
	CachedTokens                                                             *int     `json:"cached_tokens"`
	OutputTokens                                                             *int     `json:"output_tokens"`
	Route                                                                    *float64 `json:"route_s"`
	Queue                                                                    *float64 `json:"queue_s"`
	TTFT                                                                     *float64 `json:"ttft_s"`
	Duration                                                                 *float64 `json:"duration_s"`
	BytesIn                                                                  int64    `json:"bytes_in"`
	BytesOut                                                                 int64    `json:"bytes_out"`
}

// judged keeps what each attempt said about its engine.
type judged struct {
	mu  sync.Mutex // guards all
	all []verdictOn
}

type verdictOn struct {
	engine  string
	outcome engine.Outcome
}

// Outcome implements Outcomes.
func (j *judged) Outcome(e *engine.Engine, o engine.Outcome, _ string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, verdictOn{e.Name, o})
}

// outcomes fails unless the attempts so far were judged as said.
func (f *fixture) outcomes(want ...verdictOn) {
	f.t.Helper()
	f.checkIdle()
	f.judged.mu.Lock()
	defer f.judged.mu.Unlock()
	if len(f.judged.all) != len(want) {
		f.t.Errorf("outcomes %v, want %v", f.judged.all, want)
		return
	}
	for i := range want {
		if f.judged.all[i] != want[i] {
			f.t.Errorf("outcomes %v, want %v", f.judged.all, want)
			return
		}
	}
}

// syncBuffer is a buffer that a log's goroutine writes and a test reads.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
