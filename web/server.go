package web

import (
	"net/http"
	"time"

	"ramjet/engine"
	"ramjet/probe"
	"ramjet/telemetry"
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
	Monitor Monitor
	Metrics *telemetry.Metrics
	Leases  telemetry.LeaseSource // nil = unknown

	// Config returns the redacted configuration with the source of each
	// value, as something that encoding/json can write.
	Config func() any
	// Ready reports whether requests can be served, with reasons if not.
	// nil = always ready.
	Ready func() (bool, []string)
	// Reload loads the configuration again. nil = it cannot.
	Reload func() error

	// Token admits to mutations and profiles; "" = none is set.
	Token string
	// Loopback is true if the listener can be reached from this machine
	// alone.
	Loopback bool
	// Hosts are further names by which the listener may be addressed.
	Hosts []string
}

// wrongTokenDelay slows the guessing of tokens.
const wrongTokenDelay = 500 * time.Millisecond

// Server answers the admin port's requests.
type Server struct {
	o     Options
	delay time.Duration
	wrong chan struct{} // bounds the delayed answers
	mux   *http.ServeMux
}

// New returns a server. Metrics and Monitor must be set.
func New(o Options) *Server {
	if o.Metrics == nil || o.Monitor == nil {
		panic("BUG: the admin port needs metrics and a monitor")
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	s := &Server{o: o, delay: wrongTokenDelay, wrong: make(chan struct{}, 32), mux: http.NewServeMux()}
	s.routes()
	return s
}

// Handler returns the handler of the admin port.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HTTPServer returns a server with the limits of the admin port. There is no
// write limit, since a profile takes as long as it is asked to.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    32 << 10,
	}
}

// serve applies the rules that hold for every path.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
	if !s.knownHost(r) {
		fail(w, http.StatusMisdirectedRequest, "invalid_request", "this is the admin port of Ramjet; it does not answer for host "+quote(r.Host)+
			" (add the name to the listener's hosts, or use its address)")
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
	get("/livez", s.livez)
	get("/readyz", s.readyz)
	get("/health", s.health)
	get("/metrics", s.metrics)
	get("/api/v1/topology", s.topology)
	get("/api/v1/config", s.config)
	post("/api/v1/engines/{name}/drain", s.change(s.o.Monitor.Drain))
	post("/api/v1/engines/{name}/ready", s.change(s.o.Monitor.Ready))
	post("/api/v1/engines/{name}/eject", s.change(s.o.Monitor.Eject))
	post("/-/reload", s.reload)
	s.profiles()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "path_not_found", "there is no "+quote(r.URL.Path)+" on the admin port; / lists what there is")
	})
}
