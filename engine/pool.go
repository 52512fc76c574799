package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// IdleLimit is how long an unused connection may be reused. It stays below the
// 5 s after which uvicorn closes an idle connection (measured on vLLM 0.32:
// 5.001 s), by more than a scheduling delay.
const IdleLimit = 4 * time.Second

// Pool keeps one engine's idle connections, the most recently used on top, so
// that a quiet pool ages out from the bottom. Its methods are safe for
// concurrent use.
type Pool struct {
	engine *Engine
	dialer net.Dialer
	tls    *tls.Config // nil for http
	reaps  bool        // aged connections are dropped when they have aged, not when another is wanted or comes back

	open atomic.Int64 // connections in use or idle

	mu      sync.Mutex // guards what follows
	idle    []*Conn    // oldest first
	closed  bool
	reaping bool // a timer that will drop aged connections is set
}

func newPool(e *Engine, reaps bool) *Pool {
	p := &Pool{engine: e, reaps: reaps}
	// Fallback to the other address family starts at once after a short
	// head start, so a black-holed first address costs a new connection less
	// than 300 ms (RFC 8305 section 5).
	p.dialer = net.Dialer{FallbackDelay: 100 * time.Millisecond, KeepAlive: 15 * time.Second}
	p.dialer.Control = p.permit
	if e.URL != nil && e.URL.Scheme == "https" {
		p.tls = &tls.Config{ServerName: e.URL.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	return p
}

// Open returns the connections that exist, idle or in use.
func (p *Pool) Open() int { return int(p.open.Load()) }

// Idle returns the connections that wait for reuse.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// Reuse returns an idle connection that looks alive now, or nil.
func (p *Pool) Reuse(now time.Time) *Conn {
	for {
		c := p.pop()
		if c == nil {
			return nil
		}
		if now.Sub(c.idleSince) < IdleLimit && c.quiet() {
			c.Reused = true
			return c
		}
		_ = c.Close()
	}
}

func (p *Pool) pop() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c
}

// Dial opens a fresh connection. The host's name is resolved each time, since
// a restarted container may have moved. No proxy of the environment is used.
func (p *Pool) Dial(ctx context.Context) (*Conn, error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	nc, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.open.Add(1)
	c, err := newConn(p, nc)
	if err != nil {
		p.open.Add(-1)
		_ = nc.Close()
		return nil, fmt.Errorf("cannot use the socket: %w", err)
	}
	return c, nil
}

// limit bounds resolution, connecting and the TLS handshake together.
func (p *Pool) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := p.engine.Settings().Dial; d >= 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// permit refuses addresses that no engine may have. It runs after resolution
// and before the connection is opened.
func (p *Pool) permit(_, address string, _ syscall.RawConn) error {
	if p.engine.forbidden == nil {
		return nil
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("cannot judge address %s: %w", address, err)
	}
	if why := p.engine.forbidden(ap.Addr()); why != "" {
		return fmt.Errorf("cannot use address %s: %s", address, why)
	}
	return nil
}

func (p *Pool) dial(ctx context.Context) (net.Conn, error) {
	nc, err := p.dialer.DialContext(ctx, "tcp", p.engine.Address())
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", inTime(ctx, err))
	}
	if p.tls == nil {
		return nc, nil
	}
	tc := tls.Client(nc, p.tls)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("cannot agree on TLS: %w", err)
	}
	return tc, nil
}

// inTime puts the passing of ctx's deadline in the place of an error that hides
// it: of several addresses the dialer tells how the first one failed, and one
// that refused says nothing of another that was still being tried.
func inTime(ctx context.Context, err error) error {
	// The context's own timer may tell later than the socket's.
	if at, limited := ctx.Deadline(); limited && !time.Now().Before(at) && !DialLate(err) {
		return &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	return err
}

// Put gives a connection back for reuse, idle from now on. The caller must have
// read its answer to the very end and cleared every deadline.
func (p *Pool) Put(c *Conn, now time.Time) {
	c.idleSince = now
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = c.Close()
		return
	}
	var aged *Conn
	if !p.reaps && len(p.idle) > 0 && c.idleSince.Sub(p.idle[0].idleSince) >= IdleLimit {
		// Nothing else gets to the bottom of a pool whose top is in use all the time.
		aged = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	p.reapLaterLocked(c.idleSince)
	p.mu.Unlock()
	if aged != nil {
		_ = aged.Close()
	}
}

// reapLaterLocked sets a timer for when the oldest connection has aged, but
// not for too soon: an idle Ramjet sets few timers, and none without
// connections.
func (p *Pool) reapLaterLocked(now time.Time) {
	if !p.reaps || p.reaping || len(p.idle) == 0 {
		return
	}
	p.reaping = true
	time.AfterFunc(max(IdleLimit-now.Sub(p.idle[0].idleSince), IdleLimit/2), p.reap)
}

// reap closes connections that aged or that the engine closed.
func (p *Pool) reap() {
	var dead []*Conn
	now := time.Now()
	p.mu.Lock()
	kept := p.idle[:0]
	for _, c := range p.idle {
		if now.Sub(c.idleSince) < IdleLimit && c.quiet() {
			kept = append(kept, c)
		} else {
			dead = append(dead, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	p.reaping = false
	p.reapLaterLocked(now)
	p.mu.Unlock()
	for _, c := range dead {
		_ = c.Close()
	}
}

// evict drops c if it is idle.
func (p *Pool) evict(c *Conn) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		_ = c.Close()
	}
}

// Close drops the idle connections; those in use close when they come back.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

// Refused reports whether err means that nothing listens at the address: the
// one failure of which it is certain that no request was seen.
func Refused(err error) bool { return errors.Is(err, errRefused) }

// Starved reports whether a Dial failed for want of descriptors or memory, which
// are Ramjet's own: nothing was asked of the engine.
func Starved(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// DialLate reports whether a Dial ended because its limit, or its caller's,
// passed: our own deadline, which says nothing of the engine. A time-out of the
// system's is none of ours.
func DialLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Address returns host:port with the scheme's default port filled in.
func (e *Engine) Address() string {
	port := e.URL.Port()
	if port == "" {
		port = "80"
		if e.URL.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(e.URL.Hostname(), port)
}
