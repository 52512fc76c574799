package kvevents

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/telemetry"
)

const (
	blind    = telemetry.TrustBlind
	degraded = telemetry.TrustDegraded
	exact    = telemetry.TrustExact
)

// stored is a batch that stores blocks of two tokens, made now.
func stored(hashes ...uint64) []byte {
	return batchOf(float64(time.Now().UnixNano())/1e9, storedMap(hashes, nil, span(1, 2*len(hashes)), 2))
}

func removed(hashes ...uint64) []byte {
	return batchOf(float64(time.Now().UnixNano())/1e9, removedMap(hashes...))
}

func cleared(more ...any) []byte {
	return batchOf(float64(time.Now().UnixNano())/1e9, append(list(clearedMap()), more...)...)
}

// pass lets a second go by, in which everything settles.
func pass() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// virtual runs a test in a bubble whose clock moves only when all is quiet.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t) })
}

func TestFeedFromTheFirstBatch(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		r.is(exact, "every batch since the engine started") // an empty ring: it has published nothing
		e.publish(stored(1, 2))
		e.publish(stored(3))
		e.publish(removed(2))
		pass()
		r.is(exact, "every batch since the engine started")
		r.holds(1, 3)
		if s := r.Stats(); s.Batches != 3 || s.Stored != 2 || s.Removed != 1 || s.Gaps != 0 || s.Restarts != 0 || s.Next != 3 || s.Dials != 1 || !s.Connected {
			t.Errorf("%+v", s)
		}
	})
}

func TestFeedJoinsLateThroughTheReplay(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv", old: old}
			for h := range uint64(50) {
				e.publish(stored(h))
			}
			r := follow(t, e, nil)
			pass()
			r.is(exact, "")
			e.publish(removed(7))
			pass()
			r.is(exact, "")
			want := slices.Concat(upTo(7), upTo(50)[8:])
			r.holds(want...)
			if s := r.Stats(); s.Replayed != 50 || s.Batches != 1 || s.Gaps != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func upTo(n uint64) (all []uint64) {
	for h := range n {
		all = append(all, h)
	}
	return all
}

func TestFeedRepairsAGap(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv", old: old}
			r := follow(t, e, nil)
			pass()
			e.publish(stored(1))
			e.lose(stored(2))
			e.lose(removed(1))
			e.publish(stored(3))
			e.publish(stored(4))
			pass()
			r.is(exact, "")
			r.holds(2, 3, 4)
			if s := r.Stats(); s.Gaps != 1 || s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
			// One batch more than what is missing, to see that it is the same process.
			if e.set(func() {}); !slices.Equal(e.asked, []uint64{0, 0}) {
				t.Errorf("asked from %d", e.asked)
			}
		})
	}
}

func TestFeedIsDegradedWhileAGapIsRepaired(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		e.set(func() { e.mute = true })
		e.lose(stored(2))
		e.publish(stored(3))
		pass()
		r.is(degraded, "a gap at batch 1 is being repaired")
		r.holds(1)
		e.publish(stored(4)) // held, in order
		e.set(func() { e.mute = false })
		time.Sleep(4 * time.Second) // the next try
		synctest.Wait()
		r.is(exact, "")
		r.holds(1, 2, 3, 4)
	})
}

// What cannot be had again costs the record: a removal may have been in it.
func TestFeedIsBlindWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		e.set(func() { e.mute = true })
		e.lose(removed(1))
		e.publish(stored(3))
		e.publish(stored(4))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		r.is(blind, "the replay is unanswered: no answer")
		r.holds(3, 4)
		e.publish(stored(5))
		pass()
		r.is(blind, "")
		r.holds(3, 4, 5)
		// It is asked again, and then the record is whole.
		e.set(func() { e.mute = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		r.is(exact, "every batch since the engine started")
		r.holds(3, 4, 5)
		if s := r.Stats(); s.Restarts != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFeedHearsOfAClear(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		e.publish(stored(1))
		e.publish(stored(2))
		e.trim(1)
		r := follow(t, e, nil)
		pass()
		r.is(blind, "the batches before 1 are not known")
		r.holds(2)
		// In the same batch before what the next step stores (vLLM 0.32).
		e.publish(cleared(storedMap([]uint64{9}, nil, span(1, 2), 2)))
		pass()
		r.is(exact, "every batch since the cache was cleared")
		r.holds(9)
	})
}

