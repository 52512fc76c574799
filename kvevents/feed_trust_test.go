package kvevents

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Case C22: a subscription is a prefix and nothing else.
func TestC22Topics(t *testing.T) {
	t.Parallel()
	t.Run("two publishers behind one prefix", func(t *testing.T) {
		t.Parallel()
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv@10.0.0.1@m"}
			r := follow(t, e, func(o *Options) { o.Topic = "kv@10.0.0.1"; o.Replay = Endpoint{} })
			pass()
			for n := range uint64(20) {
				e.set(func() { e.topic, e.next = "kv@10.0.0.1@m", n })
				e.publish(stored(n))
				e.set(func() { e.topic, e.next = "kv@10.0.0.10@m", 500+n })
				e.publish(stored(100 + n))
			}
			pass()
			r.is(blind, "two topics on one subscription")
			r.holds()
			if e.set(func() {}); fmt.Sprint(e.topics) != "[kv@10.0.0.1]" {
				t.Errorf("subscribed to %q", e.topics)
			}
		})
	})
	t.Run("two sequences under one topic", func(t *testing.T) {
		t.Parallel()
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv"}
			r := follow(t, e, nil)
			pass()
			for n := range uint64(20) {
				e.set(func() { e.next = n })
				e.publish(stored(n))
				pass()
				e.set(func() { e.next = 500 + n })
				e.publish(stored(100 + n))
				pass()
			}
			r.is(blind, "two sequences on one subscription")
			r.holds()
			if n := r.Stats().Replays; n > 20 {
				t.Errorf("%d replays", n)
			}
		})
	})
	t.Run("a topic that nobody publishes", func(t *testing.T) {
		t.Parallel()
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv"}
			e.publish(stored(1))
			e.set(func() { e.topic = "kv" })
			r := follow(t, e, func(o *Options) { o.Topic = "nope" })
			pass()
			r.is(blind, `nothing received: the engine publishes topic "kv", and the subscription is "nope"`)
		})
	})
	t.Run("a topic that nobody publishes, nothing to replay", func(t *testing.T) {
		t.Parallel()
		virtual(t, func(t *testing.T) {
			e := &fakeEngine{topic: "kv"}
			r := follow(t, e, func(o *Options) { o.Topic = "nope" })
			pass()
			for h := range uint64(2) {
				e.lose(stored(h)) // libzmq filters what we did not subscribe to
				r.Answered(Answer{Prompt: 100, Reported: 0, Predicted: 0, Other: -1, Received: r.Received()})
			}
			time.Sleep(silenceGrace)
			synctest.Wait()
			r.is(blind, `nothing received: it publishes topic "kv", and the subscription is "nope"`)
			time.Sleep(time.Hour)
			if s := r.Stats(); s.Replays > 12 || s.Stored != 0 {
				t.Errorf("%+v", s)
			}
		})
	})
}

// CONTRACT section 10, 14.
func TestFeedSaysNothingReceived(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		pass()
		ask := func(prompt, cached int) {
			r.Answered(Answer{Prompt: prompt, Reported: cached, Predicted: cached, Other: -1, BlockTokens: 16, Received: r.Received()})
			synctest.Wait()
		}
		ask(15, 0)   // too short for a block
		ask(100, 96) // all but the tail was cached
		r.is(exact, "")
		ask(100, 0)
		r.is(exact, "") // its event may be on its way
		time.Sleep(silenceGrace)
		synctest.Wait()
		r.is(degraded, "no event came")
		ask(100, 0)
		r.is(blind, "nothing received")
		e.publish(stored(2))
		pass()
		r.is(exact, "")
	})
}

func TestFeedLagIsNotSilence(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		m := new(counts)
		r := follow(t, e, func(o *Options) { o.Metrics = m })
		pass()
		e.publish(stored(1))
		pass()
		time.Sleep(time.Hour)
		synctest.Wait()
		r.is(exact, "")
		late := batchOf(float64(time.Now().Add(-5*time.Second).Unix()), storedMap([]uint64{2}, nil, span(1, 2), 2))
		e.publish(late)
		pass()
		r.is(degraded, "events come 5 s late")
		if m.lag < 4 || m.lag > 6 {
			t.Errorf("lag %v", m.lag)
		}
		e.publish(stored(3))
		pass()
		r.is(exact, "")
		// A replayed batch is old by nature.
		e.hangUp()
		e.lose(stored(4))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.is(exact, "")
	})
}

// An engine's clock that is ahead hides lag unless what it is ahead by is known.
func TestFeedLagWithAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		at := func(d time.Duration) []byte {
			return batchOf(float64(time.Now().Add(d).Unix()), removedMap())
		}
		e.publish(at(10 * time.Second))
		pass()
		r.is(exact, "")
		e.publish(at(5 * time.Second))
		pass()
		r.is(degraded, "s late")
	})
}

// counts collects metrics.
type counts struct {
	events map[EventKind]int
	gaps   int
	lag    float64
}

func (c *counts) Events(k EventKind, n int) {
	if c.events == nil {
		c.events = map[EventKind]int{}
	}
	c.events[k] += n
}
func (c *counts) Gap()          { c.gaps++ }
func (c *counts) Lag(s float64) { c.lag = s }

