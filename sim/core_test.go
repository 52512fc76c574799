package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// finish steps a core that does not run, without a clock, until its sequences are done.
func finish(t *testing.T, c *Core) {
	t.Helper()
	for range 100_000 {
		if _, ok := c.schedule(); !ok {
			c.publish()
			return
		}
		c.complete()
	}
	t.Fatal("the core does not come to an end")
}

// serve runs one job on a core that does not run, alone.
func serve(t *testing.T, c *Core, j Job) (*Sequence, Output) {
	t.Helper()
	s := c.Submit(j)
	finish(t, c)
	out, err := readAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, out
}

// recorder is an observer that keeps everything.
type recorder struct {
	events []string
	stored map[blockKey]int // copies
	tokens map[uint64][]uint32
}

func newRecorder() *recorder {
	return &recorder{stored: map[blockKey]int{}, tokens: map[uint64][]uint32{}}
}

func (r *recorder) Stored(b StoredBlocks) {
	r.events = append(r.events, fmt.Sprintf("stored %d", len(b.Hashes)))
	size := b.BlockTokens
	prefix := r.tokens[b.Parent]
	if !b.HasParent {
		prefix = nil
	}
	skipped := len(b.Tokens)/size - len(b.Hashes) // a mamba group's one hash is that of the span's end
	for i := range len(b.Tokens) / size {
		prefix = append(slices.Clone(prefix), b.Tokens[i*size:(i+1)*size]...)
		if i < skipped {
			continue
		}
		h := b.Hashes[i-skipped]
		r.tokens[h] = prefix
		r.stored[blockKey{h, int32(b.Group)}]++
	}
}

func (r *recorder) Offloaded(_, _ []uint64) {}
func (r *recorder) Restarted()              { r.events = append(r.events, "restarted") }

func (r *recorder) Removed(group int, h uint64) {
	r.events = append(r.events, fmt.Sprintf("removed %d", len(r.tokens[h])))
	r.stored[blockKey{h, int32(group)}]--
}

func (r *recorder) Cleared() { r.events = append(r.events, "cleared"); clear(r.stored) }
func (r *recorder) StepEnd() { r.events = append(r.events, "step") }

// prefixHeld is the number of whole blocks of prompt that the recorder believes cached.
func (r *recorder) prefixHeld(prompt []uint32, size int) int {
	n := 0
	for ; (n+1)*size <= len(prompt); n++ {
		found := false
		for key, copies := range r.stored {
			found = found || copies > 0 && slices.Equal(r.tokens[key.hash], prompt[:(n+1)*size])
		}
		if !found {
			break
		}
	}
	return n
}

// TestHitRules repeats a prompt: all but the last token can hit, in whole blocks, less one block with MTP.
func TestHitRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile       string
		block, prompt int
		want          int
	}{
		{ProfileStandard, 16, 1, 0},
		{ProfileStandard, 16, 16, 0},
		{ProfileStandard, 16, 17, 16},
		{ProfileStandard, 32, 256, 224}, // as captured: an aligned prompt recomputes its last block
		{ProfileStandard, 160, 480, 320},
		{ProfileStandard, 32, 150, 128},
		{ProfileMTP, 16, 17, 0},
		{ProfileMTP, 16, 33, 16},
		{ProfileMTP, 800, 15999, 14400}, // as reported: max(0, floor((L-1)/B)-1) x B
		{ProfileMTP, 800, 16000, 14400},
		{ProfileMTP, 800, 16001, 15200},
	} {
		core := NewCore(CoreOptions{Profile: c.profile, BlockTokens: c.block})
		prompt := promptOf(1, c.prompt)
		first, _ := serve(t, core, Job{Prompt: prompt, MaxTokens: 1})
		again, _ := serve(t, core, Job{Prompt: prompt, MaxTokens: 1})
		if first.Cached() != 0 || again.Cached() != c.want {
			t.Errorf("%s, block %d, prompt %d: %d, then %d cached, wanted 0, then %d", c.profile, c.block, c.prompt, first.Cached(), again.Cached(), c.want)
		}
	}
}

