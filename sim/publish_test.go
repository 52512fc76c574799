package sim

import (
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

// A full queue refuses the newest batch, and its number stays missing in the ring too: a client can see the loss.
func TestPublishQueueFull(t *testing.T) {
	t.Parallel()
	p, err := newTunedPublisher(kvPublisherOptions{endpoint: "tcp://127.0.0.1:0"}, kvTuning{queue: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer p.shut(true)
	for i := range 5 {
		p.publish(removal(i))
	}
	p.pump()
	p.publish(removal(5))
	p.pump()
	var got []uint64
	for _, b := range p.since(0) {
		got = append(got, b.seq)
	}
	if len(got) != 4 || got[2] != 2 || got[3] != 5 || p.dropped != 2 || p.sequence() != 6 {
		t.Errorf("ring %v, %d dropped, next %d", got, p.dropped, p.sequence())
	}
}

func TestPublishRing(t *testing.T) {
	t.Parallel()
	p, err := newTunedPublisher(kvPublisherOptions{endpoint: "tcp://127.0.0.1:0", ring: 7}, kvTuning{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.shut(true)
	for i := range 30 {
		p.publish(removal(i))
		if i%3 == 0 {
			p.pump()
		}
		n := uint64(i - i%3 + 1) // moved into the ring so far
		for start := range uint64(40) {
			want := max(start, max(n, 7)-7)
			got := p.since(start)
			if len(got) != int(max(n, want)-want) || len(got) > 0 && (got[0].seq != want || got[len(got)-1].seq != n-1) {
				t.Fatalf("%d published, since(%d) is %d batches, want from %d", i+1, start, len(got), want)
			}
		}
	}
	p.reset()
	if p.sequence() != 0 || len(p.since(0)) != 0 {
		t.Error("something is left after a reset")
	}
	p.publish(removal(0))
	p.reset() // also of what was not yet sent
	p.pump()
	if len(p.since(0)) != 0 {
		t.Error("a batch from before the reset came through")
	}
}

// The batch says when it was made, in seconds with a fraction, and the rank.
func TestPublishEnvelope(t *testing.T) {
	t.Parallel()
	for _, array := range []bool{false, true} {
		now := time.Unix(1796012490, 790_000_000)
		p, err := newTunedPublisher(kvPublisherOptions{endpoint: "tcp://127.0.0.1:0", rank: 2, array: array}, kvTuning{now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer p.shut(true)
		p.publish([]kvEvent{full()})
		p.pump()
		payload := p.since(0)[0].payload
		ts, events, rank, err := batchOf(payload)
		if err != nil || math.Abs(ts-1796012490.79) > 1e-6 || rank != 2 || len(events) != 1 {
			t.Errorf("ts %v, rank %d, %d events, %v", ts, rank, len(events), err)
		}
		v, _, _ := mpDecode(payload)
		if _, isArray := v.([]any)[1].([]any)[0].([]any); isArray != array {
			t.Errorf("array %v, got %v", array, isArray)
		}
	}
}

func TestPublisherOptionsRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, o := range []kvPublisherOptions{
		{},
		{endpoint: "tcp://127.0.0.1"},
		{endpoint: ">inproc://x"},
		{endpoint: "tcp://127.0.0.1:0", frames: 5},
		{endpoint: "tcp://127.0.0.1:0", replay: "nowhere"},
		{endpoint: "tcp://" + taken.Addr().String()},
		{endpoint: "tcp://127.0.0.1:0", replay: "tcp://" + taken.Addr().String()},
	} {
		if p, err := newKVPublisher(o); err == nil {
			t.Errorf("%+v is accepted", o)
			p.suspend()
		} else if !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A port that is taken while the engine is away keeps it from coming back, and resume can be tried again.
func TestPublisherResumesLater(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	live, replay := p.endpoints()
	p.suspend()
	other, err := net.Listen("tcp", strings.TrimPrefix(replay, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.resume(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("resume: %v", err)
	}
	other.Close()
	if err := p.resume(); err != nil {
		t.Fatal(err)
	}
	if err := p.resume(); err != nil { // of what runs: nothing to do
		t.Error(err)
	}
	peer := dialRaw(t, live)
	peer.greet("SUB")
	peer.send(appendCommand(nil, "SUBSCRIBE", nil))
	audience(t, p, 1)
}
