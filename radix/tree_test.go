package radix

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// verify checks everything that the index keeps beside what a naive one would: that every key stands once, that what
// was counted and remembered of holdings is what they are, and that nothing is left over.
func verify(t *testing.T, x *Index) {
	t.Helper()
	for _, tr := range *x.trees.Load() {
		tr.mu.Lock()
		for len(tr.garbage) > 0 {
			tr.sweep()
		}
		keys, nodes := map[uint64]bool{}, 0
		var bytes int64
		if p := tr.starts.slots.Load(); p != nil {
			bytes += slotBytes * int64(len(*p))
			for i := range *p {
				n := (*p)[i].Load()
				if n == nil || n == &tr.starts.grave {
					continue
				}
				nodes++
				bytes += verifyNode(t, tr, n, keys)
			}
		}
		if nodes != tr.starts.used {
			t.Errorf("%d edges, %d counted", nodes, tr.starts.used)
		}
		if got := tr.bytes.Load(); got != bytes {
			t.Errorf("the tree takes %d bytes, counted %d", bytes, got)
		}
		tr.mu.Unlock()
	}
	for i := range x.engines {
		if l := x.engines[i].life.Load(); l != nil {
			verifyLife(t, l)
		}
	}
}

func verifyNode(t *testing.T, tr *tree, n *node, keys map[uint64]bool) (bytes int64) {
	t.Helper()
	r := n.run.Load()
	run := r.all()
	if run[0] != n.first {
		t.Errorf("an edge begins with %x and is found by %x", run[0], n.first)
	}
	for _, k := range run {
		if keys[k] {
			t.Errorf("key %x stands twice", k)
		}
		keys[k] = true
	}
	bytes = nodeBytes + 8*int64(cap(r.keys))
	if len(n.holdings()) == 0 {
		t.Errorf("an edge of %d keys is held by nobody", len(run))
	}
	for _, h := range n.holdings() {
		bytes += refBytes + holdingBytes + h.extra
		if h.life.dead.Load() {
			t.Error("a dead engine holds something")
			continue
		}
		if h.node != n || h.life.holdings[h.id] != h || h.life.tree != tr {
			t.Error("a holding is not where it says")
		}
		shape := h.life.shape.Load()
		held, top, lead := 0, 0, len(run)
		for _, g := range h.life.groups {
			var here, first int
			for at := range len(run) + 200 {
				var has bool
				if g.Kind == GroupMamba {
					has = h.below(at+1, 1<<g.bit) == at+1
				} else if b := h.bitmap(g.bit); b != nil {
					has = b.has(at)
				}
				if has {
					here, top = here+1, max(top, at+1)
					if first == at {
						first++
					}
				}
			}
			held += here
			if g.Kind == GroupAttention {
				lead = min(lead, first)
			}
		}
		if len(shape.attention) == 0 {
			lead = 0
		}
		if held != int(h.held) || top != h.top() || lead != h.lead() || held == 0 || top > len(run) {
			t.Errorf("holds %d, the last before %d, the first %d; noted %d, %d, %d; of %d keys",
				held, top, lead, h.held, h.top(), h.lead(), len(run))
		}
	}
	return bytes
}

func verifyLife(t *testing.T, l *life) {
	t.Helper()
	entries := 0
	places := map[place]int{}
	bytes := 8 * int64(cap(l.holdings))
	for _, g := range l.groups {
		blocks := 0
		for i := range g.join.parts {
			p := &g.join.parts[i]
			bytes += lineBytes * int64(len(p.lines))
			for i := range len(line{}) * len(p.lines) {
				e := &p.lines[i/len(line{})][i%len(line{})]
				if e.copies == 0 {
					continue
				}
				entries++
				if g.join.find(e.name) != e {
					t.Errorf("the name %x is not found where it is", e.name)
				}
				if e.holding == nowhere {
					continue
				}
				blocks++
				places[place{e.holding, e.at, g.number}]++
			}
		}
		if blocks != g.Blocks {
			t.Errorf("group %d has %d blocks, counted %d", g.Index, blocks, g.Blocks)
		}
	}
	held := 0
	for _, h := range l.holdings {
		if h != nil {
			held += int(h.held)
		}
	}
	shared := 0
	for p, n := range places {
		shared += n - 1
		if l.shared[p] != int32(n-1) {
			t.Errorf("%d hashes share a place, counted %d", n, l.shared[p]+1)
		}
	}
	bytes += sharedBytes * int64(shared)
	if entries != l.entries || held != len(places) || bytes != l.bytes.Load() {
		t.Errorf("%d entries at %d places in %d bytes, counted %d at %d in %d", entries, len(places), bytes, l.entries, held, l.bytes.Load())
	}
}

