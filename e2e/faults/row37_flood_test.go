package faults

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// kvFlood is a publisher's events without end, and what they leave: a naive model
// of a cache that holds so many blocks.
type kvFlood struct {
	rng   *rand.Rand
	seq   uint64
	next  uint64 // hash of the next block
	held  []uint64
	most  int
	batch []any
	sent  int // events
}

// add appends one event: a block stored behind nothing, or one removed.
func (f *kvFlood) add() {
	if len(f.held) >= f.most || len(f.held) > f.most/2 && f.rng.IntN(2) == 0 {
		at := f.rng.IntN(len(f.held))
		f.batch = append(f.batch, removed(f.held[at]))
		f.held[at] = f.held[len(f.held)-1]
		f.held = f.held[:len(f.held)-1]
		return
	}
	h := f.next | 1<<62
	f.next++
	f.batch = append(f.batch, rig.Stored(nil, []uint64{h}, rig.PromptIDs(int(f.next)+5000, 16)))
	f.held = append(f.held, h)
}

// message makes the next batch of n events.
func (f *kvFlood) message(n int) []byte {
	f.batch = f.batch[:0]
	for range n {
		f.add()
	}
	m := rig.Frames{Seq: f.seq, Payload: rig.Batch(f.batch...)}.Message()
	f.seq++
	f.sent += n
	return m
}

// TestB7Row37Flood sends a million events as fast as the socket takes them: the
// memory stays bounded, decisions take no longer than before, and afterwards the
// index is what a naive model of the cache is.
func TestB7Row37Flood(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	r, engines, pubs := rig.Scripted(t, 1<<16)
	known := rig.HashesOf(1, 200)
	ids := rig.PromptIDs(1, 3200)
	f := &kvFlood{rng: rand.New(rand.NewPCG(1, 2)), most: 20_000, seq: 1}
	for i, p := range pubs {
		blocks := 1 + 199*(1-i)
		p.Send(rig.Frames{Seq: 0, Payload: rig.Batch(rig.Stored(nil, known[:blocks], ids[:16*blocks]))})
	}
	engines[0].Hits(func([]int) int { return 3200 - 16 })
	rig.Eventually(t, rig.Patience, "the prompt is known", func() string {
		if e := r.EngineView("a"); e.Trust != "exact" || e.Blocks() < 200 {
			return fmt.Sprintf("%s, %d blocks", e.Trust, e.Blocks())
		}
		return ""
	})
	body := rig.IdsBody(ids)
	a := r.Asker(t)
	defer a.Close()
	ask := func(id string) rig.Reply {
		p := a.Post("/v1/completions", r.ID(id), body)
		if !p.Ok() {
			t.Errorf("a request failed: %v", &p)
		}
		return p
	}
	for range 50 {
		ask("warm")
	}
	var quiet []float64
	for range 400 {
		quiet = append(quiet, ask("quiet").Route)
	}
	// during sends batches and asks meanwhile.
	most, wrong := 0, 0
	during := func(id string, send func(b []byte), batches [][]byte) (route []float64, took time.Duration) {
		began := time.Now()
		var sent atomic.Bool
		go func() {
			for _, b := range batches {
				stamp(b)
				send(b)
			}
			sent.Store(true)
		}()
		for !sent.Load() {
			p := ask(id)
			route = append(route, p.Route)
			if p.Match != p.Cached {
				wrong++
			}
			if len(route)%50 == 0 {
				most = max(most, r.RSS())
			}
		}
		return route, time.Since(began)
	}
	// Whoever sends a flood takes a processor, and whoever reads it another. What that costs shows when the same bytes
	// go elsewhere.
	elsewhere := sink(t)
	// Whatever else runs on the machine can only lengthen the tail, so the best of some floods counts.
	for try := range 5 {
		batches := make([][]byte, n/500)
		for i := range batches {
			batches[i] = f.message(500)
		}
		aside, _ := during("aside", func(b []byte) { _, _ = elsewhere.Write(b) }, batches)
		began := time.Now()
		busy, took := during("flood", pubs[0].Raw, batches)
		var e rig.EngineView
		rig.Eventually(t, 6*rig.Patience, "all is applied", func() string {
			if e = r.EngineView("a"); e.Trust == "blind" {
				return ""
			}
			if want := len(f.held) + 200; e.Trust != "exact" || e.Blocks() != want {
				return fmt.Sprintf("%s (%s), %d blocks, the model has %d", e.Trust, e.TrustReason, e.Blocks(), want)
			}
			return ""
		})
		applied := time.Since(began)
		if got := r.Metrics().Sum("ramjet_kv_events_total", "engine", "a"); e.Trust == "exact" && int(got) != f.sent+1 {
			t.Errorf("%v events counted, want %d", got, f.sent+1)
		}
		q99, a99, b99 := quantile(quiet, 0.99), quantile(aside, 0.99), quantile(busy, 0.99)
		t.Logf("%d events sent in %v, applied after %v: %s; route p50 %.0f us quiet, %.0f us while the bytes go elsewhere (%d requests), %.0f us flooded (%d); p99 %.0f, %.0f, %.0f us; %d MB at most; %d wrong matches",
			n, took.Round(time.Millisecond), applied.Round(time.Millisecond), e.Trust, 1e6*quantile(quiet, 0.5), 1e6*quantile(aside, 0.5), len(aside),
			1e6*quantile(busy, 0.5), len(busy), 1e6*q99, 1e6*a99, 1e6*b99, max(most, r.RSS())>>20, wrong)
		ratio := b99 / max(q99, a99, 2e-3) // below two milliseconds the scheduler is measured
		if ratio <= 3 {
			break
		}
		if try == 4 {
			t.Errorf("route p99 is %.1f x while flooded", ratio)
		}
	}
	if most = max(most, r.RSS()); most > 400<<20 {
		t.Errorf("%d MB resident", most>>20)
	}
	if wrong > 0 {
		t.Errorf("%d matches were not what was reported", wrong)
	}
	// The model agrees block by block: what it holds is found, what it removed is not.
	in := map[uint64]bool{}
	for _, h := range f.held {
		in[h] = true
	}
	for i := range uint64(200) {
		h := (f.next - 1 - i*(f.next/200)) | 1<<62
		k := int(h&^(1<<62)) + 5001
		engines[0].Hits(func([]int) int { return map[bool]int{true: 16}[in[h]] })
		p := a.Post("/v1/completions", r.ID("check"), rig.IdsBody(rig.PromptIDs(k, 17)))
		d := r.Explain(t, p.ID)
		if len(d.Candidates) == 0 || d.Candidates[0].Exact != map[bool]int{true: 16}[in[h]] {
			t.Errorf("block %d: %+v, in the model %v", h&^(1<<62), d.Candidates, in[h])
		}
	}
}

