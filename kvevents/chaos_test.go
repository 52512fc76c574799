package kvevents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// truth is an engine with the cache that its events tell of.
type truth struct {
	*fakeEngine
	rnd    *rand.Rand
	copies []uint64 // resident, one entry a copy
	last   uint64
	lossy  bool
	alone  bool // no replay
}

func (c *truth) step() {
	emit := c.publish
	if c.lossy && c.rnd.IntN(4) == 0 {
		emit = c.lose
	}
	var events []any
	for range 1 + c.rnd.IntN(3) {
		switch n := c.rnd.IntN(100); {
		case n < 2:
			c.copies = nil
			events = append(events, clearedMap())
		case n < 35 && len(c.copies) > 0:
			i := c.rnd.IntN(len(c.copies))
			events = append(events, removedMap(c.copies[i]))
			c.copies = slices.Delete(c.copies, i, i+1)
		case n < 45 && len(c.copies) > 0:
			h := c.copies[c.rnd.IntN(len(c.copies))]
			events = append(events, storedMap([]uint64{h}, nil, span(1, 2), 2))
			c.copies = append(c.copies, h)
		default:
			c.last++
			events = append(events, storedMap([]uint64{c.last}, nil, span(1, 2), 2))
			c.copies = append(c.copies, c.last)
		}
	}
	emit(batchOf(float64(time.Now().UnixNano())/1e9, events...))
}

// disturb does what networks, engines and operators do.
func (c *truth) disturb() string {
	switch c.rnd.IntN(9) {
	case 0:
		c.hangUp()
		return "hang up"
	case 1:
		c.copies = nil
		c.restart()
		if c.alone {
			// Without a replay only its absence tells a new process from the old one, if its numbers happen to fit.
			c.set(func() { c.refuse = true })
			time.Sleep(12 * time.Second)
			c.set(func() { c.refuse = false })
		}
		return "restart"
	case 2:
		c.set(func() { c.mute = !c.mute })
		return "mute"
	case 3:
		c.trim(min(3, len(c.ring)))
		return "trim"
	case 4:
		c.set(func() { c.refuse = !c.refuse })
		return "refuse"
	case 5:
		c.set(func() { c.hwm, c.endToo, c.room = 5*c.rnd.IntN(2), c.rnd.IntN(2) == 0, c.rnd.IntN(2) == 0 })
		return "high-water mark"
	case 6:
		c.lossy = !c.lossy
		return "lossy"
	case 7:
		c.set(func() { c.old = !c.old })
		return "framing"
	}
	return "nothing"
}

// Whatever happens, an engine that is called exact has in the record what it has in its cache, and once all is well
// again and the cache was cleared it is exact.
func TestFeedIsRightOrSaysSo(t *testing.T) {
	t.Parallel()
	seeds := 40
	if testing.Short() {
		seeds = 15
	}
	var exactly, otherwise int
	for seed := range seeds {
		virtual(t, func(t *testing.T) {
			c := &truth{fakeEngine: &fakeEngine{topic: "kv"}, rnd: rand.New(rand.NewPCG(uint64(seed), 5))}
			for range c.rnd.IntN(20) {
				c.step()
			}
			c.alone = seed%5 == 4
			r := follow(t, c.fakeEngine, func(o *Options) {
				if c.alone {
					o.Replay = Endpoint{}
				}
			})
			var did []string
			check := func() {
				t.Helper()
				trust, reason, _ := r.Trust()
				if trust != exact {
					otherwise++
					return
				}
				exactly++
				if err := r.store.equal(c.copies); err != "" {
					t.Errorf("seed %d: exact (%s), but %s; after %q; %+v", seed, reason, err, did[max(len(did)-16, 0):], r.Stats())
				}
			}
			for range 60 {
				what := c.disturb()
				if c.rnd.IntN(6) == 0 {
					what += ", read anew"
					r.do(ActResync)
				}
				did = append(did, what)
				// A loss that is followed by nothing cannot be seen, so a batch that comes through ends each round.
				for range c.rnd.IntN(6) {
					c.step()
				}
				if c.lossy {
					c.lossy = false
					c.step()
					c.lossy = true
				} else {
					c.step()
				}
				time.Sleep(time.Duration(c.rnd.IntN(3000)) * time.Millisecond)
				synctest.Wait()
				if s := r.Stats(); s.Connected {
					c.lossy, did = false, append(did, fmt.Sprint("step ", c.next))
					c.step()
					synctest.Wait()
					check()
				}
				if t.Failed() {
					return
				}
			}
			c.lossy = false
			c.set(func() { c.mute, c.refuse, c.hwm = false, false, 0 })
			time.Sleep(3 * time.Minute)
			c.copies = nil
			c.publish(cleared())
			time.Sleep(3 * time.Minute)
			c.step()
			pass()
			r.is(exact, "")
			check()
		})
		if t.Failed() {
			return
		}
	}
	if exactly < 10*seeds || otherwise < seeds {
		t.Errorf("exact %d times, %d times not: the test shows too little", exactly, otherwise)
	}
	t.Logf("exact %d times, %d times not", exactly, otherwise)
}