// TestGeneratedBlocksAreCached: the next turn hits the answer too, as far as it was computed into full blocks.
func TestGeneratedBlocksAreCached(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{})
	prompt := promptOf(1, 32)
	_, out := serve(t, c, Job{Prompt: prompt, MaxTokens: 49})
	// 32 + 49 tokens, of which the last was never computed: 80, exactly five blocks.
	next, _ := serve(t, c, Job{Prompt: slices.Concat(prompt, out.Tokens, promptOf(2, 20)), MaxTokens: 1})
	if next.Cached() != 80 {
		t.Errorf("%d cached, wanted 80", next.Cached())
	}
	_, out = serve(t, c, Job{Prompt: promptOf(3, 32), MaxTokens: 48})
	next, _ = serve(t, c, Job{Prompt: slices.Concat(promptOf(3, 32), out.Tokens, promptOf(2, 20)), MaxTokens: 1})
	if next.Cached() != 64 {
		t.Errorf("%d cached, wanted 64: the fifth block lacked its last token", next.Cached())
	}
}

func TestSaltAndAdapterIsolate(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{})
	prompt := promptOf(1, 100)
	for _, j := range []struct {
		salt, lora string
		want       int
	}{{"", "", 0}, {"a", "", 0}, {"", "a", 0}, {"a", "", 96}, {"", "", 96}, {"", "a", 96}, {"b", "", 0}} {
		if s, _ := serve(t, c, Job{Prompt: prompt, MaxTokens: 1, Salt: j.salt, LoRA: j.lora}); s.Cached() != j.want {
			t.Errorf("salt %q, adapter %q: %d cached, wanted %d", j.salt, j.lora, s.Cached(), j.want)
		}
	}
}

// TestHerd: of equal prompts that come at once one is prefilled, since blocks can be hit from when they are allocated.
// Four of 150 tokens with blocks of 32 gave 0, 128, 128, 128 cached on vLLM 0.32.
func TestHerd(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{BlockTokens: 32})
	var all []*Sequence
	for range 4 {
		all = append(all, c.Submit(Job{Prompt: promptOf(1, 150), MaxTokens: 5}))
	}
	finish(t, c)
	var cached []int
	for _, s := range all {
		cached = append(cached, s.Cached())
	}
	if !slices.Equal(cached, []int{0, 128, 128, 128}) {
		t.Errorf("cached %v", cached)
	}
	if got := c.Stats(); got.PrefillTokens != 150+3*22 || got.CachedTokens != 3*128 || got.QueryTokens != 600 {
		t.Errorf("%+v", got)
	}
}

// TestEvictionOrder: least recently used chain first, and of a chain its tail first, inside the step that needs the
// blocks and before what it stores.
func TestEvictionOrder(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	c := NewCore(CoreOptions{KVBlocks: 12, Observer: r})
	a, b := promptOf(1, 64), promptOf(2, 64)
	serve(t, c, Job{Prompt: a, MaxTokens: 1})
	serve(t, c, Job{Prompt: b, MaxTokens: 1})
	serve(t, c, Job{Prompt: a, MaxTokens: 1}) // a is younger than b; its last block exists twice
	r.events = nil
	serve(t, c, Job{Prompt: promptOf(3, 96), MaxTokens: 1})
	// Free before: three never used, a's old last block (only the others were used again), b's four from the tail on,
	// a's new last block, its other three.
	want := []string{"removed 64", "removed 64", "removed 48", "stored 6", "step"}
	if !slices.Equal(r.events, want) {
		t.Errorf("events %v, wanted %v", r.events, want)
	}
	if r.prefixHeld(b, 16) != 2 || r.prefixHeld(a, 16) != 4 {
		t.Errorf("%d blocks of b, %d of a are left, wanted 2 and 4", r.prefixHeld(b, 16), r.prefixHeld(a, 16))
	}
}

