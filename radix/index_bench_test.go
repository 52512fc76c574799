package radix

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
)

// calibration is what xxh3 of 1 MiB costs here and now: figures of different machines are compared by their ratio to
// it.
func calibration() time.Duration {
	data := make([]byte, 1<<20)
	best := time.Hour
	for range 20 {
		begin := time.Now()
		binary.LittleEndian.PutUint64(data, xxh3.Hash(data))
		best = min(best, time.Since(begin))
	}
	return best
}

// ratio reports the time of one of each n things against the calibration loop.
func ratio(b *testing.B, n int, name string) {
	b.StopTimer()
	each := b.Elapsed().Seconds() / float64(n)
	b.ReportMetric(each/calibration().Seconds(), "calibrations/"+name)
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// operations reports block operations a second, and a second of processor time: the latter, garbage collection
// included, says on a busy machine what the former says on an idle one.
func operations(b *testing.B, n int, used time.Duration) {
	ratio(b, n, "operation")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mops/s")
	b.ReportMetric(float64(n)/used.Seconds()/1e6, "Mops/cpu-s")
}

// prompts are chains of random blocks of 16 tokens, with the hashes by which an engine names them.
type prompts struct {
	ids    [][]uint32
	hashes [][]uint64
}

func randomPrompts(chains, blocks int) *prompts {
	r := rand.New(rand.NewPCG(1, 2))
	p := &prompts{}
	for range chains {
		ids, hashes := make([]uint32, 16*blocks), make([]uint64, blocks)
		for i := range ids {
			ids[i] = r.Uint32N(150_000)
		}
		for i := range hashes {
			hashes[i] = r.Uint64()
		}
		p.ids, p.hashes = append(p.ids, ids), append(p.hashes, hashes)
	}
	return p
}

// store announces a chain to an engine in steps of at most 128 blocks (2,048 tokens), as vLLM's chunked prefill does.
func (p *prompts) store(r *Residency, chain, blocks int) {
	ids, hashes := p.ids[chain], p.hashes[chain]
	s := Store{BlockTokens: 16, Root: 1}
	for at := 0; at < blocks; at += 128 {
		end := min(at+128, blocks)
		s.Hashes, s.IDs = hashes[at:end], ids[16*at:16*end]
		if at > 0 {
			s.Parent, s.HasParent = hashes[at-1], true
		}
		r.Store(&s)
	}
}

// remove announces the chain's removal as vLLM does: the last block first, one event each.
func (p *prompts) remove(r *Residency, chain, blocks int) {
	for at := blocks - 1; at >= 0; at-- {
		r.Remove(0, p.hashes[chain][at:at+1])
	}
}

// BenchmarkIndexWrite: a million blocks in a thousand chains go into one engine's residency and out again, per block
// operation.
func BenchmarkIndexWrite(b *testing.B) {
	const chains, blocks = 1000, 1000
	p := randomPrompts(chains, blocks)
	b.ReportAllocs()
	b.ResetTimer()
	done, begin, bytes := 0, processor(), int64(0)
	for b.Loop() {
		x := NewIndex()
		r := x.Engine(0)
		for c := range chains {
			p.store(r, c, blocks)
		}
		bytes = x.Bytes()
		for c := range chains {
			p.remove(r, c, blocks)
		}
		if n := r.Blocks(); n != 0 {
			b.Fatal(n)
		}
		done += 2 * chains * blocks
	}
	operations(b, done, processor()-begin)
	b.ReportMetric(float64(bytes)/chains/blocks, "B/block")
}

// BenchmarkIndexWriteTwo: the same by two engines at once, whose trees are one.
func BenchmarkIndexWriteTwo(b *testing.B) {
	const chains, blocks = 500, 1000
	p := randomPrompts(chains, blocks)
	b.ResetTimer()
	done, begin := 0, processor()
	for b.Loop() {
		x := NewIndex()
		var both sync.WaitGroup
		for slot := range 2 {
			both.Go(func() {
				r := x.Engine(slot)
				for c := range chains {
					p.store(r, c, blocks)
				}
				for c := range chains {
					p.remove(r, c, blocks)
				}
			})
		}
		both.Wait()
		done += 4 * chains * blocks
	}
	operations(b, done, processor()-begin)
}

// BenchmarkIndexFull: an engine whose cache is full of a million blocks. A new prompt of a thousand comes in, and each
// of its blocks takes the place of one of the oldest prompt's, as vLLM's block pool does it: a step's removals come
// before its store.
func BenchmarkIndexFull(b *testing.B) {
	const chains, blocks, step = 1000, 1000, 125
	p := randomPrompts(chains+100, blocks)
	r := NewIndex().Engine(0)
	for c := range chains {
		p.store(r, c, blocks)
	}
	b.ReportAllocs()
	b.ResetTimer()
	done, begin := 0, processor()
	for c := chains; b.Loop(); c = (c + 1) % len(p.ids) {
		old := p.hashes[(c+len(p.ids)-chains)%len(p.ids)]
		s := Store{BlockTokens: 16, Root: 1}
		for at := 0; at < blocks; at += step {
			for i := blocks - at - 1; i >= blocks-at-step; i-- {
				r.Remove(0, old[i:i+1])
			}
			if s.HasParent = at > 0; s.HasParent {
				s.Parent = p.hashes[c][at-1]
			}
			s.Hashes, s.IDs = p.hashes[c][at:at+step], p.ids[c][16*at:16*(at+step)]
			r.Store(&s)
		}
		done += 2 * blocks
	}
	operations(b, done, processor()-begin)
	if n := r.Blocks(); n != chains*blocks {
		b.Fatal(n)
	}
}

// BenchmarkIndexDecode: 256 sequences grow by a block each in turn, per block.
func BenchmarkIndexDecode(b *testing.B) {
	const chains, blocks = 256, 500
	p := randomPrompts(chains, blocks)
	b.ReportAllocs()
	b.ResetTimer()
	done, begin := 0, processor()
	for b.Loop() {
		r := NewIndex().Engine(0)
		s := Store{BlockTokens: 16, Root: 1}
		for at := range blocks {
			for c := range chains {
				s.Hashes, s.IDs = p.hashes[c][at:at+1], p.ids[c][16*at:16*at+16]
				if at > 0 {
					s.Parent, s.HasParent = p.hashes[c][at-1], true
				}
				r.Store(&s)
			}
		}
		done += chains * blocks
	}
	operations(b, done, processor()-begin)
}

// warm makes an index of so many engines that hold a prompt of 6,250 blocks wholly and some others' beginnings.
func warm(engines int) (*Index, *prompts, []uint64) {
	p := randomPrompts(20, 6250)
	for i := 1; i < 20; i++ { // forks of the first, ever longer
		copy(p.ids[i], p.ids[0][:16*300*i])
		copy(p.hashes[i], p.hashes[0][:300*i])
	}
	x := NewIndex()
	for slot := range engines {
		p.store(x.Engine(slot), 0, 6250)
		p.store(x.Engine(slot), 1+slot%19, 6250)
	}
	return x, p, AppendKeys(nil, 1, p.ids[0], 16)
}

// BenchmarkIndexMatch: 100,000 tokens, warm on all engines.
func BenchmarkIndexMatch(b *testing.B) {
	for _, engines := range []int{2, 40} {
		b.Run(map[int]string{2: "engines=2", 40: "engines=40"}[engines], func(b *testing.B) {
			x, _, keys := warm(engines)
			var tokens [MaxEngines]int32
			b.ReportAllocs()
			for b.Loop() {
				x.Match(keys, 16, &tokens)
			}
			if tokens[engines-1] != 100_000 {
				b.Fatal(tokens)
			}
			ratio(b, b.N, "lookup")
		})
	}
}

// BenchmarkIndexMatchBesideWrites: 100,000 tokens, warm on two engines, while a third one's feed stores and removes as
// fast as it can, in turn with slices in which the same feed goes to another index. What reads of the first sort cost
// over those of the second is what writes cost readers; the lower quartiles of many short slices are compared, as a
// busy machine disturbs the upper ones. A feed of other prompts shares nothing but the tree; one of the same prompt
// changes the very words that are read, which costs each read the fetching of a cache line.
func BenchmarkIndexMatchBesideWrites(b *testing.B) {
	x, p, keys := warm(2)
	others := randomPrompts(2, 400)
	for i := range others.ids[1] {
		others.ids[1][i]++ // random prompts of one size are the same ones
	}
	b.Run("of=other-prompts", func(b *testing.B) { besideWrites(b, x, keys, others, 1) })
	b.Run("of=the-same-prompt", func(b *testing.B) { besideWrites(b, x, keys, p, 1) })
}

func besideWrites(b *testing.B, x *Index, keys []uint64, p *prompts, chain int) {
	indexes := [2]*Index{NewIndex(), x}
	var which, seen atomic.Int32
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			w := which.Load()
			seen.Store(w)
			p.store(indexes[w].Engine(2), chain, 400)
			p.remove(indexes[w].Engine(2), chain, 400)
		}
	}()
	var tokens [MaxEngines]int32
	var slices [2][]float64
	const each = 1000
	for i := 0; b.Loop(); i++ {
		w := int32(i % 2)
		which.Store(w)
		for seen.Load() != w {
			runtime.Gosched()
		}
		begin := time.Now()
		for range each {
			x.Match(keys, 16, &tokens)
		}
		slices[w] = append(slices[w], float64(time.Since(begin).Nanoseconds())/each)
	}
	b.StopTimer()
	stop.Store(true)
	<-done
	if tokens[1] != 100_000 {
		b.Fatal(tokens)
	}
	if len(slices[1]) == 0 {
		return
	}
	var quartile [2]float64
	for w, s := range slices {
		sort.Float64s(s)
		quartile[w] = s[len(s)/4]
	}
	b.ReportMetric(quartile[0], "ns/read-beside-others")
	b.ReportMetric(quartile[1], "ns/read-beside-writes")
	b.ReportMetric(quartile[1]/quartile[0], "ratio")
}

// BenchmarkMemoryMatch: 100,000 tokens, warm on 40 engines.
func BenchmarkMemoryMatch(b *testing.B) {
	m, keys := warmMemory()
	var held [MaxEngines]int32
	b.ReportAllocs()
	for b.Loop() {
		m.Match(keys, &held)
	}
	if held[39] != 6250 {
		b.Fatal(held)
	}
	ratio(b, b.N, "lookup")
}

// BenchmarkMemoryLearn: a session of 100,000 tokens comes back with a message of 200 more.
func BenchmarkMemoryLearn(b *testing.B) {
	m, keys := warmMemory()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if keys = append(keys, Key(uint64(i), nil)); i%12 == 11 {
			m.Learn(3, keys, 16)
		}
		if len(keys) > 12_000 {
			keys = keys[:6250]
		}
	}
}

func warmMemory() (*Memory, []uint64) {
	p := randomPrompts(1, 6250)
	m, keys := NewMemory(), AppendKeys(nil, 1, p.ids[0], 16)
	for slot := range 40 {
		for at := 100 * (slot + 1); at < len(keys); at += 1000 { // a session that grew
			m.Learn(slot, keys[:at], 16)
		}
		m.Learn(slot, keys, 16)
	}
	return m, keys
}