// TestIndexKeepsItsWord drives four engines over forking prompts with everything that can happen, and verifies.
func TestIndexKeepsItsWord(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		x := NewIndex()
		groups := []GroupKind{GroupAttention, GroupMamba, GroupSliding, GroupAttention}[:1+r.IntN(4)]
		size := 1 + int(seed%2)*2
		prompts := [][]uint32{{1, 2, 3}}
		for range 300 {
			e := x.Engine(r.IntN(4))
			from := prompts[r.IntN(len(prompts))]
			ids := append([]uint32(nil), from[:r.IntN(len(from)+1)]...)
			for range r.IntN(30 * size) {
				ids = append(ids, r.Uint32N(3))
			}
			ids = ids[:len(ids)/size*size]
			if len(ids) > 0 && r.IntN(3) == 0 {
				prompts = append(prompts, ids)
			}
			hashes := AppendKeys(nil, 5, ids, size)
			if len(hashes) == 0 {
				continue
			}
			at := r.IntN(len(hashes))
			g := r.IntN(len(groups))
			switch what := r.IntN(100); {
			case what < 50:
				s := Store{Group: g, Kind: groups[g], BlockTokens: size, Root: 1, IDs: ids[at*size:], Hashes: hashes[at:], Window: 9}
				if s.HasParent = at > 0; s.HasParent {
					s.Parent = hashes[at-1]
				}
				if s.Kind == GroupMamba {
					s.Hashes = s.Hashes[len(s.Hashes)-1:]
				}
				e.Store(&s)
			case what < 94:
				for i := len(hashes) - 1; i >= at; i-- {
					e.Remove(g, hashes[i:i+1])
				}
			case what < 96:
				e.SetCapacity(50 + r.IntN(500))
			case what < 97:
				e.DropDoubtful()
			case what < 99:
				e.Clear()
			default:
				e.Drop()
			}
			if r.IntN(20) == 0 {
				verify(t, x)
			}
		}
		verify(t, x)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		for slot := range 4 {
			for g := range groups {
				for _, ids := range prompts {
					for hashes := AppendKeys(nil, 5, ids, size); x.Engine(slot).Remove(g, hashes) < len(hashes); {
					}
				}
			}
		}
	}
}