// TestEventsPredictHits: what an observer hears is enough to know each request's cached tokens, under eviction.
func TestEventsPredictHits(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{ProfileStandard, ProfileMTP} {
		r := newRecorder()
		c := NewCore(CoreOptions{Profile: profile, BlockTokens: 4, KVBlocks: 24, MaxBatchTokens: 16, Observer: r})
		random := rand.New(rand.NewPCG(1, 2))
		history := [][]uint32{{}}
		for i := range 400 {
			base := history[random.IntN(len(history))]
			prompt := slices.Concat(base[:random.IntN(len(base)+1)], promptOf(i, 1+random.IntN(12)))
			if len(prompt) > 60 {
				prompt = prompt[:60]
			}
			want := min(r.prefixHeld(prompt, 4), (len(prompt)-1)/4)
			if profile == ProfileMTP {
				want = max(0, want-1)
			}
			s, out := serve(t, c, Job{Prompt: prompt, MaxTokens: 1 + random.IntN(20)})
			if s.Cached() != want*4 {
				t.Fatalf("%s, request %d: %d cached, the events said %d", profile, i, s.Cached(), want*4)
			}
			if random.IntN(10) == 0 {
				c.Evict(3)
			}
			history = append(history, slices.Concat(prompt, out.Tokens))
		}
		if got := c.Stats(); got.CachedTokens == 0 || got.KVBlocksUsed != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestPreemption: two sequences that cannot both grow. The younger one gives way, comes back and loses no token.
func TestPreemption(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{ProfileStandard, ProfileMTP} {
		c := NewCore(CoreOptions{Profile: profile, BlockTokens: 4, KVBlocks: 30, Seed: 3})
		a := c.Submit(Job{Prompt: promptOf(1, 40), MaxTokens: 60})
		b := c.Submit(Job{Prompt: promptOf(2, 40), MaxTokens: 60})
		finish(t, c)
		for i, s := range []*Sequence{a, b} {
			out, err := readAll(s)
			if err != nil || out.FinishReason != FinishLength || !slices.Equal(out.Tokens, ExpectedTokens(3, promptOf(i+1, 40), 60)) {
				t.Errorf("%s, sequence %d: error %v, %q after %d tokens", profile, i, err, out.FinishReason, len(out.Tokens))
			}
			if s.Cached() != 0 {
				t.Errorf("%s, sequence %d: %d cached: only the first admission counts", profile, i, s.Cached())
			}
		}
		if got := c.Stats(); got.Preempted == 0 || got.KVBlocksUsed != 0 || got.QueryTokens != 80 || got.OutputTokens != 120 {
			t.Errorf("%s: %+v", profile, got)
		}
	}
}

// TestPreemptedGoesFirst: what was preempted is the first in the queue, and the blocks that it left are not given to
// others in the same step.
func TestPreemptedGoesFirst(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{BlockTokens: 4, KVBlocks: 30, MaxSeqs: 2})
	a := c.Submit(Job{Prompt: promptOf(1, 40), MaxTokens: 60})
	b := c.Submit(Job{Prompt: promptOf(2, 40), MaxTokens: 60})
	late := c.Submit(Job{Prompt: promptOf(3, 2), MaxTokens: 60})
	for c.stats.Preempted == 0 {
		c.schedule()
		if c.stats.Preempted == 0 {
			c.complete()
		}
	}
	if !slices.Equal(c.active, []*Sequence{a}) || !slices.Equal(c.waiting, []*Sequence{b, late}) {
		t.Errorf("%d running, %d waiting; wanted the first, and the two others in their order", len(c.active), len(c.waiting))
	}
	c.complete()
	finish(t, c)
}

// TestBudget: a step holds at most MaxBatchTokens; what decodes goes first, the rest is for chunks of prompts, in the
// order of their arrival.
func TestBudget(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{MaxBatchTokens: 100, MaxSeqs: 3})
	c.Submit(Job{Prompt: promptOf(1, 30), MaxTokens: 50})
	var got []stepLoad
	for range 6 {
		load, _ := c.schedule()
		load.kvTokens = 0
		got = append(got, load)
		c.complete()
		if len(got) == 1 {
			c.Submit(Job{Prompt: promptOf(2, 250), MaxTokens: 50})
			c.Submit(Job{Prompt: promptOf(3, 40), MaxTokens: 50})
			c.Submit(Job{Prompt: promptOf(4, 40), MaxTokens: 50})
		}
	}
	want := []stepLoad{
		{prefillTokens: 30},
		{decodes: 1, prefillTokens: 99},
		{decodes: 1, prefillTokens: 99},
		{decodes: 1, prefillTokens: 52 + 40},
		{decodes: 3}, // the fourth waits for a place
		{decodes: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps %+v, wanted %+v", got, want)
	}
	c.publish()
	if s := c.Stats(); s.Running != 3 || s.Waiting != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{KVBlocks: 4, Profile: ProfileMTP})
	if got := c.Options().MaxModelLen; got != 61 {
		t.Fatalf("model length %d: 64 less the drafts", got)
	}
	for n, want := range map[int]error{0: ErrEmptyPrompt, 61: ErrPromptTooLong, 1000: ErrPromptTooLong, 60: nil} {
		s := c.Submit(Job{Prompt: promptOf(1, n)})
		finish(t, c)
		out, err := readAll(s)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("prompt of %d: error %v, wanted %v", n, err, want)
		}
		if want == nil && (len(out.Tokens) != 1 || out.FinishReason != FinishLength) {
			t.Errorf("prompt of %d: %d tokens, %q", n, len(out.Tokens), out.FinishReason)
		}
	}
	// Without a cap, or with one beyond it, the model's length ends the answer.
	for _, most := range []int{0, 1000} {
		if _, out := serve(t, c, Job{Prompt: promptOf(1, 20), MaxTokens: most}); len(out.Tokens) != 41 {
			t.Errorf("cap %d: %d tokens, wanted 41", most, len(out.Tokens))
		}
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{Seed: 9})
	prompt := promptOf(1, 20)
	natural := NaturalLength(9, PromptHash(prompt))
	plain := ExpectedTokens(9, prompt, natural+100)
	for _, j := range []struct {
		name   string
		job    Job
		length int
		reason string
	}{
		{"natural", Job{MaxTokens: 1000, NaturalStop: true}, natural, FinishStop},
		{"cap first", Job{MaxTokens: natural - 1, NaturalStop: true}, natural - 1, FinishLength},
		{"both at once", Job{MaxTokens: natural, NaturalStop: true}, natural, FinishStop},
		{"ignored", Job{MaxTokens: natural + 50, NaturalStop: true, IgnoreEOS: true}, natural + 50, FinishLength},
		{"minimum", Job{MaxTokens: 1000, NaturalStop: true, MinTokens: natural + 20}, natural + 21, FinishStop},
		{"stop token", Job{MaxTokens: 50, StopTokens: []uint32{1, plain[7]}}, slices.Index(plain, plain[7]) + 1, FinishStop},
		{"stop token too early", Job{MaxTokens: 50, StopTokens: plain[7:8], MinTokens: 40}, 50, FinishLength},
		{"none", Job{MaxTokens: natural + 99}, natural + 99, FinishLength},
	} {
		j.job.Prompt = prompt
		_, out := serve(t, c, j.job)
		want := slices.Clone(plain[:j.length])
		if j.job.NaturalStop && j.reason == FinishStop {
			want[j.length-1] = EndOfTurn()
		}
		if !slices.Equal(out.Tokens, want) || out.FinishReason != j.reason {
			t.Errorf("%s: %d tokens, %q, wanted %d, %q", j.name, len(out.Tokens), out.FinishReason, j.length, j.reason)
		}
	}
}

