package benchmarks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// engineIdle is how long the fake engine keeps an idle connection: uvicorn, vLLM's HTTP server, closes after 5 s.
const engineIdle = 5 * time.Second

// grid is the resolution of the pace. Streams that are due in the same millisecond are written in one wake-up, as a
// batch of vLLM's is.
const grid = int64(time.Millisecond)

// Engine is a fake vLLM on raw TCP. It sends the head at once and as a write of its own, then every token as one
// server-sent event in one chunk in one write, at absolute times, so that a slow reader does not shift the pace.
// Safe for concurrent use.
type Engine struct {
	clock    clock
	listener *net.TCPListener
	open     sync.WaitGroup

	requests, tokens, inFlight, aborted atomic.Int64

	mu    sync.Mutex // guards conns, closed
	conns map[*net.TCPConn]struct{}
	done  bool

	closing chan struct{} // closed by Close: streams stop waiting
}

// NewEngine listens on address ("127.0.0.1:0" picks a port) and serves until Close.
func NewEngine(address string) (*Engine, error) {
	clk, err := newClock()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the fake engine: %w", err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.New("cannot serve the fake engine: not a TCP listener")
	}
	e := &Engine{clock: clk, listener: tcp, conns: make(map[*net.TCPConn]struct{}), closing: make(chan struct{})}
	e.open.Add(1)
	go e.accept()
	return e, nil
}

// Addr returns HOST:PORT.
func (e *Engine) Addr() string { return e.listener.Addr().String() }

// Close stops accepting, cuts every connection and waits for their goroutines. It is called once.
func (e *Engine) Close() {
	e.mu.Lock()
	e.done = true
	close(e.closing)
	for c := range e.conns {
		_ = c.Close() // the goroutine that owns it sees the error
	}
	e.mu.Unlock()
	_ = e.listener.Close()
	e.open.Wait()
}

// EngineCounts is what an engine has done since its start; the fields are those of its /metrics.
type EngineCounts struct {
	Requests, Tokens, InFlight, Aborted int64
}

// Counts returns the counters.
func (e *Engine) Counts() EngineCounts {
	return EngineCounts{e.requests.Load(), e.tokens.Load(), e.inFlight.Load(), e.aborted.Load()}
}

func (e *Engine) accept() {
	defer e.open.Done()
	for {
		c, err := e.listener.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: the pending connection stays in the backlog
			continue
		}
		e.mu.Lock()
		if e.done {
			e.mu.Unlock()
			_ = c.Close()
			continue
		}
		e.conns[c] = struct{}{}
		e.open.Add(1)
		e.mu.Unlock()
		go e.serve(c)
	}
}

func (e *Engine) serve(c *net.TCPConn) {
	defer e.open.Done()
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	_ = c.SetNoDelay(true)
	s := session{engine: e, conn: c, in: make([]byte, 0, 2048)}
	for {
		req, err := s.next()
		if err != nil || s.answer(req) != nil || req.closing {
			return
		}
	}
}

// session is one connection of the fake engine, owned by its goroutine.
type session struct {
	engine *Engine
	conn   *net.TCPConn
	in     []byte // bytes read and not yet used
	out    []byte
	event  []byte
	timer  *time.Timer
}

// next reads one request: a head of any length that fits memory and a body framed by Content-Length.
func (s *session) next() (engineRequest, error) {
	if len(s.in) == 0 {
		if err := s.conn.SetReadDeadline(time.Now().Add(engineIdle)); err != nil {
			return engineRequest{}, err
		}
	}
	for {
		req, used, err := parseEngineRequest(s.in)
		if err != nil {
			return req, err
		}
		if used > 0 {
			req.received = s.engine.clock.now()
			s.in = s.in[:copy(s.in, s.in[used:])]
			return req, nil
		}
		if len(s.in) == cap(s.in) {
			grown := make([]byte, len(s.in), 2*cap(s.in))
			copy(grown, s.in)
			s.in = grown
		}
		n, err := s.conn.Read(s.in[len(s.in):cap(s.in)])
		s.in = s.in[:len(s.in)+n]
		if err != nil && n == 0 {
			return engineRequest{}, err
		}
	}
}

func (s *session) answer(req engineRequest) error {
	// Routers ask for more than answers, for instance to have a prompt rendered: an engine without that says 404 at once.
	if req.method != "POST" || req.path != chatPath {
		return s.get(req.path)
	}
	e := s.engine
	e.requests.Add(1)
	e.inFlight.Add(1)
	defer e.inFlight.Add(-1)
	var err error
	if req.ask.Stream {
		err = s.stream(req.ask, req.received)
	} else {
		err = s.short(req.ask)
	}
	if err != nil {
		e.aborted.Add(1)
	}
	return err
}

// streamHead is what vLLM 0.32 behind uvicorn sends before it queues the request.
const streamHead = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n" +
	"transfer-encoding: chunked\r\n\r\n"

func (s *session) stream(ask Ask, received int64) error {
	if _, err := io.WriteString(s.conn, streamHead); err != nil {
		return err
	}
	first, pace := int64(ask.FirstMicros)*1000, int64(ask.PaceMicros)*1000
	for i := range ask.Tokens {
		s.waitUntil(received, first+int64(i)*pace)
		s.event = ask.appendEvent(s.event[:0], i, s.engine.clock.now(), received)
		if err := s.chunk(s.event); err != nil {
			return err
		}
		s.engine.tokens.Add(1)
	}
	s.event = ask.appendUsage(s.event[:0])
	if err := s.chunk(s.event); err != nil {
		return err
	}
	if err := s.chunk([]byte(doneEvent)); err != nil {
		return err
	}
	_, err := io.WriteString(s.conn, "0\r\n\r\n")
	return err
}

// waitUntil sleeps until after nanoseconds behind start, rounded up to the grid; with after 0 it does not sleep at all.
func (s *session) waitUntil(start, after int64) {
	if after == 0 {
		return
	}
	due := (start + after + grid - 1) / grid * grid
	s.sleep(time.Duration(due - s.engine.clock.now()))
}

// sleep waits for d or for Close, whichever comes first.
func (s *session) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	select {
	case <-s.timer.C:
	case <-s.engine.closing:
	}
}

// chunk writes one chunk of chunked framing in one write.
func (s *session) chunk(payload []byte) error {
	s.out = strconv.AppendInt(s.out[:0], int64(len(payload)), 16)
	s.out = append(s.out, '\r', '\n')
	s.out = append(s.out, payload...)
	s.out = append(s.out, '\r', '\n')
	_, err := s.conn.Write(s.out)
	return err
}

func (s *session) short(ask Ask) error {
	s.sleep(time.Duration(ask.FirstMicros) * time.Microsecond)
	s.event = ask.appendShort(s.event[:0])
	s.engine.tokens.Add(int64(ask.Tokens))
	return s.plain(200, "application/json", s.event)
}