func TestFeedSeesARestart(t *testing.T) {
	t.Parallel()
	for name, replay := range map[string]bool{"replay": true, "no replay": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{topic: "kv"}
				told := 0
				r := follow(t, e, func(o *Options) {
					o.Restarted = func() { told++ }
					if !replay {
						o.Replay = Endpoint{}
					}
				})
				pass()
				for h := range uint64(5) {
					e.publish(stored(h))
				}
				pass()
				r.is(exact, "")
				e.restart()
				if replay {
					// Published before we are back: only the replay has it.
					e.publish(stored(100))
				}
				synctest.Wait()
				r.is(degraded, "the connection was lost")
				pass()
				e.publish(stored(101))
				pass()
				r.is(exact, "every batch since the engine started")
				if replay {
					r.holds(100, 101)
				} else {
					r.holds(101)
				}
				if s := r.Stats(); s.Restarts != 1 || told != 1 {
					t.Errorf("told %d times: %+v", told, s)
				}
			})
		})
	}
}

// A process that has come further than we were is told by its batches, not by its numbers.
func TestFeedSeesARestartThatOvertook(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		e.publish(stored(2))
		pass()
		e.set(func() { e.refuse = true })
		e.restart()
		pass()
		for h := uint64(10); h < 20; h++ {
			e.publish(stored(h))
		}
		e.set(func() { e.refuse = false })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		r.is(exact, "")
		r.holds(10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
		if s := r.Stats(); s.Restarts != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFeedReconnectsToTheSameProcess(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		pass()
		e.hangUp()
		e.publish(stored(2)) // nobody is there
		e.publish(removed(1))
		pass()
		r.is(exact, "")
		r.holds(2)
		if s := r.Stats(); s.Restarts != 0 || s.Gaps != 0 || s.Dials != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFeedWithoutReplay(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		e.publish(stored(1))
		r := follow(t, e, func(o *Options) { o.Replay = Endpoint{} })
		pass()
		r.is(blind, "nothing received yet")
		e.publish(stored(2))
		pass()
		r.is(blind, "joined late and there is no replay endpoint")
		e.publish(cleared())
		e.publish(stored(3))
		pass()
		r.is(exact, "cleared")
		r.holds(3)
		e.hangUp()
		pass()
		r.is(degraded, "the next event will show")
		e.publish(stored(4))
		pass()
		r.is(exact, "cleared")
		e.lose(removed(3))
		e.publish(stored(5))
		pass()
		r.is(blind, "batches from 5 on are lost and there is no replay endpoint")
		r.holds(5)
	})
}

// The ROUTER of vLLM up to 0.32 drops what is beyond 1,000 messages of an answer that nobody takes, the end marker too.
func TestFeedGoesOnBehindAHoleOfTheReplay(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv", hwm: 100}
		for h := range uint64(950) {
			e.publish(stored(h))
		}
		r := follow(t, e, nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		e.publish(stored(950))
		e.set(func() { e.hwm = 0 })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.is(exact, "")
		r.holds(upTo(951)...)
	})
}

// After a late join without the beginning a whole cache's worth of stores without a sign of older blocks is proof.
func TestFeedIsProvenByTurnover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sign []byte
		want telemetry.Trust
	}{
		"quiet":          {nil, exact},
		"older removed":  {batchOf(0, removedMap(1)), blind},
		"older extended": {batchOf(0, storedMap([]uint64{999}, uint64(1), span(1, 2), 2)), blind},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{topic: "kv"}
				e.publish(stored(1))
				e.publish(stored(2))
				e.trim(1)
				r := follow(t, e, nil)
				r.SetCapacity(10)
				pass()
				for h := uint64(10); h < 15; h++ {
					e.publish(stored(h))
				}
				pass()
				r.is(blind, "the batches before 1 are not known")
				if c.sign != nil {
					e.publish(c.sign)
				}
				for h := uint64(20); h < 25; h++ {
					e.publish(stored(h))
				}
				pass()
				r.is(c.want, "")
				for h := uint64(30); h < 42; h++ {
					e.publish(stored(h))
				}
				pass()
				r.is(exact, "turned over")
			})
		})
	}
}