// TestSlowReader gets several steps at once, the first token once, and the end again and again.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{Profile: ProfileMTP})
	s := c.Submit(Job{Prompt: promptOf(1, 20), MaxTokens: 30})
	step := func() { c.schedule(); c.complete() }
	step()
	first, err := s.Next(context.Background())
	if err != nil || !first.First || len(first.Tokens) != 1 || first.Finished {
		t.Errorf("first output %+v, error %v", first, err)
	}
	for range 4 {
		step()
	}
	many, _ := s.Next(context.Background())
	if many.First || len(many.Tokens) != 10 {
		t.Errorf("after four steps %+v", many)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Next(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	finish(t, c)
	rest, _ := s.Next(context.Background())
	again, err := s.Next(context.Background())
	if !rest.Finished || len(rest.Tokens) != 19 || !again.Finished || len(again.Tokens) != 0 || again.FinishReason != FinishLength || err != nil {
		t.Errorf("end %+v, then %+v, error %v", rest, again, err)
	}
	if got := c.Stats(); got.AcceptedTokens+got.Drafts+1 < got.OutputTokens || got.DraftTokens != 3*got.Drafts || got.AcceptedPerPos[0] < got.AcceptedPerPos[2] || got.AcceptedPerPos[2] == 0 {
		t.Errorf("%+v", got)
	}
}

// TestSoak: random sequences, aborts and evictions on a small cache. After each step the references are what the
// sequences hold, and an observer's count of copies is what the cache holds; every answer is whole.
func TestSoak(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 3))
		rec := newRecorder()
		o := CoreOptions{Profile: []string{ProfileStandard, ProfileMTP}[seed%2], BlockTokens: 4, KVBlocks: 40, MaxBatchTokens: 32, MaxSeqs: 5, Seed: seed, Observer: rec}
		c := NewCore(o)
		type job struct {
			s      *Sequence
			prompt []uint32
			n      int
			gone   bool
		}
		var jobs []*job
		for range 800 {
			switch random.IntN(8) {
			case 0, 1:
				j := &job{prompt: promptOf(random.IntN(4), 1+random.IntN(80)), n: 1 + random.IntN(60)}
				j.n = min(j.n, c.Options().MaxModelLen-len(j.prompt))
				j.s = c.Submit(Job{Prompt: j.prompt, MaxTokens: j.n})
				jobs = append(jobs, j)
			case 2:
				if j := jobs; len(j) > 0 && random.IntN(2) == 0 {
					j[len(j)-1].s.Abort()
					j[len(j)-1].gone = true
				} else {
					c.Evict(random.IntN(4))
				}
			default:
				if _, ok := c.schedule(); ok {
					c.complete()
				}
			}
			checkCore(t, c, rec)
		}
		finish(t, c)
		checkCore(t, c, rec)
		for i, j := range jobs {
			out, err := readAll(j.s)
			whole := ExpectedTokens(seed, j.prompt, j.n)
			if err != nil || !j.gone && !slices.Equal(out.Tokens, whole) || j.gone && !slices.Equal(out.Tokens, whole[:len(out.Tokens)]) {
				t.Errorf("seed %d, job %d: error %v, %d tokens of %d", seed, i, err, len(out.Tokens), j.n)
			}
		}
		if s := c.Stats(); s.KVBlocksUsed != 0 || s.Requests != uint64(len(jobs)) || s.Finished+s.Aborted != s.Requests || s.Preempted == 0 {
			t.Errorf("seed %d: %+v", seed, s)
		}
	}
}

