package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// seqBytes is a number as a replay request has it.
func seqBytes(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// newTestPublisher runs a publisher on a free port until the test ends.
func newTestPublisher(t *testing.T, o kvPublisherOptions, tune kvTuning) *kvPubSub {
	t.Helper()
	if o.endpoint == "" {
		o.endpoint = "tcp://127.0.0.1:0"
	}
	p, err := newTunedPublisher(o, tune)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { p.run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
	})
	return p
}

// audience waits for n subscribers of the publisher's topic.
func audience(t *testing.T, p *kvPubSub, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d subscribers", n), func() bool {
		p.sending.Lock()
		defer p.sending.Unlock()
		return p.pub != nil && p.pub.audience(p.o.topic) == n
	})
}

// removal is one small event that can be told from others.
func removal(n int) []kvEvent {
	return []kvEvent{{kind: kvRemoved, hashes: []blockHash{{num: uint64(n)}}}}
}

// payloads returns the payloads in the ring, by number, once n are there.
func payloads(t *testing.T, p *kvPubSub, n int) []string {
	t.Helper()
	await(t, "all batches in the ring", func() bool { return len(p.since(0)) == n })
	var out []string
	for _, b := range p.since(0) {
		out = append(out, hex.EncodeToString(b.payload))
	}
	return out
}

func TestPyzmqReceivesEverythingInOrder(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv"}, kvTuning{})
	live, _ := p.endpoints()
	peers := []*zmqPeer{startZMQ(t, "sub", live), startZMQ(t, "sub", live, "--topic", "kv")}
	audience(t, p, 2)
	const n = 300
	for i := range n {
		p.publish(removal(i))
	}
	want := payloads(t, p, n)
	for _, peer := range peers {
		for i := range n {
			if got := peer.next(); !slices.Equal(got, []string{hexOf("kv"), hexSeq(uint64(i)), want[i]}) {
				t.Fatalf("message %d is %v", i, got)
			}
		}
	}
	if got := p.sequence(); got != n {
		t.Errorf("sequence %d, want %d", got, n)
	}
}

func TestPyzmqTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		topic string
		subs  []string
		want  bool
	}{
		{"kv@10.0.0.1@m", []string{"kv@"}, true},
		{"kv@10.0.0.1@m", []string{"kv@10.0.0.1@m"}, true},
		{"kv@10.0.0.1@m", []string{""}, true},
		{"kv@10.0.0.1@m", []string{"nope", "kv"}, true},
		{"kv@10.0.0.1@m", []string{"kv@10.0.0.1@model"}, false},
		{"kv@10.0.0.1@m", []string{"nope"}, false},
		{"", []string{""}, true},
		{"", []string{"kv"}, false},
	} {
		t.Run(c.topic+" "+strings.Join(c.subs, ","), func(t *testing.T) {
			t.Parallel()
			p := newTestPublisher(t, kvPublisherOptions{topic: c.topic}, kvTuning{})
			live, _ := p.endpoints()
			args := []string{"sub", live}
			for _, s := range c.subs {
				args = append(args, "--topic", s)
			}
			peer := startZMQ(t, args...)
			// Subscriptions of one peer come in order, so those of a second topic prove the connection of one who wants nothing.
			await(t, "the subscriptions", func() bool { return subscriptions(p) == len(c.subs) })
			p.publish(removal(1))
			if !c.want {
				peer.quiet(200 * time.Millisecond)
			} else if got := peer.next(); got[0] != hexOf(c.topic) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// subscriptions counts the topics that peers subscribed to.
func subscriptions(p *kvPubSub) int {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.pub.mu.Lock()
	defer p.pub.mu.Unlock()
	n := 0
	for s := range p.pub.subs {
		s.mu.Lock()
		n += len(s.topics)
		s.mu.Unlock()
	}
	return n
}

func TestPyzmqReplay(t *testing.T) {
	t.Parallel()
	for _, frames := range []int{3, 4} {
		t.Run(strconv.Itoa(frames), func(t *testing.T) {
			t.Parallel()
			p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0", frames: frames, ring: 20}, kvTuning{})
			_, replay := p.endpoints()
			for i := range 25 { // five more than are kept
				p.publish(removal(i))
			}
			await(t, "all batches in the ring", func() bool {
				kept := p.since(0)
				return len(kept) == 20 && kept[19].seq == 24
			})
			kept := p.since(0)
			for _, c := range []struct {
				ask   string
				first uint64 // 25 = nothing
			}{
				{joinAsk("", seqBytes(0)), 5},
				{joinAsk("", seqBytes(7)), 7},
				{joinAsk("", seqBytes(24)), 24},
				{joinAsk("", seqBytes(25)), 25},
				{joinAsk("", seqBytes(1<<20)), 25},
				{"," /* an empty number */, 5},
				{joinAsk("", "\x09"), 9},
				{joinAsk("", "\x01"+seqBytes(0)), 25},
				{joinAsk("ignored", seqBytes(20)), 20},
			} {
				peer := startZMQ(t, "dealer", replay, "--ask", c.ask)
				for seq := c.first; seq < 25; seq++ {
					want := []string{"", hexOf("kv"), hexSeq(seq), hex.EncodeToString(kept[seq-5].payload)}
					if frames == 3 {
						want = slices.Delete(want, 1, 2)
					}
					if got := peer.next(); !slices.Equal(got, want) {
						t.Fatalf("%s: batch %d is %v", c.ask, seq, got)
					}
				}
				end := []string{"", "", "ffffffffffffffff", ""}[4-frames:]
				if got := peer.next(); !slices.Equal(got, end) {
					t.Errorf("%s: the end is %v, want %v", c.ask, got, end)
				}
				peer.kill()
			}
			// What is no request is ignored, and the same peer's next one answered.
			peer := startZMQ(t, "dealer", replay, "--ask", joinAsk(seqBytes(0)), "--ask", joinAsk("", seqBytes(0), ""), "--ask", joinAsk("", seqBytes(99)))
			if got := peer.next(); !slices.Contains(got, "ffffffffffffffff") {
				t.Errorf("got %v, want the end only", got)
			}
			peer.quiet(100 * time.Millisecond)
		})
	}
}

// A REQ takes the first answer and no other, as with vLLM.
func TestPyzmqReplayByREQ(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	for i := range 5 {
		p.publish(removal(i))
	}
	want := payloads(t, p, 5)
	_, replay := p.endpoints()
	peer := startZMQ(t, "req", replay, "--ask", joinAsk(seqBytes(2)))
	if got := peer.next(); !slices.Equal(got, []string{hexOf("kv"), hexSeq(2), want[2]}) {
		t.Errorf("got %v", got)
	}
	peer.quiet(100 * time.Millisecond)
}

// A late subscriber that subscribes, then replays, misses nothing.
func TestPyzmqLateJoin(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	live, replay := p.endpoints()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				p.publish(removal(i))
			}
		}
	})
	await(t, "some batches", func() bool { return p.sequence() > 50 })
	sub := startZMQ(t, "sub", live)
	audience(t, p, 1)
	first := seqOf(t, sub.next()[1])
	dealer := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	next := uint64(0)
	for {
		got := seqOf(t, dealer.next()[2])
		if got == kvReplayEnd {
			break
		}
		if got != next {
			t.Fatalf("replayed %d, want %d", got, next)
		}
		next++
	}
	close(stop)
	busy.Wait()
	if next <= first {
		t.Errorf("the replay ends before %d, and live messages begin at %d", next, first)
	}
	for want := first + 1; want < p.sequence(); want++ {
		if got := seqOf(t, sub.next()[1]); got != want {
			t.Fatalf("live %d, want %d", got, want)
		}
	}
}

// A subscriber that does not read loses whole messages in the middle; it costs the other one nothing.
func TestPyzmqSlowSubscriber(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv"}, kvTuning{hwm: 500})
	live, _ := p.endpoints()
	slow := startZMQ(t, "sub", live, "--hold", "--hwm", "10", "--brief")
	fast := startZMQ(t, "sub", live, "--brief")
	audience(t, p, 2)
	tokens := make([]uint32, 10_000)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	const n, burst = 2000, 200
	var hashes []string
	for i := range n {
		p.publish([]kvEvent{{kind: kvStored, tokenIDs: tokens, blockSize: i}})
		if i%burst < burst-1 {
			continue
		}
		for j := i - burst + 1; j <= i; j++ {
			got := fast.next()
			if seqOf(t, got[1]) != uint64(j) {
				t.Fatalf("the fast one got %v, want %d", got, j)
			}
			hashes = append(hashes, got[2])
		}
	}
	for i, b := range p.since(0) {
		if sum := sha256.Sum256(b.payload); hashes[i] != hex.EncodeToString(sum[:]) {
			t.Fatalf("payload %d is not what was received", i)
		}
	}
	p.sending.Lock()
	drops := p.pub.drops()
	p.sending.Unlock()
	if drops == 0 || drops > n-500 {
		t.Errorf("%d dropped of %d, with room for 500", drops, n)
	}
	slow.resume()
	last, got := -1, 0
	for ; uint64(got) < n-drops; got++ {
		m := slow.next()
		seq := int(seqOf(t, m[1]))
		if seq <= last || m[2] != hashes[seq] {
			t.Fatalf("the slow one got %d after %d", seq, last)
		}
		last = seq
	}
	slow.quiet(100 * time.Millisecond)
	if last < 500 {
		t.Errorf("the last message is %d", last)
	}
	p.publish(removal(1)) // a queue that was full takes messages again
	if seq := seqOf(t, slow.next()[1]); seq != n {
		t.Errorf("got %d, want %d", seq, n)
	}
}

