package kvevents

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/telemetry"
)

// Peers that do not serve are dialled ever more rarely, whatever they do, and one that never greets is given up.
func TestDialsOfAHopelessPeerAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(conn net.Conn)
		most  int // dials in a minute
		least int
	}{
		"accepts and closes": {func(c net.Conn) { c.Close() }, 60, 25},
		"greets and closes": {func(c net.Conn) {
			go io.Copy(io.Discard, c)
			_, _ = c.Write(appendGreeting(nil))
			c.Close()
		}, 60, 25},
		"subscribed, then closes": {func(c net.Conn) {
			go io.Copy(io.Discard, c)
			_, _ = c.Write(appendGreeting(nil))
			_, _ = c.Write(ready("PUB"))
			time.Sleep(10 * time.Millisecond)
			c.Close()
		}, 60, 25},
		"speaks HTTP": {func(c net.Conn) {
			go io.Copy(io.Discard, c)
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}, 60, 25},
		"never greets": {func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}, 20, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{}
				dial := func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go c.serve(theirs)
					return ours, nil
				}
				r := follow(t, e, func(o *Options) { o.Dial = dial; o.Replay = Endpoint{} })
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := int(r.Stats().Dials); n > c.most || n < c.least {
					t.Errorf("%d dials in a minute", n)
				}
				if trust, reason, _ := r.Trust(); trust == exact || reason == "" {
					t.Errorf("trust %s: %q", trust, reason)
				}
			})
		})
	}
}

func TestBackoffDoublesAndStartsAnew(t *testing.T) {
	t.Parallel()
	for jitter, want := range map[float64][]time.Duration{
		0: {25, 50, 100, 200, 400, 800, 1000, 1000}, 0.999999999: {50, 100, 200, 400, 800, 1600, 2000, 2000},
	} {
		b := backoff{timing: Timing{}.withDefaults(), jitter: func() float64 { return jitter }}
		for range 2 {
			for i, w := range want {
				if got := b.next().Round(time.Millisecond); got != w*time.Millisecond {
					t.Errorf("jitter %v, try %d: %s, want %dms", jitter, i, got, w)
				}
			}
			b.reset()
		}
	}
}

// A peer of ZMTP 3.0 gets its subscription as a message and no PING, and silence is nothing to it.
func TestPeerOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		var commands, subscriptions atomic.Int64
		var it atomic.Pointer[peer]
		dial := func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			it.Store(newPeer(theirs, "PUB", 0, func(_ *peer, m *Message) {
				switch name, _, _ := splitCommand(m.Frames[0]); {
				case m.Command && name != commandReady:
					commands.Add(1)
				case !m.Command && string(m.Frames[0]) == "\x01kv":
					subscriptions.Add(1)
				}
			}))
			return ours, nil
		}
		r := follow(t, &fakeEngine{}, func(o *Options) { o.Dial = dial; o.Replay = Endpoint{}; o.Topic = "kv" })
		time.Sleep(10 * time.Minute)
		it.Load().out <- appendMessage(nil, []byte("kv"), make([]byte, 8), stored(1))
		pass()
		r.is(exact, "")
		if commands.Load() != 0 || subscriptions.Load() != 1 || r.Stats().Dials != 1 {
			t.Errorf("%d commands, %d subscriptions, %+v", commands.Load(), subscriptions.Load(), r.Stats())
		}
		it.Load().close()
	})
}

// A peer that answers no PING is gone, and one that answers is there, however silent.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"answered": true, "unanswered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				var all []*peer
				dial := func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					all = append(all, startPeer(theirs, "PUB", 1, answers, func(*peer, *Message) {}))
					return ours, nil
				}
				r := follow(t, &fakeEngine{}, func(o *Options) { o.Dial = dial; o.Replay = Endpoint{} })
				time.Sleep(14 * time.Second)
				synctest.Wait()
				if s := r.Stats(); s.Dials != 1 || !s.Connected {
					t.Errorf("after 14 s: %+v", s)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if s := r.Stats(); answers != (s.Dials == 1) {
					t.Errorf("after 16 s: %+v", s)
				}
				for _, p := range all {
					p.close()
				}
			})
		})
	}
}

// A full queue holds the reader up and loses nothing, and a feed that ends does not wait for its writer.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		q := newQueue(10, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		pushed, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			for i := range 200 {
				m := messageOf("", uint64(i), make([]byte, 100))
				if !q.push(ctx, item{kind: itemMessage, m: m}) {
					return
				}
				pushed++
			}
		}()
		synctest.Wait()
		if pushed != 10 || q.len() != 10 || q.bytes > 1000+108 {
			t.Errorf("%d pushed, %d wait, %d bytes", pushed, q.len(), q.bytes)
		}
		// A change of state finds room behind what is there.
		if !q.push(ctx, item{kind: itemDown, err: errors.New("x")}) {
			t.Error("a change of state was not taken")
		}
		downs := 0
		for i := range 100 {
			it, ok := q.pop()
			if it.kind == itemDown {
				downs++
				it, ok = q.pop()
			}
			seq, _, err := sequenced(it.m)
			if !ok || err != nil || seq != uint64(i) {
				t.Fatalf("%d: %v %d %v", i, ok, seq, err)
			}
			q.recycle(it.m)
			synctest.Wait()
		}
		if len(q.items) > 64 || len(q.free) > maxFree || downs != 1 {
			t.Errorf("%d items, %d free, %d downs", len(q.items), len(q.free), downs)
		}
		cancel()
		<-done
		if pushed != 110 {
			t.Errorf("%d pushed", pushed)
		}
	})
}

// While a replay runs no more is held than may be; the rest stays with the engine, and what it drops is replayed.
func TestFeedHoldsABoundedAmount(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, func(o *Options) { o.Limits.HeldMessages = 100; o.Limits.ReplayTries = 50 })
		pass()
		e.publish(stored(0))
		e.set(func() { e.mute = true })
		e.lose(stored(1))
		for h := uint64(2); h < 30_000; h++ {
			e.publish(stored(h))
		}
		pass()
		r.is(degraded, "being repaired")
		if n := r.live.len(); n > 4096 || r.Received() > 102 {
			t.Errorf("%d wait, %d taken", n, r.Received())
		}
		e.set(func() { e.mute = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		r.is(exact, "")
		r.holds(upTo(30_000)...)
	})
}

// pipes is a listener whose connections the test makes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial is a peer's end of a new connection.
func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- ours
	return theirs
}

// Whoever reaches the port that engines connect to can be refused as often as it likes, and an end of our own is no
// peer's fault.
func TestRefusedPeersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		var out bytes.Buffer
		w := telemetry.NewLogWriter(&out)
		ln := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		f := New(Options{Name: "a", Residency: newBook(), Log: telemetry.NewLog(w, telemetry.LevelWarn, telemetry.FormatJSON),
			Events: Endpoint{Network: "tcp", Address: ":5557", Bind: true},
			Listen: func(context.Context, string, string) (net.Listener, error) { return ln, nil }})
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		for range 500 {
			_ = ln.dial().Close()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		silent := ln.dial() // and still greeting when the feed ends
		go func() { _, _ = io.Copy(io.Discard, silent) }()
		synctest.Wait()
		cancel()
		<-done
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_ = silent.Close()
		lines := strings.Count(out.String(), "a peer was refused")
		if lines != 2 || !strings.Contains(out.String(), `"repeated":499`) || strings.Contains(out.String(), "context canceled") {
			t.Errorf("%d lines: %.2000s", lines, out.String())
		}
	})
}