func checkCore(t *testing.T, c *Core, rec *recorder) {
	t.Helper()
	refs := make([]int32, len(c.cache.blocks))
	for _, s := range c.active {
		if held := len(s.blocks[c.attention]); held*c.o.BlockTokens < s.computed {
			t.Fatalf("%d computed tokens in %d blocks", s.computed, held)
		}
		for _, id := range slices.Concat(s.blocks...) {
			if id != none {
				refs[id]++
			}
		}
	}
	for id := range refs {
		if c.cache.blocks[id].refs != refs[id] {
			t.Fatalf("block %d has %d references, sequences hold %d", id, c.cache.blocks[id].refs, refs[id])
		}
	}
	copies := 0
	for key, n := range rec.stored {
		if n < 0 || c.cache.holds(key.group, key.hash) != (n > 0) {
			t.Fatalf("the events count %d copies of a block", n)
		}
		copies += n
	}
	if copies != c.cache.cached {
		t.Fatalf("%d copies by the events, %d in the cache", copies, c.cache.cached)
	}
}

func TestNewCorePanics(t *testing.T) {
	t.Parallel()
	for _, o := range []CoreOptions{{Profile: "turbo"}, {KVBlocks: -1}, {Speed: -2}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", o)
				}
			}()
			NewCore(o)
		}()
	}
}

func TestTokenizeTime(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{Speed: 4})
	with, without := c.FrontendTime(92_900)+c.TokenizeTime(92_900), c.FrontendTime(92_900)
	if with.Round(time.Microsecond) != 34500*time.Microsecond || without.Round(time.Microsecond) != 9625*time.Microsecond {
		t.Errorf("%v, with ids %v for 92,900 tokens at speed 4", with, without)
	}
}

// TestDeterminism: the same requests at the same times give the same outputs at the same times.
func TestDeterminism(t *testing.T) {
	run := func() (log []string) {
		synctest.Test(t, func(t *testing.T) {
			c := startCore(t, CoreOptions{Profile: ProfileMTP, KVBlocks: 60, Seed: 1, MaxBatchTokens: 64})
			begin := time.Now()
			lines := make([][]string, 12)
			done := make(chan int)
			for i := range lines {
				go func() {
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					s := c.Submit(Job{Prompt: promptOf(i/2, 100), MaxTokens: 80})
					for {
						out, err := s.Next(context.Background())
						lines[i] = append(lines[i], fmt.Sprint(i, time.Since(begin), out, err, s.Cached()))
						if out.Finished || err != nil {
							break
						}
					}
					done <- i
				}()
			}
			for range lines {
				<-done
			}
			log = slices.Concat(lines...)
		})
		return log
	}
	first := run()
	for range 3 {
		if again := run(); !slices.Equal(first, again) {
			t.Fatal("two runs differ")
		}
	}
	if len(first) < 200 {
		t.Errorf("only %d outputs", len(first))
	}
}