func TestPyzmqManyMessages(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	live, replay := p.endpoints()
	sub := startZMQ(t, "sub", live)
	audience(t, p, 1)
	const n = 10_000
	for i := range n {
		p.publish(removal(i))
	}
	want := payloads(t, p, n)
	check := func(peer *zmqPeer, what string) {
		for i := range n {
			got := peer.next()
			if m := got[len(got)-3:]; !slices.Equal(m, []string{hexOf("kv"), hexSeq(uint64(i)), want[i]}) {
				t.Fatalf("%s: message %d is %v", what, i, got)
			}
		}
	}
	check(sub, "live")
	dealer := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	check(dealer, "replay")
	if got := dealer.next(); !slices.Equal(got, []string{"", "", "ffffffffffffffff", ""}) {
		t.Errorf("the end is %v", got)
	}
}

// A dead subscriber leaves nothing behind, and neither does a publisher that ends.
func TestPyzmqSubscriberDies(t *testing.T) {
	goroutines, sockets := runtime.NumGoroutine(), openSockets()
	p, err := newTunedPublisher(kvPublisherOptions{endpoint: "tcp://127.0.0.1:0", replay: "tcp://127.0.0.1:0", topic: "kv"}, kvTuning{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		p.run(ctx)
		close(ended)
	}()
	live, replay := p.endpoints()
	dead, alive := startZMQ(t, "sub", live), startZMQ(t, "sub", live)
	asking := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	asking.next()
	audience(t, p, 2)
	dead.kill()
	audience(t, p, 1)
	for i := range 10 {
		p.publish(removal(i))
		if got := seqOf(t, alive.next()[1]); got != uint64(i) {
			t.Fatalf("got %d, want %d", got, i)
		}
	}
	cancel()
	<-ended
	alive.kill()
	asking.kill()
	await(t, "goroutines back to base", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := openSockets(); n > sockets {
		t.Errorf("%d sockets are open, %d were before", n, sockets)
	}
	for _, e := range []string{live, replay} {
		if nc, err := net.Dial("tcp", strings.TrimPrefix(e, "tcp://")); err == nil {
			nc.Close()
			t.Errorf("%s still listens", e)
		}
	}
	if err := p.resume(); err == nil {
		t.Error("a closed publisher opens again")
	}
}

// openSockets counts this process's sockets, 0 where /proc does not tell.
func openSockets() (n int) {
	fds, _ := os.ReadDir("/proc/self/fd") // empty elsewhere
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// A heartbeat of libzmq is answered: with a limit of 3 s, silence for longer does not end the connection.
func TestPyzmqHeartbeat(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv"}, kvTuning{})
	live, _ := p.endpoints()
	peer := startZMQ(t, "sub", live, "--ping", "1000")
	audience(t, p, 1)
	before := subscriber1(p)
	time.Sleep(6 * time.Second) // real time on purpose: the heartbeats are libzmq's
	if subscriber1(p) != before {
		t.Error("the connection was made anew")
	}
	p.publish(removal(0))
	if got := seqOf(t, peer.next()[1]); got != 0 {
		t.Errorf("got %d", got)
	}
}

// subscriber1 is any present subscriber.
func subscriber1(p *kvPubSub) *subscriber {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.pub.mu.Lock()
	defer p.pub.mu.Unlock()
	for s := range p.pub.subs {
		return s
	}
	return nil
}

// libzmq reconnects by itself after a restart of the engine, and sees the sequence begin again.
func TestPyzmqRestart(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{endpoint: "tcp://" + ports.Kept(t), topic: "kv", replay: "tcp://" + ports.Kept(t)}, kvTuning{})
	live, replay := p.endpoints()
	peer := startZMQ(t, "sub", live)
	audience(t, p, 1)
	for i := range 3 {
		p.publish(removal(i))
		peer.next()
	}
	p.suspend()
	p.publish(removal(3)) // nobody there to hear it
	p.suspend()           // does no harm
	if nc, err := net.Dial("tcp", strings.TrimPrefix(live, "tcp://")); err == nil {
		nc.Close()
		t.Error("a suspended publisher listens")
	}
	p.reset()
	if err := p.resume(); err != nil {
		t.Fatal(err)
	}
	if l, r := p.endpoints(); l != live || r != replay {
		t.Errorf("endpoints %s and %s, want %s and %s", l, r, live, replay)
	}
	audience(t, p, 1)
	p.publish(removal(7))
	if got := seqOf(t, peer.next()[1]); got != 0 {
		t.Errorf("first number after the restart is %d", got)
	}
	dealer := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	if got := dealer.next(); got[2] != hexSeq(0) {
		t.Errorf("replayed %v", got)
	}
	if got := dealer.next(); got[2] != hexSeq(kvReplayEnd) {
		t.Errorf("replayed %v, want the end", got)
	}
}

// With ">" the publisher connects out, as vLLM does with an endpoint that has no `*`; what it published before somebody
// listened is in the ring only.
func TestPyzmqConnectsOut(t *testing.T) {
	t.Parallel()
	sub := startZMQ(t, "sub", "tcp://127.0.0.1:*", "--bind")
	p := newTestPublisher(t, kvPublisherOptions{endpoint: ">" + strings.TrimRight(sub.first.Bound, "\x00"), topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	audience(t, p, 1)
	p.publish(removal(0))
	if got := seqOf(t, sub.next()[1]); got != 0 {
		t.Errorf("got %d", got)
	}
	sub.kill()
	_, replay := p.endpoints()
	dealer := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	if got := dealer.next(); got[2] != hexSeq(0) {
		t.Errorf("replayed %v", got)
	}
}

func TestPyzmqEventFaults(t *testing.T) {
	t.Parallel()
	var fate atomic.Uint32
	p := newTestPublisher(t, kvPublisherOptions{
		topic: "kv", replay: "tcp://127.0.0.1:0",
		fate:    func() kvFate { return kvFate(fate.Load()) },
		stalled: func() bool { return kvFate(fate.Load()) == kvStalled },
	}, kvTuning{})
	live, replay := p.endpoints()
	sub := startZMQ(t, "sub", live)
	audience(t, p, 1)
	for _, f := range []kvFate{kvSend, kvLose, kvSend, kvStalled, kvStalled} {
		fate.Store(uint32(f))
		p.publish(removal(0))
	}
	for _, want := range []uint64{0, 2} {
		if got := seqOf(t, sub.next()[1]); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	dealer := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	dealer.quiet(200 * time.Millisecond) // nor is replay answered while the publisher stands still
	dealer.kill()
	sub.quiet(0)
	fate.Store(uint32(kvSend))
	p.publish(removal(0))
	if got := seqOf(t, sub.next()[1]); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
	dealer = startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)))
	for want := range uint64(6) { // whatever was not sent can be had by replay
		if got := seqOf(t, dealer.next()[2]); got != want {
			t.Errorf("replayed %d, want %d", got, want)
		}
	}
}

// A peer that asks for a replay and does not read it loses the end of the answer, like with libzmq's ROUTER, and holds
// nobody up.
func TestPyzmqReplayToSlowReader(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{replayHWM: 10, patience: 50 * time.Millisecond})
	_, replay := p.endpoints()
	tokens := make([]uint32, 100_000)
	const n = 200
	for range n {
		p.publish([]kvEvent{{kind: kvStored, tokenIDs: tokens}})
	}
	payloads(t, p, n)
	slow := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(0)), "--hold", "--hwm", "1", "--brief")
	quick := startZMQ(t, "dealer", replay, "--ask", joinAsk("", seqBytes(n-1)), "--brief")
	if got := seqOf(t, quick.next()[2]); got != n-1 {
		t.Errorf("got %d", got)
	}
	quick.next()
	time.Sleep(2 * time.Second) // more than the patience with it
	slow.resume()
	if seqOf(t, slow.next()[2]) == kvReplayEnd {
		t.Fatal("the end came first")
	}
	got := 1
	for {
		select {
		case l, ok := <-slow.lines:
			if !ok {
				t.Fatal("zmqpeer.py ended")
			}
			if seqOf(t, l.Frames[2]) == kvReplayEnd {
				t.Error("the end came through a full queue")
			}
			got++
			continue
		case <-time.After(3 * time.Second):
		}
		break
	}
	if got >= n {
		t.Errorf("%d of %d batches came", got, n)
	}
}
