package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// Server serves clients on any number of listeners.
type Server struct {
	Options

	live   atomic.Pointer[live]
	bodies budget
	queue  queue
	stored stored
	labels *labels
	watch  *engine.Watch // of departing clients

	began    time.Time
	draining atomic.Bool
	requests atomic.Int64 // under way
	lastSeen atomic.Int64 // when a request last ended, in nanoseconds since began

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	retired   []net.Listener // closed by Retire
	conns     map[*conn]struct{}
	stopped   bool
	wg        sync.WaitGroup
}

// New returns a server. Close must follow.
func New(o Options) (*Server, error) {
	w, err := engine.NewWatch()
	if err != nil {
		return nil, fmt.Errorf("cannot watch for departing clients: %w", err)
	}
	s := &Server{
		Options: o,
		bodies:  budget{limit: o.Limits.BodyMemory},
		labels:  newLabels(),
		watch:   w,
		began:   time.Now(),
		conns:   make(map[*conn]struct{}),
	}
	s.SetSettings(o.Settings)
	return s, nil
}

// live is the settings in force, with what is made of them. A request keeps
// those that it began with.
type live struct {
	Settings
	paths *endpoints
}

// SetSettings replaces what requests go by from here on. Limits.BodyMemory,
// Limits.Header, Limits.Connections and StreamRelay stay as they were at the
// start.
func (s *Server) SetSettings(n Settings) {
	was := s.Settings
	n.Limits.BodyMemory, n.Limits.Header, n.Limits.Connections, n.StreamRelay = was.Limits.BodyMemory, was.Limits.Header, was.Limits.Connections, was.StreamRelay
	n.Timeouts.ClientHeader = was.Timeouts.ClientHeader
	s.queue.limit.Store(int64(n.Limits.Queue))
	s.live.Store(&live{Settings: n, paths: newEndpoints(n.Allow)})
}

// settings returns those in force.
func (s *Server) settings() *live { return s.live.Load() }

// Now is the time of leases and decisions: seconds since the server was made.
func (s *Server) Now() float64 { return s.at(time.Now()) }

// at is Now at t.
func (s *Server) at(t time.Time) float64 { return t.Sub(s.began).Seconds() }

// Released tells requests that wait for room on an engine to look again. It
// belongs into lease.NewBook.
func (s *Server) Released() { s.queue.released() }

// Forget drops what is remembered of an engine that restarted.
func (s *Server) Forget(engine string) { s.stored.forget(engine) }

// InFlight returns the requests under way.
func (s *Server) InFlight() int { return int(s.requests.Load()) }

// BodyBytes returns the bytes of request bodies held.
func (s *Server) BodyBytes() int64 { return s.bodies.held() }

// Serve accepts on ln until Close. It returns nil after Close.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners = append(s.listeners, ln)
	s.mu.Unlock()
	pause := time.Duration(0)
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			s.accept(nc)
			continue
		}
		if s.isStopped() || s.isRetired(ln) {
			return nil
		}
		var ne net.Error
		if !errors.As(err, &ne) {
			return fmt.Errorf("cannot accept: %w", err)
		}
		// Out of descriptors, most likely: waiting for one to come back is
		// all that helps, and must not spin.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.Log.Throttled("accept", telemetry.LevelWarn, "cannot accept a connection; waiting", "error", err.Error())
		time.Sleep(pause)
	}
}

// Retire ends Serve for ln, which is closed: whoever else holds its socket
// accepts what comes. Connections that are accepted go on.
func (s *Server) Retire(ln net.Listener) {
	s.mu.Lock()
	s.retired = append(s.retired, ln)
	s.mu.Unlock()
	_ = ln.Close()
}

func (s *Server) isRetired(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.retired, ln)
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *Server) accept(nc net.Conn) {
	c, err := s.newConn(nc)
	if err != nil {
		_ = nc.Close()
		s.Log.Throttled("conn", telemetry.LevelWarn, "cannot take a connection", "error", err.Error())
		return
	}
	if c == nil {
		_ = nc.Close()
		s.Log.Throttled("connections", telemetry.LevelWarn, "too many connections; closing new ones")
		return
	}
	go func() {
		defer s.wg.Done()
		c.serve()
	}()
}

// newConn returns nil without an error when there is no room for another.
func (s *Server) newConn(nc net.Conn) (*conn, error) {
	c := &conn{srv: s, socketConn: nc, nc: nc}
	if s.TLS != nil {
		c.nc = tls.Server(nc, s.TLS)
	}
	if err := c.init(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || !s.roomLocked() {
		s.watch.Remove(c.ticket)
		return nil, nil
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	return c, nil
}

// roomLocked keeps descriptors in reserve for engines, probes and the admin
// port, so that a flood of clients cannot lock the operator out.
func (s *Server) roomLocked() bool {
	n := len(s.conns)
	if s.Limits.Connections > 0 && n >= s.Limits.Connections {
		return false
	}
	return n+s.upstream() < descriptorLimit()-descriptorReserve
}

func (s *Server) upstream() (n int) {
	if s.Upstream != nil {
		return s.Upstream()
	}
	for _, m := range s.Router.Members().Members {
		n += m.Engine.Pool().Open()
	}
	return n
}

func (s *Server) drop(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// idleGrace is how long a drain waits for the next request on connections
// that stand idle. Clients that still send get their answer with
// "Connection: close"; those that send nothing for this long lose nothing.
const idleGrace = 5 * time.Second

// Drain lets requests finish and tells every client to close its connection.
// It returns when nothing is under way and the clients are gone or silent; at
// the end of ctx streams are ended with a draining error. Close must follow.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.lastSeen.Store(int64(time.Since(s.began)))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.endAll()
			return
		case <-tick.C:
			quiet := time.Since(s.began)-time.Duration(s.lastSeen.Load()) > idleGrace
			if s.requests.Load() == 0 && (quiet || s.connections() == 0) {
				return
			}
		}
	}
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// endAll ends every request under way and gives its goroutine a moment to say
// so to its client.
func (s *Server) endAll() {
	s.mu.Lock()
	for c := range s.conns {
		c.gate.abort(telemetry.EndDrained)
	}
	s.mu.Unlock()
	for deadline := time.Now().Add(time.Second); s.requests.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// Close stops at once: listeners and connections are closed, and every
// goroutine of the server has ended when it returns.
func (s *Server) Close() {
	s.mu.Lock()
	s.stopped = true
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
	for c := range s.conns {
		c.gate.abort(telemetry.EndDrained)
	}
	for c := range s.conns {
		_ = c.socketConn.Close() // which waits for what was aborted: a request needs nothing of mu
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.watch.Close()
}
