package rig

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Engine is an HTTP server that plays a script for every POST and records each
// byte it receives: what a vLLM replica would have seen. Probes and lists
// (GET /health, /v1/models, /metrics, /version) are answered by themselves so
// that Ramjet is content.
type Engine struct {
	Name string
	Addr string // host:port, kept over down and up

	mu        sync.Mutex // guards the following
	ln        net.Listener
	free      func() // of the port, while the engine is down
	play      Script
	gets      map[string]string // path -> whole raw answer
	idleClose time.Duration     // 0 = never; vLLM's uvicorn has 5 s
	conns     map[*EngineConn]struct{}
	exchanges []*Exchange
	anomalies []string
	accepted  int
	changed   chan struct{} // closed and renewed at every new exchange
}

// Script answers one POST. When it returns with the connection open, the next
// request on that connection is read.
type Script func(x *Exchange)

// AutoID marks requests of the harness itself (warm-up, next-request check):
// they get the plain answer whatever the script says and are not recorded.
const AutoID = "auto-"

// NewEngine starts an engine on a free port of 127.0.0.1 that ends with the
// test.
func NewEngine(t testing.TB, name string) *Engine {
	t.Helper()
	return NewEngineAt(t, name, "127.0.0.1:0", 0)
}

// NewEngineAt starts an engine on an address; backlog > 0 limits the accept
// queue so that it can be filled.
func NewEngineAt(t testing.TB, name, addr string, backlog int) *Engine {
	t.Helper()
	e, err := openEngine(name, addr, backlog)
	if err != nil {
		t.Fatalf("cannot start engine %s: %v", name, err)
	}
	t.Cleanup(e.stop)
	return e
}

func openEngine(name, addr string, backlog int) (*Engine, error) {
	e := &Engine{Name: name, conns: map[*EngineConn]struct{}{}, gets: map[string]string{}, changed: make(chan struct{})}
	ln, err := Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	e.ln, e.Addr = ln, ln.Addr().String()
	go e.accept(ln)
	return e, nil
}

// Listen opens a port. The backlog of a socket that already listens can be
// changed by listening again.
func Listen(addr string, backlog int) (net.Listener, error) {
	lc := net.ListenConfig{}
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil || backlog == 0 {
		return ln, err
	}
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), backlog) }); err != nil {
		return nil, err
	}
	return ln, listenErr
}

func (e *Engine) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		c := &EngineConn{e: e, conn: conn.(*net.TCPConn), changed: make(chan struct{})}
		e.mu.Lock()
		e.conns[c] = struct{}{}
		e.accepted++
		e.mu.Unlock()
		go c.receive()
		go c.serve()
	}
}

// URL is the engine's base URL.
func (e *Engine) URL() string { return "http://" + e.Addr }

// On sets the script for the POSTs to come; nil is the plain answer.
func (e *Engine) On(s Script) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.play = s
}

// Get sets the raw answer to GET (or OPTIONS, ..) of a path.
func (e *Engine) Get(path, answer string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gets[path] = answer
}

// ServeModels makes /v1/models list the given ids.
func (e *Engine) ServeModels(ids ...string) {
	e.Get("/v1/models", JSONResponse(200, ModelList(ids...)))
}

// CloseIdle makes the engine close connections that carried nothing for d, as
// uvicorn does after 5 s.
func (e *Engine) CloseIdle(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleClose = d
}

// Down closes the port and resets every connection, as a killed process does.
// The port stays the engine's until it is up again: another process that got it
// would be taken for the engine.
func (e *Engine) Down() {
	e.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = reserve(e.Addr)
}

// Up opens the same port again.
func (e *Engine) Up(t testing.TB) {
	t.Helper()
	e.unreserve()
	ln, err := Listen(e.Addr, 0)
	if err != nil {
		t.Fatalf("cannot reopen engine %s: %v", e.Name, err)
	}
	e.mu.Lock()
	e.ln = ln
	e.mu.Unlock()
	go e.accept(ln)
}