func TestFeedCountsAndJudgesOddEvents(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		m := new(counts)
		r := follow(t, e, func(o *Options) { o.Metrics = m })
		pass()
		now := float64(time.Now().Unix())
		e.publish(batchOf(now, storedMap([]uint64{1}, nil, span(1, 2), 2), ordered{"type", "BlockInactive"},
			storedMap([]uint64{5}, nil, span(1, 2), 2, "medium", "CPU"), removedMap(1), storedMap([]uint64{2}, nil, span(1, 2), 2)))
		pass()
		r.is(exact, "")
		r.holds(2)
		e.publish(batchOf(now, ordered{"type", "BlockRemoved", "block_hashes", "x"}, storedMap([]uint64{3}, nil, span(1, 2), 2)))
		pass()
		r.is(degraded, "an event could not be used")
		r.holds(2, 3)
		if fmt.Sprint(m.events) != fmt.Sprint(map[EventKind]int{EventStored: 4, EventRemoved: 1, EventUnknown: 1, EventOdd: 1}) {
			t.Errorf("%v", m.events)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.is(exact, "")
		e.publish([]byte{0xc1})
		pass()
		r.is(blind, "a batch could not be read")
		r.holds()
	})
}

func TestFeedOfManyRanks(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		r := follow(t, &fakeEngine{}, func(o *Options) { o.Ranks = 2 })
		pass()
		r.is(degraded, "2 data-parallel ranks")
	})
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{}
		r := follow(t, e, nil)
		pass()
		e.publish(pack(list(float64(time.Now().Unix()), list(), 1)))
		pass()
		r.is(degraded, "data-parallel rank 1")
	})
}

func TestFeedIsToldOfRestarts(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		pass()
		r.Restarted() // the record began with the process, a moment ago
		synctest.Wait()
		r.holds(1)
		r.is(exact, "")
		time.Sleep(time.Hour)
		r.Restarted()
		pass()
		r.is(exact, "") // asked anew
		r.holds(1)
		if s := r.Stats(); s.Restarts != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFeedAuditEndsAndRestoresBelief(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		e.publish(stored(1))
		pass()
		answers := func(n, predicted, reported int) {
			for range n {
				r.Answered(Answer{Prompt: 600, Predicted: predicted, Other: predicted - 16, Reported: reported, BlockTokens: 16, Received: 0})
				synctest.Wait()
			}
		}
		answers(3, 512, 0)
		pass()
		r.is(degraded, "predictions are off: predicted 512 cached tokens of 600, and the engine reported 0")
		if did := r.store.did(); !strings.Contains(did, "doubtful") || !strings.Contains(did, "drop") {
			t.Errorf("did %s", did)
		}
		r.holds(1) // read anew
		answers(8, 512, 512)
		r.is(exact, "")
		answers(4, 512, 496)
		pass()
		r.is(exact, "")
		if did := r.store.did(); !strings.HasSuffix(did, "set drop 1") && !strings.Contains(did, "set drop 1") {
			t.Errorf("did %s", did)
		}
	})
}

// A word of a restart within the first minute of a record is believed as soon as the connection ends too: the record is
// empty long before the new process can be asked.
func TestFeedBelievesARestartWhenTheConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"told first": {"told", "gone"}, "gone first": {"gone", "told"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) {
				e := &fakeEngine{topic: "kv"}
				r := follow(t, e, nil)
				pass()
				e.publish(stored(1))
				pass()
				r.holds(1)
				for _, what := range order {
					if what == "told" {
						r.Restarted()
					} else {
						e.set(func() { e.refuse = true })
						e.hangUp()
					}
					synctest.Wait()
				}
				r.holds()
			})
		})
	}
}

// An engine that announces more blocks than its cache has lost removals somewhere; a clear or a new process ends it.
func TestFeedMoreThanTheCacheHolds(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		r.store.cap = 3
		pass()
		e.publish(stored(1, 2, 3))
		pass()
		r.is(exact, "")
		e.publish(stored(4, 5))
		pass()
		r.is(degraded, "2 blocks more were announced than the cache holds")
		e.publish(cleared())
		pass()
		r.is(exact, "since the cache was cleared")
		e.publish(stored(6, 7, 8, 9))
		pass()
		r.is(degraded, "1 blocks more")
		e.restart()
		pass()
		e.publish(stored(10))
		pass()
		r.is(exact, "every batch since the engine started")
	})
}

// What an answer stored is on its way for a moment behind its first token, and no longer than until the next batch.
func TestFeedPending(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, nil)
		pass()
		if r.Pending() {
			t.Error("pending before anything began")
		}
		r.Began()
		if !r.Pending() {
			t.Error("not pending right behind a first token")
		}
		e.publish(stored(1))
		synctest.Wait()
		if r.Pending() {
			t.Error("pending though its event came")
		}
		r.Began() // its event came before its first token
		if !r.Pending() {
			t.Error("not pending right behind the second first token")
		}
		time.Sleep(silenceGrace)
		if r.Pending() {
			t.Error("pending for ever")
		}
	})
}
