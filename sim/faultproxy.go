package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// WireKinds is the closed list of what a FaultProxy can do to a connection.
var WireKinds = []string{"", "cut", "reset", "stall", "slice", "corrupt", "delay"}

// WireFault is what happens to one connection through a FaultProxy, at one
// place of what the engine sends (or, with Request, of what the client
// sends): after AtEvent whole events, that is blank lines in the body of a
// stream, and then AtByte more bytes. Both count from the connection's start.
//
//	cut      both sides are closed in order
//	reset    both sides are reset
//	stall    nothing more passes for Seconds, 0 = until the other side closes
//	slice    from here on bytes pass in random pieces of 1 to 7, a write each
//	corrupt  one byte is changed by flipping a random bit
//	delay    as stall, but for each read from here on
type WireFault struct {
	Kind    string // "" passes everything
	AtEvent int
	AtByte  int64
	Seconds float64
	Request bool
}

// FaultProxyOptions describe a FaultProxy.
type FaultProxyOptions struct {
	Listen string // default 127.0.0.1:0
	Target string // HOST:PORT of the engine
	Seed   uint64 // of everything random
}

// FaultProxy is a TCP proxy that damages connections at chosen places. All
// methods may be called from any goroutine.
type FaultProxy struct {
	o  FaultProxyOptions
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex  // guards below
	queue  []WireFault // for the next connections, one each
	always WireFault   // for those that find the queue empty
	count  uint64
	conns  map[net.Conn]struct{}
	closed bool
}

// NewFaultProxy binds the port and starts to accept.
func NewFaultProxy(o FaultProxyOptions) (*FaultProxy, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	p := &FaultProxy{o: o, ln: ln, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the proxy's address, HOST:PORT.
func (p *FaultProxy) Addr() string { return p.ln.Addr().String() }

// Connections is how many connections have been accepted.
func (p *FaultProxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.count)
}

// Next queues faults for the next connections, one each. It panics on an
// unknown kind.
func (p *FaultProxy) Next(faults ...WireFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range faults {
		f.mustBeKnown()
		p.queue = append(p.queue, f)
	}
}

// Always sets the fault of every connection that finds the queue empty. It
// panics on an unknown kind.
func (p *FaultProxy) Always(f WireFault) {
	f.mustBeKnown()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.always = f
}

func (f WireFault) mustBeKnown() {
	if !slices.Contains(WireKinds, f.Kind) {
		panic("BUG: no such wire fault: " + f.Kind)
	}
}

// Close closes the port and every connection and waits for their goroutines.
func (p *FaultProxy) Close() {
	p.mu.Lock()
	p.closed = true
	_ = p.ln.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// keep registers a connection for Close; false if the proxy is closed.
func (p *FaultProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *FaultProxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *FaultProxy) accept() {
	for {
		client, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: do not spin
			continue
		}
		p.mu.Lock()
		f := p.always
		if len(p.queue) > 0 {
			f, p.queue = p.queue[0], p.queue[1:]
		}
		random := rand.New(rand.NewPCG(p.o.Seed, p.count))
		p.count++
		p.mu.Unlock()
		p.wg.Go(func() { p.join(client, f, random) })
	}
}

// join connects a client with the engine until either side ends.
func (p *FaultProxy) join(client net.Conn, f WireFault, random *rand.Rand) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	engine, err := net.DialTimeout("tcp", p.o.Target, time.Second)
	if err != nil {
		return
	}
	if !p.keep(engine) {
		return
	}
	defer p.drop(engine)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	up, down := WireFault{}, f
	if f.Request {
		up, down = f, up
	}
	pair := &wirePair{ctx: ctx, end: cancel, client: client, engine: engine}
	var wg sync.WaitGroup
	wg.Go(func() { pair.pass(engine, client, up, random) })
	pair.pass(client, engine, down, random)
	wg.Wait()
}

// wirePair is one connection through the proxy. Either direction's end ends both.
type wirePair struct {
	ctx            context.Context
	end            context.CancelFunc
	client, engine net.Conn
}

func (w *wirePair) close(reset bool) {
	w.end()
	for _, c := range []net.Conn{w.client, w.engine} {
		if t, ok := c.(*net.TCPConn); ok && reset {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

// pass copies src to dst and does f at its place.
func (w *wirePair) pass(dst, src net.Conn, f WireFault, random *rand.Rand) {
	defer w.close(false)
	at := newWirePlace(f)
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !w.passSome(dst, buf[:n], f, at, random) {
			return
		}
		if err != nil {
			// The end of one direction ends the other: an engine behind
			// uvicorn takes a half-close for a departure.
			return
		}
	}
}

// passSome forwards what one read returned; false means that the pair is over.
func (w *wirePair) passSome(dst net.Conn, p []byte, f WireFault, at *wirePlace, random *rand.Rand) bool {
	was := at.reached
	i := len(p)
	if f.Kind != "" && !was {
		i = at.find(p)
	}
	if was {
		i = 0
	}
	if !w.write(dst, p[:i], false, random) {
		return false
	}
	rest := p[i:]
	if !at.reached {
		return true
	}
	switch f.Kind {
	case "cut", "reset":
		w.close(f.Kind == "reset")
		return false
	case "stall", "delay":
		if (!was || f.Kind == "delay") && !w.wait(f.Seconds) {
			return false
		}
	case "corrupt":
		if !was && len(rest) > 0 {
			rest[0] ^= 1 << random.IntN(8)
		} else if !was {
			at.reached = false // the byte to change comes with the next read
		}
	}
	return w.write(dst, rest, f.Kind == "slice", random)
}

// wait holds the direction up; false means that the pair ended meanwhile.
func (w *wirePair) wait(seconds float64) bool {
	if seconds <= 0 {
		<-w.ctx.Done()
		return false
	}
	return pause(w.ctx, time.Duration(seconds*float64(time.Second)))
}

func (w *wirePair) write(dst io.Writer, p []byte, sliced bool, random *rand.Rand) bool {
	for len(p) > 0 {
		n := len(p)
		if sliced {
			n = min(n, 1+random.IntN(7))
		}
		if _, err := dst.Write(p[:n]); err != nil {
			return false
		}
		p = p[n:]
	}
	return true
}

// wirePlace finds the place of a fault in a flow of bytes that comes in parts.
type wirePlace struct {
	events  int   // blank lines still to come
	bytes   int64 // and then so many bytes
	last    byte  // the byte before this part
	reached bool
}

func newWirePlace(f WireFault) *wirePlace { return &wirePlace{events: f.AtEvent, bytes: f.AtByte} }

// find returns how many bytes of p come before the place; all of them if it
// is not in p. The place is in front of a byte: one that falls on the end of
// p is reached at once.
func (w *wirePlace) find(p []byte) int {
	i := 0
	for ; i < len(p) && w.events > 0; i++ {
		if p[i] == '\n' && w.last == '\n' {
			w.events--
			w.last = 0 // three line ends are one blank line
		} else {
			w.last = p[i]
		}
	}
	if w.events > 0 {
		return len(p)
	}
	if left := int64(len(p) - i); w.bytes > left {
		w.bytes -= left
		return len(p)
	}
	i += int(w.bytes)
	w.bytes, w.reached = 0, true
	return i
}
