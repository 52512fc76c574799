package e2e

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestResidencyTogether sends 300 requests from several clients at once, with
// duplicates at the same moment. Where nothing shared was in flight and nothing
// was removed meanwhile, the match is what is reported; elsewhere it is within
// what was in flight, and what was removed.
func TestResidencyTogether(t *testing.T) {
	t.Parallel()
	for _, c := range rig.ResidencyCases {
		if testing.Short() && c.Name != "dense16" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			sims := c.Start(t)
			r := c.Ramjet(t, sims, "auto")
			if c.Words > 100 {
				prime(t, r) // both are to be used
			}
			if c.Learns { // one after another: what is learnt is not at stake here
				a := r.Asker(t)
				load := rig.NewTalkLoad(20, c.Words)
				for i := 0; i < 200 && !r.Logged("blocks that a hit loses"); i++ {
					body, tell := load.Next()
					tell(a.Chat(r.ID("learn"), body).Text)
					r.InStep(t, sims...)
				}
				a.Close()
			}
			w := watchRemovals(r)
			run := together(t, r, rig.NewTalkLoad(21, c.Words), 300, 6)
			time.Sleep(onTheWay)
			w.stop()
			doubts(t, r)
			run.within(t, r, &c, w)
			// Answers that hit more than was known, by events on their way, may have cost trust for a while.
			a, load := r.Asker(t), rig.NewTalkLoad(22, c.Words)
			defer a.Close()
			for i := 0; i < 60 && rig.Trusted(r) != ""; i++ {
				r.InStep(t, sims...)
				body, tell := load.Next()
				tell(a.Chat(r.ID("after"), body).Text)
			}
			for _, s := range sims {
				r.TrustIs(t, rig.Patience, s.Name, "exact")
			}
			// Hardly one of many at once is alone; these are.
			rig.EqualRun(t, r, sims, load, 20)
		})
	}
}

// removals are counts of removed blocks over time.
type removals struct {
	mu    sync.Mutex // guards the following
	at    []time.Time
	total []map[string]int
	stop  func()
}