// quantile of values, by the nearest rank.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// TestB7Row38IndexAtItsCap announces many more blocks than the engine's cache
// can hold, in prefixes made to part at every block and in one deep chain: the
// index keeps to the cache's size, and lookups take no longer for it.
func TestB7Row38IndexAtItsCap(t *testing.T) {
	t.Parallel()
	const most = 4000
	n := 300_000
	if testing.Short() {
		n = 60_000
	}
	r, engines, pubs := rig.Scripted(t, most)
	rig.Eventually(t, 2*rig.Patience, "the cache's size is known", func() string {
		if e := r.EngineView("a"); e.KVBlocks == nil || *e.KVBlocks != most {
			return fmt.Sprintf("kv_blocks %v", e.KVBlocks)
		}
		return ""
	})
	a := r.Asker(t)
	defer a.Close()
	long, short := rig.IdsBody(rig.PromptIDs(3, 48_000)), rig.IdsBody(rig.PromptIDs(3, 4800))
	ask := func(body string) float64 {
		var all []float64
		for range 30 {
			p := a.Post("/v1/completions", r.ID("cap"), body)
			if !p.Ok() {
				t.Fatalf("a request failed: %v", &p)
			}
			all = append(all, p.Route)
		}
		return quantile(all, 0.5)
	}
	p := pubs[0]
	seq := uint64(0)
	send := func(events ...any) {
		p.Raw(rig.Frames{Seq: seq, Payload: rig.Batch(events...)}.Message())
		seq++
	}
	// A deep chain: 3,000 blocks of the long prompt.
	deep := rig.HashesOf(3, 3000)
	ids := rig.PromptIDs(3, 48_000)
	send(rig.Stored(nil, deep, ids))
	engines[0].Hits(func(ids []int) int { return len(ids) - 16 })
	rig.Eventually(t, rig.Patience, "the chain", func() string {
		if e := r.EngineView("a"); e.Blocks() != 3000 {
			return fmt.Sprintf("%d blocks", e.Blocks())
		}
		return ""
	})
	before, beforeShort := ask(long), ask(short)
	// Prefixes that part from it at every block, and from each other.
	hash := uint64(1) << 61
	rng := rand.New(rand.NewPCG(3, 3))
	for done := 0; done < n; {
		var events []any
		for range 500 {
			at := rng.IntN(len(deep))
			events = append(events, rig.Stored(deep[at], []uint64{hash}, rig.PromptIDs(int(hash%1e6)+7000, 16)))
			hash++
			done++
		}
		send(events...)
	}
	counted := func() string {
		if got := int(r.Metrics().Sum("ramjet_kv_events_total", "engine", "a", "kind", "stored")); got != n+1 {
			return fmt.Sprintf("%d events applied of %d", got, n+1)
		}
		return ""
	}
	rig.Eventually(t, 6*rig.Patience, "all is applied", counted)
	var e rig.EngineView
	rig.Eventually(t, rig.Patience, "an engine that announces what its cache cannot hold is degraded", func() string {
		if e = r.EngineView("a"); e.Trust != "degraded" || !strings.Contains(e.TrustReason, "than the cache holds") {
			return "it is " + e.Trust + ": " + e.TrustReason
		}
		return ""
	})
	bytes := r.Metrics().Sum("ramjet_index_bytes")
	after, afterShort := ask(long), ask(short)
	t.Logf("%d blocks announced, %d of at most %d kept, %.0f KB, %d MB resident; route of 48,000 tokens %.0f us before, %.0f us after, of 4,800 %.0f and %.0f us; %s (%s)",
		n, e.Blocks(), most, bytes/1024, r.RSS()>>20, 1e6*before, 1e6*after, 1e6*beforeShort, 1e6*afterShort, e.Trust, e.TrustReason)
	if e.Blocks() > most || bytes > most*1024 {
		t.Errorf("%d blocks in %.0f bytes, the cache holds %d", e.Blocks(), bytes, most)
	}
	if after > 5*max(before, 2e-3) || afterShort > 5*max(beforeShort, 2e-3) {
		t.Errorf("route took %.0f us, before %.0f us; for a tenth of the prompt %.0f us, before %.0f us", 1e6*after, 1e6*before, 1e6*afterShort, 1e6*beforeShort)
	}
	if n := r.RSS(); n > 300<<20 {
		t.Errorf("%d MB resident", n>>20)
	}
}

// sink is a connection to somebody who reads and forgets.
func sink(t testing.TB) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
