package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row48CrossTalk: a storm of aborted streams with a canary per request.
// No byte of one answer ever reaches another client.
func TestB7Row48CrossTalk(t *testing.T) {
	t.Parallel()
	aborts := 4000
	if testing.Short() {
		aborts = 400
	}
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		ev := rig.DeltaEvent("canary-" + x.ID() + "-")
		x.StreamHead()
		for range 20 {
			if !x.Events(ev, ev) {
				return
			}
			if !x.Pause(time.Millisecond) {
				return
			}
		}
		x.Events(rig.DoneEvent)
		x.Write(rig.LastChunk)
	}
	a.On(play)
	b.On(play)
	var wg sync.WaitGroup
	work := make(chan int)
	for w := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 48))
			for i := range work {
				crossTalk(t, r, rng, i%8 == 0)
			}
		})
	}
	for i := range aborts {
		work <- i
	}
	close(work)
	wg.Wait()
}

// crossTalk sends one request and reads some of the answer, or all of it, and
// checks that every canary in it is its own.
func crossTalk(t *testing.T, r *rig.Ramjet, rng *rand.Rand, whole bool) {
	c, err := rig.DialAddr(t, r.Public)
	if err != nil {
		t.Errorf("cannot connect: %v", err)
		return
	}
	defer c.Close()
	id := r.ID("user")
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	limit := time.Duration(rng.IntN(20)) * time.Millisecond
	if whole {
		limit = 2 * rig.Patience
	}
	resp, err := c.Until(limit, func(resp *rig.Response) bool { return resp != nil && resp.Complete })
	if whole && (err != nil || resp == nil || strings.Count(string(resp.Body), "canary-") != 40) {
		t.Errorf("%s: a whole answer has %v, %.300q", id, err, c.Raw)
	}
	own := fmt.Sprintf("canary-%s-", id)
	if foreignCanary(string(c.Raw), own) {
		t.Errorf("%s received bytes of another request: %.600q", id, c.Raw)
	}
	if rng.IntN(2) == 0 {
		c.Abort()
	}
}

// foreignCanary says that a canary other than own is in the text; one that is
// cut at the end of the text does not count.
func foreignCanary(text, own string) bool {
	for rest := text; ; {
		i := strings.Index(rest, "canary-")
		if i < 0 {
			return false
		}
		rest = rest[i:]
		if !strings.HasPrefix(rest, own) && len(rest) >= len(own) {
			return true
		}
		rest = rest[len("canary-"):]
	}
}
