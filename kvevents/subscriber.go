package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// DialFunc connects to an address; *net.Dialer's DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ListenFunc listens on an address; *net.ListenConfig's Listen is one.
type ListenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// subscriber keeps one subscription alive: it connects, or listens for an engine that connects out, for as long as its
// context lives.
type subscriber struct {
	endpoint   Endpoint
	topic      string
	timing     Timing
	maxMessage int
	dial       DialFunc
	listen     ListenFunc
	q          *queue
	// state is called at once when the connection comes or goes, ahead of the messages that still wait in the queue.
	state func(up bool, err error)
	// refused is told of a peer of our listener that does not fit, while another may be well.
	refused func(err error)

	dials  func() // counts connections tried or accepted
	jitter func() float64
}

// run works until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	wait := backoff{timing: s.timing, jitter: s.jitter}
	for ctx.Err() == nil {
		began := time.Now()
		messages, err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if messages > 0 || time.Since(began) > s.timing.Silence {
			wait.reset()
		}
		s.state(false, err)
		if !sleep(ctx, wait.next()) {
			return
		}
	}
}

// session is one connection from dialling to its end, or one listener's life.
func (s *subscriber) session(ctx context.Context) (messages int, err error) {
	if s.endpoint.Bind {
		return s.serve(ctx)
	}
	s.dials()
	dctx, cancel := context.WithTimeout(ctx, s.timing.Dial)
	conn, err := s.dial(dctx, s.endpoint.Network, s.endpoint.Address)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("cannot connect to %s: %w", s.endpoint, err)
	}
	l, err := s.open(ctx, conn)
	if err != nil {
		return 0, fmt.Errorf("cannot subscribe at %s: %w", s.endpoint, err)
	}
	return s.receive(ctx, l)
}

func (s *subscriber) open(ctx context.Context, conn net.Conn) (*link, error) {
	return open(ctx, conn, Sub, s.timing, s.maxMessage, func(minor byte) []byte {
		return appendSubscribe(nil, s.topic, minor)
	})
}

// receive hands on every message until the connection ends.
func (s *subscriber) receive(ctx context.Context, l *link) (messages int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	defer l.close()
	s.state(true, nil)
	s.q.push(ctx, item{kind: itemUp})
	for {
		m := s.q.message()
		if err = l.next(m); err != nil {
			s.q.recycle(m)
			break
		}
		messages++
		if !s.q.push(ctx, item{kind: itemMessage, m: m}) {
			return messages, ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the engine closed the connection")
	}
	err = fmt.Errorf("events from %s ended: %w", s.endpoint, err)
	// Before the queue's order: whoever asks for trust must not wait for a backlog.
	s.state(false, err)
	s.q.push(ctx, item{kind: itemDown, err: err})
	return messages, err
}

// serve listens for an engine that connects out. The newest connection that greets properly wins: after a crash the old
// one may look alive for a while, and an engine has only one publisher.
func (s *subscriber) serve(ctx context.Context) (messages int, err error) {
	ln, err := s.listen(ctx, s.endpoint.Network, s.endpoint.Address)
	if err != nil {
		return 0, fmt.Errorf("cannot listen on %s: %w", s.endpoint, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	links := make(chan *link)
	accepted := make(chan error, 1)
	go func() { accepted <- s.accept(ctx, ln, links) }()
	defer func() {
		cancel()
		//nolint:errcheck // the listener was closed on purpose
		<-accepted
	}()
	ends := make(chan int, 1)
	var current *link
	over := func() {
		if current != nil {
			_ = current.conn.Close()
			messages += <-ends
			current = nil
		}
	}
	for {
		select {
		case <-ctx.Done():
			over()
			return messages, ctx.Err()
		case err := <-accepted:
			accepted <- err
			over()
			return messages, fmt.Errorf("cannot accept on %s: %w", s.endpoint, err)
		case n := <-ends:
			messages += n
			current = nil
		case l := <-links:
			over()
			current = l
			go func() {
				n, _ := s.receive(ctx, l)
				ends <- n
			}()
		}
	}
}

// accept greets one connection after the other; a peer that connects and says nothing holds the next up for no longer
// than the handshake's limit.
func (s *subscriber) accept(ctx context.Context, ln net.Listener, links chan<- *link) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		s.dials()
		l, err := s.open(ctx, conn)
		if ctx.Err() != nil {
			if err == nil {
				l.close()
			}
			return ctx.Err() // what ended the handshake is our own end
		}
		if err != nil {
			s.refused(fmt.Errorf("cannot subscribe at a peer of %s: %w", s.endpoint, err))
			continue
		}
		select {
		case links <- l:
		case <-ctx.Done():
			l.close()
			return ctx.Err()
		}
	}
}

// backoff is the exponential wait between two tries, between half and the whole of its step so that many routers do not
// dial a returning engine in one moment.
type backoff struct {
	timing Timing
	jitter func() float64 // [0, 1)
	step   time.Duration
}

func (b *backoff) reset() { b.step = 0 }

func (b *backoff) next() time.Duration {
	if b.step == 0 {
		b.step = b.timing.BackoffMin
	} else {
		b.step = min(2*b.step, b.timing.BackoffMax)
	}
	f := b.jitter
	if f == nil {
		f = rand.Float64
	}
	return b.step/2 + time.Duration(f()*float64(b.step/2))
}

// sleep waits and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
