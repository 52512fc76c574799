package web

import (
	"log" //nolint:depguard // net/http hands its complaints to nothing else
	"net/http"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/probe"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/wire"
)

// Monitor is what the admin port needs of probe.Monitor.
type Monitor interface {
	Transitions() []probe.Transition
	Health() probe.HealthView
	AppendHealthJSON(b []byte) []byte
	Reported(e *engine.Engine) *probe.Reported
	Drain(name string) error
	Ready(name string) error
	Eject(name string) error
}

// Options is what the admin port shows and may change. Nil functions are
// usable: what they would tell is unknown.
type Options struct {
	Version string
	Started time.Time // when Ramjet started; zero = now
	Policy  string    // route.policy

	Engines []*engine.Engine
	// Present returns the engines of the moment, where they may come and go;
	// nil = Engines.
	Present func() []*engine.Engine
	Monitor Monitor
	Metrics *telemetry.Metrics
	Leases  telemetry.LeaseSource // nil = unknown

	// Decisions keeps what was decided lately. nil = nothing is kept.
	Decisions *route.Ring
	// Explain is a dry run: what would be chosen for a request to path with
	// that body. header gives a header's value by its lower-case name. nil =
	// there is none.
	Explain func(path []byte, header func(name string) []byte, body []byte) (*route.Explanation, *wire.Error)

	// Routing tells how decisions are made at present. nil = unknown.
	Routing func() Routing
	// Work tells what an engine has to do and how fast it does it. nil =
	// unknown.
	Work func(engine string) Work
	// Residency tells what is known of an engine's cache. nil = unknown.
	Residency func(engine string) Residency
	// GPUs samples the engines' devices. nil = nothing does.
	GPUs GPUs

	// Config returns the redacted configuration with the source of each
	// value, as something that encoding/json can write.
	Config func() any
	// Ready reports whether requests can be served, with reasons if not.
	// nil = always ready.
	Ready func() (bool, []string)
	// Reload loads the configuration again and takes it over. nil = it cannot.
	Reload func() Reloaded

	// Token admits to mutations and profiles; "" = none is set.
	Token string
	// Loopback is true if the listener can be reached from this machine
	// alone.
	Loopback bool
	// Log takes what the server itself complains of. nil = nobody does.
	Log *telemetry.Log
}

// Routing is how decisions are made.
type Routing struct {
	Policy  string  // "" = Options.Policy
	Exact   string  // percent, shadow or off
	Percent float64 // of sessions, 0 to 100
}

// Work is what an engine has to do and how fast it was seen to do it.
type Work struct {
	QueueTokens     int64              // prompt tokens to compute for requests without a first token
	UncachedTokens  int64              // the same without what should be done of them by now
	PrefillRate     float64            // prompt tokens/s
	SecondsPerToken map[string]float64 // by the answers generated at once
}

// Residency is what is known of an engine's cache; 0 is unknown but for
// IndexBlocks.
type Residency struct {
	BlockTokens    int
	Blocks         int
	CapacityTokens int
	IndexBlocks    int
}

const (
	// wrongTokenDelay slows the guessing of tokens.
	wrongTokenDelay = 500 * time.Millisecond
	// readLimit is how long a request may take to come in.
	readLimit = 30 * time.Second
)

// Server answers the admin port's requests. Run must be going for it to know
// rates.
type Server struct {
	o     Options
	delay time.Duration
	token atomic.Pointer[string]
	wrong chan struct{} // bounds the delayed answers
	mux   *http.ServeMux

	dryRuns    chan struct{} // bounds the bodies held for them
	dryRunWait time.Duration

	recent *telemetry.Recent
	flows  flows
	hub    hub
	feed   feed
	rest   rest
}

// New returns a server. Metrics and Monitor must be set.
func New(o Options) *Server {
	if o.Metrics == nil || o.Monitor == nil {
		panic("BUG: the admin port needs metrics and a monitor")
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	s := &Server{
		o: o, delay: wrongTokenDelay, wrong: make(chan struct{}, 32), mux: http.NewServeMux(), recent: telemetry.NewRecent(o.Metrics),
		dryRuns: make(chan struct{}, 2), dryRunWait: dryRunWait,
	}
	s.rest.wake, s.rest.born = make(chan struct{}, 1), time.Now()
	s.SetToken(o.Token)
	s.routes()
	return s
}

// SetToken replaces Options.Token.
func (s *Server) SetToken(token string) { s.token.Store(&token) }

// engines returns those of the moment.
func (s *Server) engines() []*engine.Engine {
	if s.o.Present != nil {
		return s.o.Present()
	}
	return s.o.Engines
}

// Handler returns the handler of the admin port.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HTTPServer returns a server with the limits of the admin port. There is no
// write limit, since a profile takes as long as it is asked to.
func (s *Server) HTTPServer() *http.Server {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       readLimit,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(complaints{s.o.Log}, "", 0),
	}
	srv.RegisterOnShutdown(s.hub.close) // or a page that looks on would hold up every stop
	return srv
}

// serve applies the rules that hold for every path.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if !s.knownHost(r) && *s.token.Load() != "" && bearer(r) != "" {
		s.refuseToken(w, r) // a foreign name is no way to guess faster
		return
	}
	if !s.knownHost(r) {
		instead := "its address or a name without dots"
		if s.o.Loopback {
			instead = "127.0.0.1 or localhost"
		}
		fail(w, http.StatusMisdirectedRequest, "invalid_request", "this is the admin port of Ramjet; it does not answer for host "+quote(r.Host)+
			" (use "+instead+", or send the admin token)")
		return
	}
	if !sameOrigin(r) {
		fail(w, http.StatusForbidden, "invalid_request", "requests from pages of another origin are refused")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// routes is the list of paths.
func (s *Server) routes() {
	get := func(path string, f http.HandlerFunc) { s.mux.Handle(path, allow(f, http.MethodGet, http.MethodHead)) }
	post := func(path string, f http.HandlerFunc) { s.mux.Handle(path, allow(s.guarded(f), http.MethodPost)) }

	get("/{$}", s.index)
	get("/assets/{name}", s.asset)
	get("/livez", s.livez)
	get("/readyz", s.readyz)
	get("/health", s.health)
	get("/metrics", s.metrics)
	get("/api/v1/topology", s.topology)
	get("/api/v1/stream", s.stream)
	get("/api/v1/gpu", s.gpu)
	get("/api/v1/config", s.config)
	if s.o.Decisions != nil {
		get("/api/v1/requests", s.requests)
		get("/api/v1/explain/{id}", s.explained)
	}
	if s.o.Explain != nil {
		s.mux.Handle("/api/v1/explain", allow(http.HandlerFunc(s.explain), http.MethodPost))
	}
	post("/api/v1/engines/{name}/drain", s.change(s.o.Monitor.Drain))
	post("/api/v1/engines/{name}/ready", s.change(s.o.Monitor.Ready))
	post("/api/v1/engines/{name}/eject", s.change(s.o.Monitor.Eject))
	post("/-/reload", s.reload)
	s.profiles()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "path_not_found", "there is no "+quote(r.URL.Path)+" on the admin port; / shows what there is")
	})
}
