package chaos

import (
	"bufio"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a TCP proxy in front of one engine. It reads the requests that pass,
// so that it can damage the answer to a chosen one, say whose bytes it touched,
// and witness that a body arrived as it was sent. Bytes pass verbatim unless a
// fate says otherwise. All methods may be called from any goroutine.
type wire struct {
	s     *sim
	ln    net.Listener
	fates *fates
	notes *witness
	wg    sync.WaitGroup

	mu     sync.Mutex // guards the following
	conns  map[net.Conn]struct{}
	hold   chan struct{} // while the wire is held: closed when it goes on
	closed bool
}

func newWire(s *sim, f *fates, w *witness) (*wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &wire{s: s, ln: ln, fates: f, notes: w, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *wire) addr() string { return p.ln.Addr().String() }

func (p *wire) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.ln.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.release()
	p.wg.Wait()
}

// stop holds all bytes back until release.
func (p *wire) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil && !p.closed {
		p.hold = make(chan struct{})
	}
}

func (p *wire) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// drop resets every connection at once.
func (p *wire) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

func (p *wire) held() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

func (p *wire) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *wire) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *wire) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			p.mu.Lock()
			closed := p.closed
			p.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.wg.Go(func() { p.join(c) })
	}
}

// join connects a client with the engine until either side ends.
func (p *wire) join(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.forget(client)
	engine, err := net.DialTimeout("tcp", p.s.addr, time.Second)
	if err != nil {
		reset(client) // as an engine that is not there
		return
	}
	if !p.keep(engine) {
		return
	}
	defer p.forget(engine)
	pair := &wirePair{wire: p, client: client, engine: engine}
	var wg sync.WaitGroup
	wg.Go(pair.up)
	pair.down()
	wg.Wait()
}

// wirePair is one connection through the wire. The end of either direction
// ends both.
type wirePair struct {
	*wire
	client, engine net.Conn
	now            atomic.Pointer[passing]
	tainted        atomic.Bool // a byte on it was changed
}

// passing is the request whose answer is on the wire.
type passing struct {
	id   string
	fate fate
	sent int // bytes of the answer so far; of down alone
}

func (w *wirePair) end() {
	_ = w.client.Close()
	_ = w.engine.Close()
}

// up passes requests on and reads them. The bytes that complete a head are
// passed on only when it is known whose they are.
func (w *wirePair) up() {
	defer w.end()
	late := &lateReader{src: w.client, dst: w.engine}
	r := bufio.NewReader(late)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			_ = late.flush()
			return
		}
		id := q.Header.Get("X-Request-Id")
		now := &passing{id: id}
		if w.tainted.Load() {
			// What is left of the damaged answer could be taken for the
			// beginning of the next one, and no proxy could know better.
			reset(w.client)
			return
		}
		if ours(id) {
			now.fate = w.fates.draw(id)
		}
		w.now.Store(now)
		if late.flush() != nil {
			return
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, q.Body); err != nil || late.flush() != nil {
			return
		}
		if ours(id) {
			w.notes.arrived(id, [32]byte(sum.Sum(nil)))
		}
	}
}

// lateReader passes on what it read when it is asked for more.
type lateReader struct {
	src, dst net.Conn
	kept     []byte
}

func (l *lateReader) flush() error {
	if len(l.kept) == 0 {
		return nil
	}
	_, err := l.dst.Write(l.kept)
	l.kept = l.kept[:0]
	return err
}

func (l *lateReader) Read(p []byte) (int, error) {
	if err := l.flush(); err != nil {
		return 0, err
	}
	n, err := l.src.Read(p)
	l.kept = append(l.kept, p[:n]...)
	return n, err
}

// down passes answers back and does to them what is their fate.
func (w *wirePair) down() {
	defer w.end()
	buf := make([]byte, 32<<10)
	for {
		n, err := w.engine.Read(buf)
		if hold := w.held(); hold != nil {
			<-hold
		}
		if n > 0 && !w.back(buf[:n]) || err != nil {
			return
		}
	}
}

// back passes on what one read returned; false means that the pair is over.
func (w *wirePair) back(b []byte) bool {
	now := w.now.Load()
	if now == nil || now.fate.kind == "" {
		_, err := w.client.Write(b)
		return err == nil
	}
	from, at := now.sent, now.fate.at
	now.sent += len(b)
	k := at - from
	if k >= len(b) { // not yet
		_, err := w.client.Write(b)
		return err == nil
	}
	strikes := k >= 0
	if k = max(k, 0); k > 0 {
		if _, err := w.client.Write(b[:k]); err != nil {
			return false
		}
		b = b[k:]
	}
	if strikes {
		w.notes.struck(now.fate.kind)
	}
	switch now.fate.kind {
	case "cut":
		return false
	case "reset":
		reset(w.client)
		return false
	case "stall":
		if strikes {
			time.Sleep(now.fate.pause)
		}
	case "slow":
		time.Sleep(now.fate.pause / 50)
	case "corrupt":
		if strikes {
			w.tainted.Store(true)
			w.notes.taint(now.id)
			b[0] ^= 1 << (now.fate.bit % 8)
		}
	case "slice":
		return w.pieces(b)
	}
	_, err := w.client.Write(b)
	return err == nil
}

func (w *wirePair) pieces(b []byte) bool {
	for i := 1; len(b) > 0; i++ {
		n := min(len(b), 1+i*5%13)
		if _, err := w.client.Write(b[:n]); err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}
