package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// steadyClients is how many requests the demo keeps under way.
const steadyClients = 6

// runSteady keeps a load of conversations running and prints one line a
// second.
func (l *load) runSteady(ctx context.Context, out io.Writer) {
	var wg sync.WaitGroup
	for worker := range steadyClients {
		wg.Go(func() {
			for n := worker; ctx.Err() == nil; n += steadyClients {
				for t := newTalk(n); t.turn < talkTurns && ctx.Err() == nil; {
					if !l.request(ctx, t) {
						// Nothing else keeps a load from asking a proxy that refuses
						// thousands of times a second.
						sleep(ctx, 100*time.Millisecond)
						break
					}
				}
			}
		})
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := l.totals()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			now := l.totals()
			fmt.Fprintln(out, now.line(&before))
			before = now
		}
	}
	wg.Wait()
}

const onceClients = 6

// runOnce runs n requests in conversations, a few at a time.
func (l *load) runOnce(ctx context.Context, n int) {
	var wg sync.WaitGroup
	talks := make(chan int)
	for range onceClients {
		wg.Go(func() {
			for first := range talks {
				t := newTalk(first / talkTurns)
				for range min(talkTurns, n-first) {
					l.request(ctx, t)
				}
			}
		})
	}
	for first := 0; first < n; first += talkTurns {
		select {
		case talks <- first:
		case <-ctx.Done():
		}
	}
	close(talks)
	wg.Wait()
}

// totals is one reading of what was served.
type totals struct {
	requests, tokens map[string]int // by engine
	active, failed   int
	known            seen
	with, without    *hdrhistogram.Histogram // copies
	at               time.Time
}

// seen are sums over requests.
type seen struct {
	requests       int
	prompt, cached int // tokens
	exact, handed  int // requests
}

func (l *load) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := totals{
		requests: map[string]int{}, tokens: map[string]int{}, active: l.active, failed: l.failed, known: l.known, at: time.Now(),
		with: copyOf(l.with), without: copyOf(l.without),
	}
	for name, e := range l.engines {
		t.requests[name], t.tokens[name] = e.requests, e.tokens
	}
	return t
}

// copyOf keeps a reading apart from what is recorded later.
func copyOf(h *hdrhistogram.Histogram) *hdrhistogram.Histogram {
	return hdrhistogram.Import(h.Export())
}

// line tells what happened since before; the times are of all that came.
func (t *totals) line(before *totals) string {
	seconds := t.at.Sub(before.at).Seconds()
	var b strings.Builder
	fmt.Fprintf(&b, "%s  in flight %2d", t.at.Format(time.TimeOnly), t.active)
	for _, name := range sortedKeys(t.requests) {
		fmt.Fprintf(&b, "   %s: %4.1f requests/s %4.0f tokens/s", name,
			float64(t.requests[name]-before.requests[name])/seconds, float64(t.tokens[name]-before.tokens[name])/seconds)
	}
	k, was := &t.known, &before.known
	fmt.Fprintf(&b, "   match %s   exact %s   handed over %d   first token %s / %s",
		share(k.cached-was.cached, k.prompt-was.prompt), share(k.exact-was.exact, k.requests-was.requests), k.handed-was.handed,
		quartile(t.with), quartile(t.without))
	if t.failed > 0 {
		fmt.Fprintf(&b, "   failed %d", t.failed)
	}
	return b.String()
}

// share writes part of whole in percent.
func share(part, whole int) string {
	if whole == 0 {
		return "   -"
	}
	return fmt.Sprintf("%3.0f%%", 100*float64(part)/float64(whole))
}

// quartile writes a lower quartile: what else is under way only adds to a time.
func quartile(h *hdrhistogram.Histogram) string {
	if h.TotalCount() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d ms", (h.ValueAtQuantile(25)+500)/1000)
}

// printTable prints what each engine served, and what was gained.
func (l *load) printTable(out io.Writer) {
	t := l.totals()
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := time.Since(l.start).Seconds()
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "engine\trequests\ttokens/s\tTTFT p50\tTTFT p99")
	total, tokens := 0, 0
	for _, name := range sortedKeys(t.requests) {
		e := l.engines[name]
		total += e.requests
		tokens += e.tokens
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\n", name, e.requests, float64(e.tokens)/seconds,
			micros(e.ttft.ValueAtQuantile(50)), micros(e.ttft.ValueAtQuantile(99)))
	}
	fmt.Fprintf(w, "all\t%d\t%.0f\t\t\n", total, float64(tokens)/seconds)
	_ = w.Flush()
	k := &t.known
	fmt.Fprintf(out, "\nmatch         %s of the prompts' tokens were cached where they were sent\n", strings.TrimSpace(share(k.cached, k.prompt)))
	fmt.Fprintf(out, "exact         %d of %d decisions went by the engines' own events\n", k.exact, k.requests)
	fmt.Fprintf(out, "handed over   %d requests' token ids\n", k.handed)
	fmt.Fprintf(out, "first token   of long prompts that came back, lower quartile: %s with ids, %s without\n", quartile(t.with), quartile(t.without))
	if l.failed > 0 {
		fmt.Fprintf(out, "%d requests failed\n", l.failed)
	}
}

func micros(v int64) string {
	return (time.Duration(v) * time.Microsecond).Round(100 * time.Microsecond).String()
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
