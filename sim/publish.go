package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// Defaults of vLLM's KVEventsConfig (config/kv_events.py) and, for answers to replay requests, of libzmq's ROUTER.
const (
	kvRing      = 10_000  // buffer_steps
	kvHWM       = 100_000 // hwm
	kvQueue     = 100_000 // max_queue_size
	kvReplayHWM = 1_000   // ZMQ_SNDHWM; vLLM 0.33 raises it to 2 x (buffer_steps + 1)
)

// kvReplayPatience is how long one replay answer waits in all for room in its peer's queue; then what does not fit is
// dropped, the end marker too, as by a ROUTER whose peer reads slower than vLLM's thread sends. vLLM's loop in Python
// takes some 10 us a batch and so gives libzmq's I/O thread time that this encoder would not.
const kvReplayPatience = time.Second

// kvTuning are the settings that only tests change. Zero means the default.
type kvTuning struct {
	form      kvForm
	hwm       int
	queue     int
	replayHWM int
	patience  time.Duration
	now       func() time.Time
}

// kvPubSub is vLLM's ZmqEventPublisher: a kvPublisher.
//
// The engine step encodes its batch, gives it a number and queues it; one goroutine, run, moves what is queued to the
// replay ring and to the subscribers. Nothing ever waits for a peer: a full queue refuses the newest batch, whose number
// stays missing (vLLM's own queue makes the engine wait instead; its sockets drop the newest too), and a subscriber
// whose queue is full misses it. Replay is served by the goroutine that reads from the peer that asked.
type kvPubSub struct {
	o     kvPublisherOptions
	t     kvTuning
	frame []byte        // the topic's frame; never changes
	wake  chan struct{} // holds a token while something is queued

	life   sync.Mutex // guards what follows; taken before sending and before mu
	closed bool
	router *routerSocket // nil without replay and while suspended
	live   string        // bound endpoints, the same after a resume
	replay string

	sending sync.Mutex // held while batches go from the queue to the sockets; taken before mu
	pub     *pubSocket // nil while suspended; guarded by sending

	mu      sync.Mutex // guards what follows
	next    uint64     // number of the next batch
	queue   []kvBatch
	spare   []kvBatch // the queue's other half, so that neither is made anew for every burst
	ring    []kvBatch // the last batches; ring[oldest] is the oldest once it is full
	oldest  int
	dropped uint64 // batches refused by the full queue
	scratch []byte
}

// kvBatch is one message: its number, its frames and what a fault does to it.
type kvBatch struct {
	seq  uint64
	fate kvFate
	zmtpMessage
}

// newKVPublisher binds the sockets of o. An endpoint that starts with ">" is connected to instead, as vLLM does with
// one that has no `*`: the subscriber listens.
func newKVPublisher(o kvPublisherOptions) (kvPublisher, error) {
	p, err := newTunedPublisher(o, kvTuning{})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// newTunedPublisher is newKVPublisher with the settings of tests.
func newTunedPublisher(o kvPublisherOptions, t kvTuning) (*kvPubSub, error) {
	if o.frames == 0 {
		o.frames = 4
	}
	if o.frames != 3 && o.frames != 4 {
		return nil, errors.New("cannot answer replay requests in frames other than 3 or 4")
	}
	if o.ring == 0 {
		o.ring = kvRing
	}
	if o.array && t.form.layout == kvMaps {
		t.form.layout = kvArrays
	}
	for _, d := range []struct {
		v   *int
		def int
	}{{&t.hwm, kvHWM}, {&t.queue, kvQueue}, {&t.replayHWM, kvReplayHWM}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if t.patience == 0 {
		t.patience = kvReplayPatience
	}
	if t.now == nil {
		t.now = time.Now
	}
	p := &kvPubSub{
		o: o, t: t, frame: appendFrame(nil, zmtpMore, []byte(o.topic)), wake: make(chan struct{}, 1),
		live: o.endpoint, replay: o.replay,
	}
	if err := p.resume(); err != nil {
		return nil, err
	}
	return p, nil
}

// publish implements kvSink.
func (p *kvPubSub) publish(events []kvEvent) {
	fate := kvSend
	if p.o.fate != nil {
		fate = p.o.fate()
	}
	ts := float64(p.t.now().UnixNano()) / 1e9
	p.mu.Lock()
	seq := p.next
	p.next++
	if len(p.queue) >= p.t.queue {
		p.dropped++
		p.mu.Unlock()
		return
	}
	p.scratch = p.t.form.appendBatch(p.scratch[:0], ts, events, p.o.rank)
	p.queue = append(p.queue, kvBatch{seq, fate, p.message(seq, p.scratch)})
	p.mu.Unlock()
	notify(p.wake)
}

// message makes the three frames of a batch in one piece of memory; payload is copied.
func (p *kvPubSub) message(seq uint64, payload []byte) zmtpMessage {
	const heads = 2 + 8 + 1 + 8 // of the number's frame, with the number, and of the payload's
	b := make([]byte, 0, len(p.frame)+heads+len(payload))
	b = append(b, p.frame...)
	b = appendSequence(b, seq)
	b = appendFrameHead(b, 0, len(payload))
	n := len(b)
	b = append(b, payload...)
	return zmtpMessage{b[:n:n], b[n:]}
}

// appendSequence appends the frame of a number, which another follows.
func appendSequence(dst []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, zmtpMore, 8), seq)
}