// DropAll resets the open connections.
func (e *Engine) DropAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		_ = c.conn.SetLinger(0)
		_ = c.conn.Close()
	}
}

func (e *Engine) stop() {
	e.mu.Lock()
	_ = e.ln.Close()
	e.mu.Unlock()
	e.DropAll()
	e.unreserve()
}

func (e *Engine) unreserve() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.free != nil {
		e.free()
		e.free = nil
	}
}

// Silence stops accepting and fills the accept queue, so that further SYNs are
// dropped: connecting hangs as with a black hole. It needs a short backlog.
func (e *Engine) Silence(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	ln := e.ln.(*net.TCPListener)
	e.mu.Unlock()
	_ = ln.SetDeadline(time.Now()) // ends Accept, keeps the port
	full := 0
	for range 10 {
		conn, err := net.DialTimeout("tcp", e.Addr, 200*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			full = 0
			continue
		}
		if full++; full == 2 { // once may be a machine that is busy
			return
		}
	}
	t.Skip("the kernel accepts more connections than the backlog allows: no black hole here")
}

// record notes a received request and wakes those who wait for it.
func (e *Engine) record(x *Exchange) {
	if strings.HasPrefix(x.Fields.Get("X-Request-Id"), AutoID) || x.Method == "GET" && isProbe(x.Target) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exchanges = append(e.exchanges, x)
	close(e.changed)
	e.changed = make(chan struct{})
}

func isProbe(target string) bool {
	switch target {
	case "/health", "/v1/models", "/metrics", "/version", "/load", "/kv_event_sources", "/get_server_info":
		return true
	}
	return false
}

func (e *Engine) anomaly(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.anomalies = append(e.anomalies, fmt.Sprintf(format, args...))
}

// Seen returns the requests so far and what was malformed about any.
func (e *Engine) Seen() ([]*Exchange, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*Exchange(nil), e.exchanges...), append([]string(nil), e.anomalies...)
}

// Forget empties the record.
func (e *Engine) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exchanges, e.anomalies = nil, nil
}

// ByID returns the requests that carried an id.
func (e *Engine) ByID(id string) []*Exchange {
	all, _ := e.Seen()
	var out []*Exchange
	for _, x := range all {
		if x.Fields.Get("X-Request-Id") == id {
			out = append(out, x)
		}
	}
	return out
}

// Busy counts requests whose script still runs.
func (e *Engine) Busy() int {
	all, _ := e.Seen()
	n := 0
	for _, x := range all {
		if !x.finished() {
			n++
		}
	}
	return n
}

// AcceptedConns says how many connections were ever accepted.
func (e *Engine) AcceptedConns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepted
}

// Connections is how many connections are open.
func (e *Engine) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// WaitFor returns the request with an id once any of the engines has it.
func WaitFor(t testing.TB, id string, engines ...*Engine) *Exchange {
	t.Helper()
	var found *Exchange
	last := Poll(Patience, func() string {
		for _, e := range engines {
			if xs := e.ByID(id); len(xs) > 0 {
				found = xs[0]
				return ""
			}
		}
		return "no engine has it"
	})
	if last != "" {
		t.Fatalf("request %s did not reach an engine within %v", id, Patience)
	}
	return found
}

// ModelList is the answer to /v1/models of an engine that serves these models.
func ModelList(ids ...string) string {
	var objects []string
	for _, id := range ids {
		objects = append(objects, fmt.Sprintf(`{"id":%s,"object":"model","created":1,"owned_by":"vllm","root":"m","parent":null,"max_model_len":262144,"permission":[]}`, JSONString(id)))
	}
	return `{"object":"list","data":[` + strings.Join(objects, ",") + `]}`
}

// ByIDPrefix returns the requests whose id starts so.
func (e *Engine) ByIDPrefix(prefix string) []*Exchange {
	all, _ := e.Seen()
	var out []*Exchange
	for _, x := range all {
		if strings.HasPrefix(x.ID(), prefix) {
			out = append(out, x)
		}
	}
	return out
}
