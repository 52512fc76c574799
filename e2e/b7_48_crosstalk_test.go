package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestB7Row48CrossTalk: a storm of aborted streams with a canary per request.
// No byte of one answer ever reaches another client.
func TestB7Row48CrossTalk(t *testing.T) {
	t.Parallel()
	aborts := 4000
	if testing.Short() {
		aborts = 400
	}
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		ev := deltaEvent("canary-" + x.id() + "-")
		x.streamHead()
		for range 20 {
			if !x.events(ev, ev) {
				return
			}
			if !x.pause(time.Millisecond) {
				return
			}
		}
		x.events(doneEvent)
		x.write(lastChunk)
	}
	a.on(play)
	b.on(play)
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
func crossTalk(t *testing.T, r *ramjet, rng *rand.Rand, whole bool) {
	c, err := dialAddr(t, r.public)
	if err != nil {
		t.Errorf("cannot connect: %v", err)
		return
	}
	defer c.close()
	id := r.id("user")
	c.send(request("POST", chatPath, id, chatBody(true)))
	limit := time.Duration(rng.IntN(20)) * time.Millisecond
	if whole {
		limit = 2 * patience
	}
	resp, err := c.until(limit, func(resp *response) bool { return resp != nil && resp.complete })
	if whole && (err != nil || resp == nil || strings.Count(string(resp.body), "canary-") != 40) {
		t.Errorf("%s: a whole answer has %v, %.300q", id, err, c.raw)
	}
	own := fmt.Sprintf("canary-%s-", id)
	if foreignCanary(string(c.raw), own) {
		t.Errorf("%s received bytes of another request: %.600q", id, c.raw)
	}
	if rng.IntN(2) == 0 {
		c.abort()
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