// reset implements kvSink.
func (p *kvPubSub) reset() {
	p.sending.Lock() // nothing of before goes out after
	defer p.sending.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.queue, p.ring, p.oldest = 0, nil, nil, 0
}

// run implements kvPublisher.
func (p *kvPubSub) run(ctx context.Context) {
	for {
		select {
		case <-p.wake:
			p.pump()
		case <-ctx.Done():
			p.shut(true)
			return
		}
	}
}

// pump moves what is queued into the ring and to the subscribers.
func (p *kvPubSub) pump() {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.mu.Lock()
	batches := p.queue
	p.queue, p.spare = p.spare[:0], nil
	for _, b := range batches {
		p.keep(b)
	}
	p.mu.Unlock()
	for _, b := range batches {
		if b.fate == kvSend && p.pub != nil {
			p.pub.send(p.o.topic, b.zmtpMessage)
		}
	}
	clear(batches)
	p.mu.Lock()
	if cap(batches) <= 1024 {
		p.spare = batches[:0]
	}
	p.mu.Unlock()
}

// keep puts b into the ring, in place of the oldest if it is full. The caller holds mu.
func (p *kvPubSub) keep(b kvBatch) {
	if len(p.ring) < p.o.ring {
		p.ring = append(p.ring, b)
		return
	}
	p.ring[p.oldest] = b
	p.oldest = (p.oldest + 1) % len(p.ring)
}

// since returns the batches of the ring from number start on, oldest first.
func (p *kvPubSub) since(start uint64) []kvBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []kvBatch
	for i := range p.ring {
		if b := p.ring[(p.oldest+i)%len(p.ring)]; b.seq >= start {
			out = append(out, b)
		}
	}
	return out
}

// endpoints implements kvPublisher.
func (p *kvPubSub) endpoints() (live, replay string) {
	p.life.Lock()
	defer p.life.Unlock()
	return p.live, p.replay
}

// sequence implements kvPublisher.
func (p *kvPubSub) sequence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// suspend implements kvPublisher.
func (p *kvPubSub) suspend() { p.shut(false) }

// shut closes the sockets, for good or until resume, and returns when none of their goroutines is left.
func (p *kvPubSub) shut(forGood bool) {
	p.life.Lock()
	defer p.life.Unlock()
	p.closed = p.closed || forGood
	p.sending.Lock()
	pub := p.pub
	p.pub = nil
	p.sending.Unlock()
	if pub != nil {
		pub.close()
	}
	if p.router != nil {
		p.router.close()
		p.router = nil
	}
}

// resume implements kvPublisher. It fails where the ports were taken meanwhile, and then can be tried again.
func (p *kvPubSub) resume() error {
	p.life.Lock()
	defer p.life.Unlock()
	p.sending.Lock()
	defer p.sending.Unlock()
	if p.closed {
		return errors.New("cannot open a publisher that was closed")
	}
	if p.pub != nil {
		return nil
	}
	pub := newPubSocket(p.t.hwm)
	live, err := pub.open(p.live)
	if err != nil {
		return err
	}
	if p.replay != "" {
		router := newRouterSocket(p.t.replayHWM, nil)
		router.handle = func(out *zmtpOutbox, frames [][]byte) { p.answer(router, out, frames) }
		replay, err := router.bind(p.replay)
		if err != nil {
			pub.close()
			return err
		}
		p.router, p.replay = router, replay
	}
	p.pub, p.live = pub, live
	return nil
}
