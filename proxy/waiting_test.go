package proxy

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/telemetry"
)

// TestBudgetAgainstAModel runs readers with random sizes and pauses; a naive
// ledger says what may be held, and that nobody was overtaken.
func TestBudgetAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := budget{limit: 100}
			var mu sync.Mutex // guards what follows
			held, arrived, served := int64(0), []int{}, map[int]time.Time{}
			var wg sync.WaitGroup
			for i := range 50 {
				n, pause, hold := rng.Int64N(100)+1, time.Duration(rng.IntN(500)), time.Duration(rng.IntN(100)+1)
				wg.Go(func() {
					time.Sleep(pause*time.Millisecond + time.Duration(i)*time.Microsecond)
					mu.Lock()
					arrived = append(arrived, i)
					mu.Unlock()
					if !b.take(n, time.Hour, &gate{}) {
						t.Error("not served within the hour")
						return
					}
					mu.Lock()
					held += n
					served[i] = time.Now()
					if held > b.limit {
						t.Errorf("%d bytes are held", held)
					}
					mu.Unlock()
					time.Sleep(hold * time.Millisecond)
					mu.Lock()
					held -= n
					mu.Unlock()
					b.give(n)
				})
			}
			wg.Wait()
			for i := 1; i < len(arrived); i++ {
				if served[arrived[i]].Before(served[arrived[i-1]]) {
					t.Fatalf("seed %d: %d overtook %d", seed, arrived[i], arrived[i-1])
				}
			}
			if b.held() != 0 || len(b.waiting) != 0 {
				t.Errorf("left: %d bytes, %d waiting", b.held(), len(b.waiting))
			}
		})
	}
}

func TestBudgetEdges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget{limit: 100}
		if b.take(101, time.Hour, &gate{}) {
			t.Error("more than there is")
		}
		if !b.take(100, 0, &gate{}) {
			t.Error("all there is")
		}
		before := time.Now()
		if b.take(1, time.Second, &gate{}) || time.Since(before) != time.Second {
			t.Errorf("gave up after %v", time.Since(before))
		}
		// The first in line leaves; the next, smaller one is served.
		g := &gate{}
		g.open()
		var wg sync.WaitGroup
		wg.Go(func() {
			if b.take(90, time.Hour, g) {
				t.Error("an aborted wait was served")
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if !b.take(10, time.Hour, &gate{}) {
				t.Error("the second was not served")
			}
		})
		synctest.Wait()
		b.give(20) // not enough for the first, and nobody overtakes
		synctest.Wait()
		if b.held() != 80 {
			t.Errorf("%d held: somebody overtook", b.held())
		}
		g.abort(telemetry.EndDrained)
		wg.Wait()
		if b.held() != 90 {
			t.Errorf("%d held", b.held())
		}
		gone := &gate{}
		gone.hangup()
		gone.open()
		if b.take(50, time.Hour, gone) {
			t.Error("a wait that was aborted before it began was served")
		}
		b.give(90)
		free := budget{}
		if !free.take(1<<60, 0, &gate{}) {
			t.Error("a budget without a limit refused")
		}
		free.give(1 << 60)
	})
}

// TestQueueAgainstAModel: random arrivals, leavings and wake-ups; a slice says
// who is first.
func TestQueueAgainstAModel(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	var q queue
	q.limit.Store(5)
	var model []*gate
	for range 20000 {
		switch rng.IntN(4) {
		case 0, 1:
			g := &gate{}
			if got, want := q.enter(g), int64(len(model)) < q.limit.Load(); got != want {
				t.Fatalf("enter: %v, want %v", got, want)
			} else if got {
				model = append(model, g)
			}
		case 2:
			if len(model) == 0 {
				continue
			}
			i := rng.IntN(len(model))
			q.leave(model[i])
			model = append(model[:i:i], model[i+1:]...)
			if len(model) > 0 && len(model[0].wake) == 0 {
				t.Fatal("the head was not told that somebody left")
			}
		case 3:
			q.released()
			if len(model) > 0 && len(model[0].wake) == 0 {
				t.Fatal("the head was not told of room")
			}
		}
		if q.busy() != (len(model) > 0) {
			t.Fatalf("busy: %v with %d waiting", q.busy(), len(model))
		}
		for i, g := range model {
			if q.first(g) != (i == 0) {
				t.Fatal("somebody else is first")
			}
			if i == 0 && len(g.wake) > 0 && rng.IntN(2) == 0 {
				<-g.wake
			}
		}
	}
}