// watchRemovals reads the counts some hundred times a second.
func watchRemovals(r *rig.Ramjet) *removals {
	w := &removals{}
	done, ended := make(chan struct{}), make(chan struct{})
	look := func() {
		_, body := r.AdminGet("/metrics")
		now := time.Now() // the counts are not newer
		m, err := rig.ParseMetrics(body)
		if err != nil {
			return
		}
		total := map[string]int{}
		for _, name := range r.EngineNames() {
			total[name] = int(m.Sum("ramjet_kv_events_total", "engine", name, "kind", "removed"))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.at, w.total = append(w.at, now), append(w.total, total)
	}
	look()
	go func() {
		defer close(ended)
		for {
			look()
			select {
			case <-done:
				look()
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	w.stop = func() { close(done); <-ended }
	return w
}

// between is at most how many blocks an engine removed in a time, told by events
// that came within onTheWay of it.
func (w *removals) between(engine string, from, to time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := max(sort.Search(len(w.at), func(i int) bool { return w.at[i].After(from) })-2, 0)
	last := min(sort.Search(len(w.at), func(i int) bool { return w.at[i].After(to.Add(onTheWay)) })+1, len(w.at)-1)
	return w.total[last][engine] - w.total[first][engine]
}

// together sends n requests from some clients; one of six is sent twice at once.
func together(t *testing.T, r *rig.Ramjet, load *rig.TalkLoad, n, clients int) (run talkRun) {
	t.Helper()
	a := r.Asker(t)
	defer a.Close()
	var mu sync.Mutex // guards load and run
	var wg sync.WaitGroup
	one := func(body string, tell func(string)) {
		p := a.Chat(r.ID("talk"), body)
		mu.Lock()
		defer mu.Unlock()
		if !p.Ok() {
			t.Errorf("a request failed: %v", &p)
		}
		tell(p.Text)
		run.bodies, run.replies = append(run.bodies, body), append(run.replies, p)
		run.cached, run.prompt = run.cached+p.Cached, run.prompt+p.Prompt
	}
	left := n
	for range clients {
		wg.Go(func() {
			for {
				mu.Lock()
				if left <= 0 {
					mu.Unlock()
					return
				}
				left--
				body, tell := load.Next()
				twice := left%6 == 0 && left > 0
				if twice {
					left--
				}
				mu.Unlock()
				var pair sync.WaitGroup
				if twice {
					pair.Go(func() { one(body, func(string) {}) })
				}
				one(body, tell)
				pair.Wait()
			}
		})
	}
	wg.Wait()
	return run
}

// onTheWay is how long after its answer a request's events may still be coming:
// an order of magnitude more than they take.
const onTheWay = 500 * time.Millisecond

// within checks every answer.
func (run *talkRun) within(t *testing.T, r *rig.Ramjet, c *rig.ResidencyCase, w *removals) {
	t.Helper()
	x := decisions(r)
	blocks := map[string]int{}
	for _, name := range r.EngineNames() {
		if e := r.EngineView(name); e.BlockTokens != nil {
			blocks[name] = *e.BlockTokens
		} else {
			t.Fatalf("the block size of %s is not known", name)
		}
	}
	notes := map[string]int{}
	var exact, equal, alone, more, less int
	for i := range run.replies {
		p := &run.replies[i]
		d := x[p.ID]
		match := d.winner().Exact
		if d.Note != nil {
			notes[*d.Note]++
		}
		if d.Keys == "exact" {
			exact++
			if p.Match != match {
				t.Errorf("request %d: %v; %+v", i, p, d.Candidates)
			}
		}
		if p.Cached == match {
			equal++
		}
		// Full blocks that requests at the same time had in common with it.
		shared := run.shared(i)
		shared -= shared % blocks[p.Engine]
		removed := w.between(p.Engine, p.Began, p.Ended)
		in := d.winner().InFlight
		switch {
		case d.winner().Trust != "exact": // its record is being read anew, or is known to be off
		case shared <= match && removed == 0:
			alone++
			if p.Cached != match {
				t.Errorf("request %d, alone: %v; %+v, shared %d", i, p, d.Candidates, shared)
			}
		case p.Cached > match:
			if more++; p.Cached > max(match, in, shared) {
				t.Errorf("request %d: %v; %+v, in flight %d, shared %d", i, p, d.Candidates, in, shared)
			}
		case p.Cached < match:
			if less++; p.Cached < match-removed*c.Block {
				t.Errorf("request %d: %v; %+v, removed %d blocks", i, p, d.Candidates, removed)
			}
		}
	}
	t.Logf("%d requests, %d by exact keys (others: %v): match = reported for %d; %d were alone; %d hit more, by what was in flight, %d less, by what was removed; cached %d of %d tokens",
		len(run.replies), exact, notes, equal, alone, more, less, run.cached, run.prompt)
	if equal < len(run.replies)/2 || exact < len(run.replies)*6/10 {
		t.Errorf("it proves little: %d by exact keys, %d equal", exact, equal)
	}
}

// shared is at most how many tokens of request i others had in common with it
// that ran on the same engine at the same time, or whose events may have been on
// their way.
func (run *talkRun) shared(i int) (tokens int) {
	p := &run.replies[i]
	for j := range run.replies {
		o := &run.replies[j]
		if j == i || o.Engine != p.Engine || o.Began.After(p.Ended) || o.Ended.Add(onTheWay).Before(p.Began) {
			continue
		}
		a, b := run.bodies[i], run.bodies[j]
		if strings.HasPrefix(a, strings.TrimSuffix(talkPrefix(b), "]")) {
			b = a // its answer may be there too
		}
		n := 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		// Bytes that are the same stand for as great a share of the tokens, or half as much again: words of answers are
		// longer than those of questions.
		tokens = max(tokens, int(float64(p.Prompt)*min(float64(n)/float64(len(talkPrefix(a)))*1.5+0.05, 1)))
	}
	return tokens
}

// talkPrefix is a body up to its messages' end.
func talkPrefix(body string) string {
	if i := strings.LastIndex(body, `,"model":`); i > 0 {
		return body[:i]
	}
	panic(fmt.Sprintf("BUG: no model behind the messages of %.100q", body))
}