func TestFeedReconnectsWhenTheRingHasMovedOn(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		pass()
		e.hangUp()
		for h := uint64(2); h < 10; h++ {
			e.publish(stored(h))
		}
		e.trim(3)
		pass()
		r.is(blind, "batches 1 to 5 are lost")
		r.holds(7, 8, 9)
		// Nothing is gained by asking for what the ring does not have.
		before := r.Stats().Replays
		time.Sleep(30 * time.Minute)
		if n := r.Stats().Replays; n != before {
			t.Errorf("%d more replays", n-before)
		}
	})
}

// A forwarder keeps our connection while the process behind it is replaced: its first live batch has a number that the
// record has from a replay.
func TestFeedSeesARestartBehindAForwarder(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{1, 2, 4} {
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv"}
			told := 0
			r := follow(t, e, func(o *Options) { o.Restarted = func() { told++ } })
			pass()
			for h := range uint64(5) {
				e.publish(stored(h))
			}
			pass()
			e.hangUp()
			e.lose(stored(5)) // a replay brings it
			pass()
			r.is(exact, "")
			r.holds(0, 1, 2, 3, 4, 5)
			e.set(func() { e.ring, e.next = nil, 0 })
			for h := range uint64(batches) {
				e.publish(stored(100 + h))
				pass()
			}
			r.is(exact, "every batch since the engine started")
			r.holds([]uint64{100, 101, 102, 103}[:batches]...)
			if s := r.Stats(); s.Restarts != 1 || told != 1 {
				t.Errorf("told %d times: %+v", told, s)
			}
		})
	}
}

// A live batch that is slower than the replay which had it is no restart.
func TestFeedLiveBehindItsReplay(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 3} {
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv"}
			r := follow(t, e, nil)
			pass()
			e.publish(stored(0))
			pass()
			e.hangUp()
			for h := range uint64(1 + more) {
				e.lose(stored(1 + h))
			}
			pass() // the replay has them all
			for i := range 1 + more {
				e.set(func() {
					late := appendMessage(nil, []byte(e.topic), binary.BigEndian.AppendUint64(nil, uint64(1+i)), e.ring[1+i])
					e.subs[0].out <- late
				})
				synctest.Wait()
			}
			pass()
			r.is(exact, "")
			r.holds([]uint64{0, 1, 2, 3, 4}[:2+more]...)
			if s := r.Stats(); s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Case C26: only the replay ports are swapped.
func TestC26SwappedReplay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ own, other int }{
		"behind": {3, 8}, "ahead": {8, 3}, "other empty": {4, 0}, "own empty": {0, 4}, "level": {5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				other := &fakeEngine{topic: "kv"}
				e := &fakeEngine{topic: "kv", answers: other}
				for h := range c.own {
					e.publish(stored(uint64(h)))
				}
				time.Sleep(time.Second)
				for h := range c.other {
					other.publish(stored(uint64(100 + h)))
				}
				r := follow(t, e, nil)
				pass()
				for h := uint64(50); h < 60; h++ {
					time.Sleep(time.Second)
					e.publish(stored(h))
					synctest.Wait()
					other.publish(stored(100 + h))
				}
				pass()
				if trust, _, _ := r.Trust(); name != "own empty" || trust != exact {
					// Where we saw the engine's own first batch we need no replay.
					r.is(blind, "another engine's events")
				}
				for _, h := range r.store.hashes() {
					if h >= 100 {
						t.Errorf("block %d of the other engine is resident", h)
					}
				}
			})
		})
	}
}

func (b *book) hashes() (all []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h, n := range b.copies[0] {
		if n > 0 {
			all = append(all, h)
		}
	}
	return all
}
