package e2e

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

// engine is an HTTP server that plays a script for every POST and records each
// byte it receives: what a vLLM replica would have seen. Probes and lists
// (GET /health, /v1/models, /metrics, /version) are answered by themselves so
// that Ramjet is content.
type engine struct {
	name string
	addr string // host:port, kept over down and up

	mu        sync.Mutex // guards the following
	ln        net.Listener
	play      script
	gets      map[string]string // path -> whole raw answer
	idleClose time.Duration     // 0 = never; vLLM's uvicorn has 5 s
	conns     map[*engineConn]struct{}
	exchanges []*exchange
	anomalies []string
	accepted  int
	changed   chan struct{} // closed and renewed at every new exchange
}

// script answers one POST. When it returns with the connection open, the next
// request on that connection is read.
type script func(x *exchange)

// autoID marks requests of the harness itself (warm-up, next-request check):
// they get the plain answer whatever the script says and are not recorded.
const autoID = "auto-"

// newEngine starts an engine on a free port of 127.0.0.1 that ends with the
// test.
func newEngine(t testing.TB, name string) *engine {
	t.Helper()
	return newEngineAt(t, name, "127.0.0.1:0", 0)
}

// newEngineAt starts an engine on an address; backlog > 0 limits the accept
// queue so that it can be filled.
func newEngineAt(t testing.TB, name, addr string, backlog int) *engine {
	t.Helper()
	e, err := openEngine(name, addr, backlog)
	if err != nil {
		t.Fatalf("cannot start engine %s: %v", name, err)
	}
	t.Cleanup(e.stop)
	return e
}

func openEngine(name, addr string, backlog int) (*engine, error) {
	e := &engine{name: name, conns: map[*engineConn]struct{}{}, gets: map[string]string{}, changed: make(chan struct{})}
	ln, err := listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	e.ln, e.addr = ln, ln.Addr().String()
	go e.accept(ln)
	return e, nil
}

// listen opens a port. The backlog of a socket that already listens can be
// changed by listening again.
func listen(addr string, backlog int) (net.Listener, error) {
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

func (e *engine) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		c := &engineConn{e: e, conn: conn.(*net.TCPConn), changed: make(chan struct{})}
		e.mu.Lock()
		e.conns[c] = struct{}{}
		e.accepted++
		e.mu.Unlock()
		go c.receive()
		go c.serve()
	}
}

func (e *engine) url() string { return "http://" + e.addr }

// on sets the script for the POSTs to come; nil is the plain answer.
func (e *engine) on(s script) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.play = s
}

// get sets the raw answer to GET (or OPTIONS, ..) of a path.
func (e *engine) get(path, answer string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gets[path] = answer
}

// serveModels makes /v1/models list the given ids.
func (e *engine) serveModels(ids ...string) {
	e.get("/v1/models", jsonResponse(200, modelList(ids...)))
}

// closeIdle makes the engine close connections that carried nothing for d, as
// uvicorn does after 5 s.
func (e *engine) closeIdle(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleClose = d
}

// down closes the port and resets every connection, as a killed process does.
func (e *engine) down() {
	e.mu.Lock()
	_ = e.ln.Close()
	e.mu.Unlock()
	e.dropAll()
}

// up opens the same port again.
func (e *engine) up(t testing.TB) {
	t.Helper()
	ln, err := listen(e.addr, 0)
	if err != nil {
		t.Fatalf("cannot reopen engine %s: %v", e.name, err)
	}
	e.mu.Lock()
	e.ln = ln
	e.mu.Unlock()
	go e.accept(ln)
}

// dropAll resets the open connections.
func (e *engine) dropAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		_ = c.conn.SetLinger(0)
		_ = c.conn.Close()
	}
}

func (e *engine) stop() { e.down() }

// silence stops accepting and fills the accept queue, so that further SYNs are
// dropped: connecting hangs as with a black hole. It needs a short backlog.
func (e *engine) silence(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	ln := e.ln.(*net.TCPListener)
	e.mu.Unlock()
	_ = ln.SetDeadline(time.Now()) // ends Accept, keeps the port
	for range 8 {
		conn, err := net.DialTimeout("tcp", e.addr, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("the kernel accepts more connections than the backlog allows: no black hole here")
}

// record notes a received request and wakes those who wait for it.
func (e *engine) record(x *exchange) {
	if strings.HasPrefix(x.fields.get("X-Request-Id"), autoID) || x.method == "GET" && isProbe(x.target) {
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

func (e *engine) anomaly(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.anomalies = append(e.anomalies, fmt.Sprintf(format, args...))
}

// seen returns the requests so far and what was malformed about any.
func (e *engine) seen() ([]*exchange, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*exchange(nil), e.exchanges...), append([]string(nil), e.anomalies...)
}

// forget empties the record.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exchanges, e.anomalies = nil, nil
}

// byID returns the requests that carried an id.
func (e *engine) byID(id string) []*exchange {
	all, _ := e.seen()
	var out []*exchange
	for _, x := range all {
		if x.fields.get("X-Request-Id") == id {
			out = append(out, x)
		}
	}
	return out
}

// busy counts requests whose script still runs.
func (e *engine) busy() int {
	all, _ := e.seen()
	n := 0
	for _, x := range all {
		if !x.finished() {
			n++
		}
	}
	return n
}

// acceptedConns says how many connections were ever accepted.
func (e *engine) acceptedConns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepted
}

// waitFor returns the request with an id once any of the engines has it.
func waitFor(t testing.TB, id string, engines ...*engine) *exchange {
	t.Helper()
	var found *exchange
	last := poll(patience, func() string {
		for _, e := range engines {
			if xs := e.byID(id); len(xs) > 0 {
				found = xs[0]
				return ""
			}
		}
		return "no engine has it"
	})
	if last != "" {
		t.Fatalf("request %s did not reach an engine within %v", id, patience)
	}
	return found
}

func modelList(ids ...string) string {
	var objects []string
	for _, id := range ids {
		objects = append(objects, fmt.Sprintf(`{"id":%s,"object":"model","created":1,"owned_by":"vllm","root":"m","parent":null,"max_model_len":262144,"permission":[]}`, jsonString(id)))
	}
	return `{"object":"list","data":[` + strings.Join(objects, ",") + `]}`
}

// byIDPrefix returns the requests whose id starts so.
func (e *engine) byIDPrefix(prefix string) []*exchange {
	all, _ := e.seen()
	var out []*exchange
	for _, x := range all {
		if strings.HasPrefix(x.id(), prefix) {
			out = append(out, x)
		}
	}
	return out
}
