package kvevents

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// answers tells of n answers, all right or all wrong.
func (r *running) answers(n int, right bool) {
	reported := 0
	if right {
		reported = 512
	}
	for range n {
		r.Answered(Answer{Prompt: 600, Predicted: 512, Other: 496, Reported: reported, BlockTokens: 16})
		synctest.Wait()
	}
}

// cuts are the ways in which the ROUTER of vLLM up to 0.32 drops what nobody takes.
var cuts = map[string]func(*fakeEngine){
	"behind the mark, the end too":      func(e *fakeEngine) { e.endToo = true },
	"behind the mark, and not the end":  func(*fakeEngine) {},
	"between the mark and the last one": func(e *fakeEngine) { e.room = true },
}

// A record that is read anew is read once, however many answers that takes.
func TestFeedReadsAnewInManyAnswers(t *testing.T) {
	t.Parallel()
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{topic: "kv"}
				r := follow(t, e, nil)
				pass()
				for h := range uint64(950) {
					e.publish(stored(h))
				}
				pass()
				r.is(exact, "")
				e.set(func() { e.hwm = 100; cut(e) })
				r.answers(auditBad, false)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				r.answers(auditGood, true)
				pass()
				r.is(exact, "")
				r.holds(upTo(950)...)
				e.set(func() {})
				if n := len(e.asked); n < 11 || n > 15 || !slices.IsSorted(e.asked) {
					t.Errorf("asked %d times, from %.200s", n, fmt.Sprint(e.asked))
				}
			})
		})
	}
}

// What only half an answer told is not the engine's record.
func TestFeedReadsHalfARecordAnew(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(r *running, e *fakeEngine){
		"predictions are off": func(r *running, e *fakeEngine) {
			for h := range uint64(300) {
				e.publish(stored(h))
			}
			pass()
			r.is(exact, "")
			e.set(func() { e.hwm, e.endToo = 100, true })
			r.answers(auditBad, false)
			synctest.Wait()
		},
		"trying again": func(r *running, e *fakeEngine) {
			for h := range uint64(299) {
				e.publish(stored(h))
			}
			pass()
			r.is(exact, "")
			e.set(func() { e.mute = true })
			e.lose(stored(299))
			e.publish(stored(300))
			time.Sleep(15 * time.Second)
			synctest.Wait()
			r.is(blind, "the replay is unanswered")
			e.set(func() { e.mute, e.hwm, e.endToo = false, 100, true })
			for until := time.Now().Add(time.Minute); time.Now().Before(until) && r.store.equal(upTo(100)) != ""; {
				pass()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{topic: "kv"}
				r := follow(t, e, nil)
				pass()
				begin(r, e)
				e.set(func() { e.mute = true })
				time.Sleep(20 * time.Second)
				synctest.Wait()
				r.answers(auditGood, true)
				pass()
				r.is(degraded, "the replay is unanswered")
				r.holds(upTo(100)...)
				e.set(func() { e.mute, e.hwm = false, 0 })
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				r.is(exact, "")
				r.holds(upTo(uint64(len(e.ring)))...)
			})
		})
	}
}

// What a clear has proven is not asked for any more, and so not dropped.
func TestFeedKeepsWhatAClearHasProven(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		e.set(func() { e.mute = true })
		e.lose(stored(2))
		e.publish(stored(3))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		r.is(blind, "the replay is unanswered")
		e.publish(cleared())
		e.publish(stored(4))
		pass()
		r.is(exact, "since the cache was cleared")
		before := r.Stats().Replays
		time.Sleep(time.Hour)
		synctest.Wait()
		r.is(exact, "since the cache was cleared")
		r.holds(4)
		if n := r.Stats().Replays; n != before {
			t.Errorf("%d more replays", n-before)
		}
	})
}

// libzmq hangs up when the TTL of a PING passes without a byte from us, however much it sends itself.
func TestReplayOutlastsTheTTL(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		const batches = 15
		e := &fakeEngine{topic: "kv"}
		for h := range uint64(batches) {
			e.publish(stored(h))
		}
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != routerAddress {
				return e.dial(ctx, network, address)
			}
			ours, theirs := net.Pipe()
			ttl := time.AfterFunc(time.Hour, func() { _ = theirs.Close() })
			p := newPeer(theirs, "ROUTER", 1, func(p *peer, m *Message) {
				ttl.Reset(time.Hour)
				if !m.Command {
					p.wg.Go(func() { slowly(p, e.ring, 2*time.Second) })
				} else if name, data, err := splitCommand(m.Frames[0]); err == nil && name == commandPing {
					ttl.Reset(time.Duration(binary.BigEndian.Uint16(data)) * 100 * time.Millisecond)
				}
			})
			e.set(func() { e.routers = append(e.routers, p) })
			return ours, nil
		}
		r := follow(t, e, func(o *Options) { o.Dial = dial })
		time.Sleep(time.Minute)
		synctest.Wait()
		r.is(exact, "")
		r.holds(upTo(batches)...)
		if n := r.Stats().Replays; n != 1 {
			t.Errorf("%d replays", n)
		}
	})
}

// slowly sends an answer with a wait in front of each batch.
func slowly(p *peer, ring [][]byte, wait time.Duration) {
	for i, payload := range ring {
		time.Sleep(wait)
		p.out <- appendMessage(nil, nil, []byte("kv"), binary.BigEndian.AppendUint64(nil, uint64(i)), payload)
	}
	p.out <- appendMessage(nil, nil, nil, binary.BigEndian.AppendUint64(nil, endMarker), nil)
}
