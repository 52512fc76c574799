package benchmarks

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// HoldSpec opens streams slowly and keeps them open.
type HoldSpec struct {
	Targets []string `json:"targets"`
	// Steps are numbers of streams, ascending; after each of them the generator reports and waits.
	Steps []int `json:"steps"`
	// PerSecond is the rate at which streams are opened.
	PerSecond int `json:"per_second"`
	// PaceMicros is the time between two tokens of a stream.
	PaceMicros int    `json:"pace_us"`
	Seed       uint64 `json:"seed"`
}

// HoldReport is the state at one step.
type HoldReport struct {
	Want   int    `json:"want"`
	Live   int64  `json:"live"`   // streams that have had their first token and have not ended
	Errors int64  `json:"errors"` // streams that failed or ended
	First  string `json:"first_error,omitempty"`
}

// Hold opens streams step by step. At each step it calls reached once all of them run or have failed (or 30 s have
// passed); when reached returns, it goes on. At the end it hangs up on all of them.
func Hold(spec HoldSpec, reached func(HoldReport)) error {
	clk, err := newClock()
	if err != nil {
		return err
	}
	if len(spec.Targets) == 0 || spec.PerSecond < 1 {
		return errors.New("cannot hold streams: no target or no rate")
	}
	h := holder{spec: spec, clock: clk}
	for _, want := range spec.Steps {
		h.open(want)
		reached(h.report(want))
	}
	h.stop.Store(true)
	for _, c := range h.clients {
		c.hangUp()
	}
	h.wg.Wait()
	return nil
}

type holder struct {
	spec    HoldSpec
	clock   clock
	clients []*heldStream
	wg      sync.WaitGroup
	stop    atomic.Bool

	live, errors atomic.Int64
	first        atomic.Pointer[string]
}

// heldStream lets Hold close a connection that another goroutine reads.
type heldStream struct {
	client *client

	mu   sync.Mutex // guards conn, gone
	conn *net.TCPConn
	gone bool
}

func (s *heldStream) dial() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errors.New("hung up")
	}
	err := s.client.dial()
	s.conn = s.client.conn
	return err
}

func (s *heldStream) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.conn != nil {
		_ = s.conn.Close() // wakes the reader
	}
}

func (h *holder) open(want int) {
	gap := time.Second / time.Duration(h.spec.PerSecond)
	next := time.Now()
	for i := len(h.clients); i < want; i++ {
		s := &heldStream{client: newClient(h.clock, h.spec.Targets[i%len(h.spec.Targets)])}
		h.clients = append(h.clients, s)
		h.wg.Go(func() { h.run(s, i) })
		if next = next.Add(gap); time.Until(next) > 2*time.Millisecond {
			time.Sleep(time.Until(next))
		}
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if h.live.Load()+h.errors.Load() >= int64(want) {
			return
		}
	}
}

func (h *holder) run(s *heldStream, i int) {
	const hours = 10_000 // tokens: far longer than any run holds its streams
	ask := Ask{Seed: h.spec.Seed%1_000_000*1_000_000_000 + uint64(i), Tokens: hours, PaceMicros: h.spec.PaceMicros, Stream: true}
	counted := false
	err := s.dial()
	if err == nil {
		err = s.client.do(ask, false, 10*time.Minute, func(j int, _, _ int64) {
			if j == 0 {
				counted = true
				h.live.Add(1)
			}
		})
	}
	if h.stop.Load() {
		return
	}
	if counted {
		h.live.Add(-1)
	}
	text := "a held stream ended"
	if err != nil {
		text = err.Error()
	}
	h.first.CompareAndSwap(nil, &text)
	h.errors.Add(1)
}

func (h *holder) report(want int) HoldReport {
	r := HoldReport{Want: want, Live: h.live.Load(), Errors: h.errors.Load()}
	if p := h.first.Load(); p != nil {
		r.First = *p
	}
	return r
}