// TestIndexIsSmall: a million blocks in a thousand chains are a few thousand edges, and a block costs an engine at most
// 40 bytes with everything, at whatever size its tables have just grown.
func TestIndexIsSmall(t *testing.T) {
	const chains, blocks = 1000, 1030
	p := randomPrompts(chains, blocks)
	x := NewIndex()
	worst := 0.0
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for c := range chains {
		if c >= 500 { // half of them fork from another one
			n := (c - 500) / 5
			copy(p.ids[c], p.ids[c-500][:16*n])
			copy(p.hashes[c], p.hashes[c-500][:n])
		}
		p.store(x.Engine(0), c, blocks)
		if c >= 20 { // tables have just grown at some time
			worst = max(worst, float64(x.Bytes())/float64(x.Engine(0).Blocks()))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := x.Engine(0).Blocks()
	tr := (*x.trees.Load())[0]
	if held < 1_000_000 || tr.starts.used >= 5000 {
		t.Errorf("%d blocks on %d edges", held, tr.starts.used)
	}
	each, real := float64(x.Bytes())/float64(held), float64(after.HeapAlloc-before.HeapAlloc)/float64(held)
	t.Logf("%d blocks on %d edges; %.1f bytes a block by count, %.1f by the heap, %.1f at worst", held, tr.starts.used, each, real, worst)
	if worst > 40 || real > 40 || each < 0.8*real || each > 1.2*real {
		t.Errorf("a block takes %.1f bytes by count, %.1f by the heap", each, real)
	}
	// A second engine with the same blocks shares their keys.
	for c := range chains {
		p.store(x.Engine(1), c, blocks)
	}
	if both := float64(x.Bytes()) / float64(2*held); both >= each {
		t.Errorf("a block takes %.1f bytes on one engine and %.1f on each of two", each, both)
	}
	// Writes after a drop take away what it left, some each.
	x.Engine(0).Drop()
	for i := range 2000 {
		x.Engine(1).Remove(0, p.hashes[0][i%2:i%2+1])
	}
	if got := len(tr.garbage); got != 0 {
		t.Errorf("%d lists of a dropped engine are left", got)
	}
	x.Engine(1).Clear()
	x.Engine(1).Store(&Store{BlockTokens: 16, Root: 1, Hashes: []uint64{1}, IDs: make([]uint32, 16)})
	verify(t, x)
	if got := x.Bytes(); got > 20_000 {
		t.Errorf("one block takes %d bytes", got)
	}
}

// TestIndexReadersSeeTheTruth: while other engines come, fork, lose their tails and go, a prompt that one engine holds
// all the time matches wholly there, and nobody matches more than it ever held.
func TestIndexReadersSeeTheTruth(t *testing.T) {
	t.Parallel()
	p := randomPrompts(8, 300)
	for c := 1; c < 8; c++ {
		copy(p.ids[c], p.ids[0][:16*30*c])
		copy(p.hashes[c], p.hashes[0][:30*c])
	}
	x := NewIndex()
	p.store(x.Engine(0), 0, 200)
	var stop atomic.Bool
	var writers, readers sync.WaitGroup
	for slot := 1; slot <= 2; slot++ {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(slot), 1))
			e := x.Engine(slot)
			for i := range 400 {
				// Odd chains are the first writer's, even ones the second's.
				c, n := 1+2*r.IntN(4), 1+r.IntN(290)
				if slot == 2 {
					c = 2 * r.IntN(4)
				}
				p.store(e, c, n)
				for at := n - 1; at > r.IntN(n); at-- {
					e.Remove(0, p.hashes[c][at:at+1])
				}
				switch {
				case i%50 == 0:
					e.Drop()
				case i%20 == 0:
					e.Clear()
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			keys := make([][]uint64, 8)
			for c := range keys {
				keys[c] = AppendKeys(nil, 1, p.ids[c], 16)
			}
			for i := 0; !stop.Load(); i++ {
				c := i % 8
				var tokens [MaxEngines]int32
				x.Match(keys[c], 16, &tokens)
				own, shared := min(200, 30*c), 30*c
				if c == 0 {
					own, shared = 200, 210
				}
				if tokens[0] != int32(16*own) {
					t.Errorf("prompt %d matches %d tokens where %d are held all the time", c, tokens[0], 16*own)
					return
				}
				// The other sort's writer holds no more of it than what their prompts share.
				if stranger := 1 + c%2; tokens[stranger] > int32(16*shared) {
					t.Errorf("prompt %d matches %d tokens on engine %d, which never held more than %d", c, tokens[stranger], stranger, 16*shared)
					return
				}
				if i%64 == 0 {
					_, _ = x.Bytes(), x.BlockSizes(nil)
					_, _ = x.Engine(1).Blocks(), x.Engine(1).BlockTokens()
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	verify(t, x)
}

// TestIndexReusesAnEdgeUnderReaders: an edge whose end one engine gave up is cut and goes on as another prompt's.
// A reader that saw the old end must not take the new one's blocks for it.
func TestIndexReusesAnEdgeUnderReaders(t *testing.T) {
	t.Parallel()
	const whole, shared = 64, 4
	p := randomPrompts(2, whole)
	copy(p.ids[1], p.ids[0][:16*shared])
	copy(p.hashes[1], p.hashes[0][:shared])
	x := NewIndex()
	// Engine 1 holds what they share and now and then the second prompt; only engine 2 ever holds the first one.
	p.store(x.Engine(1), 1, shared)
	keys := AppendKeys(nil, 1, p.ids[0], 16)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				var tokens [MaxEngines]int32
				if x.Match(keys, 16, &tokens); tokens[1] > 16*shared {
					t.Errorf("engine 1 matches %d tokens and never held more than %d", tokens[1], 16*shared)
					return
				}
			}
		})
	}
	cuts := uint32(0)
	for range 3000 {
		p.store(x.Engine(2), 0, whole)
		p.remove(x.Engine(2), 0, whole)
		p.store(x.Engine(1), 1, whole)
		cuts = (*x.trees.Load())[0].starts.get(keys[0]).run.Load().cut
		for at := whole - 1; at >= shared; at-- {
			x.Engine(1).Remove(0, p.hashes[1][at:at+1])
		}
	}
	stop.Store(true)
	readers.Wait()
	if cuts < 1000 {
		t.Errorf("the edge was cut %d times only: the test shows nothing", cuts)
	}
}
