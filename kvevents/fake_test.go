package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/telemetry"
)

// peer is the other end of one connection of a fake: it greets as a kind, then reads messages and writes what it is
// told to, for as long as the connection lives.
type peer struct {
	conn net.Conn
	out  chan []byte
	in   func(p *peer, m *Message)
	wg   sync.WaitGroup
	pong bool // PINGs are answered
}

func newPeer(conn net.Conn, kind string, minor byte, in func(*peer, *Message)) *peer {
	return startPeer(conn, kind, minor, true, in)
}

func startPeer(conn net.Conn, kind string, minor byte, pong bool, in func(*peer, *Message)) *peer {
	p := &peer{conn: conn, out: make(chan []byte, 1<<16), in: in, pong: pong}
	p.wg.Go(func() { p.serve(kind, minor) })
	return p
}

func (p *peer) serve(kind string, minor byte) {
	defer p.conn.Close()
	var g [greetingSize]byte
	r := NewReader(p.conn, 0)
	for i := range g {
		b, err := r.r.ReadByte()
		if err != nil {
			return
		}
		g[i] = b
	}
	hello := appendGreeting(nil)
	hello[11] = minor
	hello = appendCommand(hello, commandReady, appendProperty(nil, propertyType, kind))
	if _, err := p.conn.Write(hello); err != nil {
		return
	}
	done := make(chan struct{})
	p.wg.Go(func() {
		defer p.conn.Close()
		for {
			select {
			case b := <-p.out:
				if _, err := p.conn.Write(b); err != nil {
					return
				}
			case <-done:
				return
			}
		}
	})
	defer close(done)
	var m Message
	for r.Next(&m) == nil {
		if m.Command {
			if name, data, _ := splitCommand(m.Frames[0]); name == commandPing && p.pong {
				p.out <- appendCommand(nil, commandPong, data[2:])
			}
		}
		p.in(p, &m)
	}
}

func (p *peer) close() {
	p.conn.Close()
	p.wg.Wait()
}

// fakeEngine publishes as vLLM does, over net.Pipe, so that its time is the test's.
type fakeEngine struct {
	mu     sync.Mutex
	topic  string
	ring   [][]byte // of the present process
	first  uint64   // sequence of ring[0]
	next   uint64
	refuse bool // connections
	mute   bool // the replay does not answer
	old    bool // replay framing without the topic, before vLLM 0.26
	hwm    int  // the ROUTER drops what is beyond so many messages of one answer; 0: nothing
	endToo bool // and with it the end marker
	room   bool // it has room again when the newest batch comes
	// answers, if set, is another engine that the replay endpoint belongs to.
	answers *fakeEngine
	subs    []*peer
	routers []*peer
	asked   []uint64
	dials   int
	topics  []string // subscriptions that came
}

const (
	pubAddress    = "engine:5557"
	routerAddress = "engine:5558"
)

// dial is the DialFunc that leads to this engine.
func (f *fakeEngine) dial(_ context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if address == pubAddress {
		f.dials++
	}
	if f.refuse {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	switch address {
	case pubAddress:
		f.subs = append(f.subs, newPeer(theirs, "PUB", 1, f.subscribed))
	case routerAddress:
		owner := f
		if f.answers != nil {
			owner = f.answers
		}
		f.routers = append(f.routers, newPeer(theirs, "ROUTER", 1, owner.replay))
	default:
		return nil, errors.New("no such host")
	}
	return ours, nil
}

func (f *fakeEngine) subscribed(_ *peer, m *Message) {
	if name, data, err := splitCommand(m.Frames[0]); m.Command && err == nil && name == "SUBSCRIBE" {
		f.mu.Lock()
		f.topics = append(f.topics, string(data))
		f.mu.Unlock()
	}
}

func (f *fakeEngine) replay(p *peer, m *Message) {
	if m.Command || len(m.Frames) != 2 || len(m.Frames[0]) != 0 || len(m.Frames[1]) != 8 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	start := binary.BigEndian.Uint64(m.Frames[1])
	f.asked = append(f.asked, start)
	if f.mute || len(f.asked) > 1000 { // a repair without end shall fail its test, and not hang it
		return
	}
	frames := func(seq uint64, payload []byte) [][]byte {
		number := binary.BigEndian.AppendUint64(nil, seq)
		if f.old {
			return [][]byte{nil, number, payload}
		}
		topic := []byte(f.topic)
		if seq == endMarker {
			topic = nil
		}
		return [][]byte{nil, topic, number, payload}
	}
	sent := 0
	for i, payload := range f.ring {
		if seq := f.first + uint64(i); seq >= start {
			if sent++; f.hwm > 0 && sent > f.hwm && (!f.room || i < len(f.ring)-1) {
				continue
			}
			p.out <- appendMessage(nil, frames(seq, payload)...)
		}
	}
	if f.hwm == 0 || sent <= f.hwm || !f.endToo {
		p.out <- appendMessage(nil, frames(endMarker, nil)...)
	}
}

// make puts a batch into the ring and sends it unless lost.
func (f *fakeEngine) make(payload []byte, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := appendMessage(nil, []byte(f.topic), binary.BigEndian.AppendUint64(nil, f.next), payload)
	f.next++
	f.ring = append(f.ring, payload)
	if lost {
		return
	}
	for _, p := range f.subs {
		select {
		case p.out <- b:
		default: // high-water mark
		}
	}
}

func (f *fakeEngine) publish(payload []byte) { f.make(payload, false) }
func (f *fakeEngine) lose(payload []byte)    { f.make(payload, true) }

// trim leaves the newest n batches in the ring.
func (f *fakeEngine) trim(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cut := len(f.ring) - n
	f.ring, f.first = f.ring[cut:], f.first+uint64(cut)
}

// hangUp ends all connections.
func (f *fakeEngine) hangUp() {
	f.mu.Lock()
	all := append(f.subs, f.routers...)
	f.subs, f.routers = nil, nil
	f.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}

// restart is another process with its sequence from 0.
func (f *fakeEngine) restart() {
	f.mu.Lock()
	f.ring, f.first, f.next = nil, 0, 0
	f.mu.Unlock()
	f.hangUp()
}

func (f *fakeEngine) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// running is a feed that follows a fake engine.
type running struct {
	*Feed
	t      *testing.T
	engine *fakeEngine
	store  *book
}

// follow runs a feed on a fake engine until the test ends.
func follow(t *testing.T, e *fakeEngine, change func(*Options)) *running {
	t.Helper()
	b := newBook()
	o := Options{Name: "a", Residency: b, Dial: e.dial,
		Events: Endpoint{Network: "tcp", Address: pubAddress}, Replay: Endpoint{Network: "tcp", Address: routerAddress}}
	if change != nil {
		change(&o)
	}
	r := &running{Feed: New(o), t: t, engine: e, store: b}
	r.is(telemetry.TrustBlind, "not connected yet")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		e.hangUp()
	})
	return r
}

// is demands a trust whose reason has the words.
func (r *running) is(want telemetry.Trust, words string) {
	r.t.Helper()
	trust, reason, since := r.Trust()
	if trust != want || !strings.Contains(reason, words) {
		r.t.Errorf("trust is %s: %q; want %s: %q", trust, reason, want, words)
	}
	if since.After(time.Now()) || since.IsZero() {
		r.t.Errorf("since %v", since)
	}
}

// holds demands that exactly these hashes are resident.
func (r *running) holds(hashes ...uint64) {
	r.t.Helper()
	if err := r.store.equal(hashes); err != "" {
		r.t.Error(err)
	}
}
