package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ledger is an observer that counts the copies of every content, by group and by all tokens that the content's hash
// covers, as text: what a client of the events can know.
type ledger struct {
	size   int
	names  map[uint64]string // of a hash: the tokens up to the block's end, a bar, those behind it
	prefix map[uint64]string // of a hash: the tokens alone
	held   []map[string]int
	kinds  map[int]string
	spans  []string // group:blocks in the span:hashes, of each store
}

func newLedger(groups, size int) *ledger {
	l := &ledger{size: size, names: map[uint64]string{}, prefix: map[uint64]string{}, kinds: map[int]string{}}
	for range groups {
		l.held = append(l.held, map[string]int{})
	}
	return l
}

func spell(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%d,", id)
	}
	return b.String()
}

func (l *ledger) Stored(b StoredBlocks) {
	l.kinds[b.Group] = b.Kind
	blocks := len(b.Tokens) / l.size
	l.spans = append(l.spans, fmt.Sprintf("%d:%d:%d", b.Group, blocks, len(b.Hashes)))
	text := ""
	if b.HasParent {
		text = l.prefix[b.Parent]
	}
	for i := range blocks {
		text += spell(b.Tokens[i*l.size : (i+1)*l.size])
		at := i - (blocks - len(b.Hashes))
		if at < 0 {
			continue
		}
		h := b.Hashes[at]
		l.prefix[h], l.names[h] = text, text+"|"
		if b.Lookahead > 0 {
			l.names[h] += spell(b.Behind[at*l.size : at*l.size+b.Lookahead])
		}
		l.held[b.Group][l.names[h]]++
	}
}

func (l *ledger) Removed(group int, h uint64) {
	if l.held[group][l.names[h]]--; l.held[group][l.names[h]] < 0 {
		panic("removed more often than stored")
	}
}

func (l *ledger) Cleared() {
	for _, h := range l.held {
		clear(h)
	}
}

func (l *ledger) StepEnd()                {}
func (l *ledger) Offloaded(_, _ []uint64) {}
func (l *ledger) Restarted()              { l.Cleared() }

// has says whether a group holds the n-th block boundary of a prompt.
func (l *ledger) has(group int, prompt []uint32, n, lookahead int) bool {
	return l.held[group][spell(prompt[:n*l.size])+"|"+spell(prompt[n*l.size:min(n*l.size+lookahead, len(prompt))])] > 0
}

// expect is a hit by its definition: the longest boundary short of the last token up to which attention holds all
// blocks, with the dropped one behind, and at which every mamba group has its state.
func (l *ledger) expect(prompt []uint32, drop, lookahead int) (best int) {
	for c := 1; c*l.size < len(prompt) && c*l.size+lookahead <= len(prompt); c++ {
		ok := len(l.kinds) > 0
		for g, kind := range l.kinds {
			if kind == kindMamba {
				ok = ok && l.has(g, prompt, c, lookahead)
				continue
			}
			for n := 1; n <= c+drop; n++ {
				// In a plain model the last token's block cannot be the dropped one.
				within := n*l.size < len(prompt) || len(l.kinds) > 1 && n*l.size == len(prompt)
				ok = ok && within && l.has(g, prompt, n, lookahead)
			}
		}
		if ok {
			best = c
		}
	}
	return best * l.size
}

var groupCases = []CoreOptions{
	{},
	{Profile: ProfileMTP},
	{Profile: ProfileMTP, Lookahead: 1},
	{Profile: ProfileMTP, Lookahead: 3},
	{Hybrid: "mmma"},
	{Hybrid: "am"},
	{Hybrid: "mam", Profile: ProfileMTP},
	{Hybrid: "ma", Profile: ProfileMTP, Lookahead: 1},
}

// TestGroupsPredictHits: what the events say is enough to know each request's cached tokens, with evictions, forks and
// chunked prompts, for every order of groups.
func TestGroupsPredictHits(t *testing.T) {
	t.Parallel()
	for _, o := range groupCases {
		t.Run(fmt.Sprintf("%s-%s-%d", o.Hybrid, o.Profile, o.Lookahead), func(t *testing.T) {
			t.Parallel()
			l := newLedger(max(len(o.Hybrid), 1), 4)
			o.BlockTokens, o.KVBlocks, o.MaxBatchTokens, o.Observer = 4, 44, 18, l
			c := NewCore(o)
			random := rand.New(rand.NewPCG(1, 2))
			history := [][]uint32{promptOf(0, 40)}
			hits, partial := 0, 0
			for i := range 1200 {
				base := history[max(0, len(history)-1-random.IntN(6))]
				prompt := slices.Concat(base[:random.IntN(len(base)+1)], promptOf(i, 1+random.IntN(14)))
				prompt = prompt[:min(len(prompt), 70)]
				want := l.expect(prompt, c.dropped(), o.Lookahead)
				s, out := serve(t, c, Job{Prompt: prompt, MaxTokens: 1 + random.IntN(20)})
				if s.Cached() != want {
					t.Fatalf("request %d of %d tokens: %d cached, the events said %d", i, len(prompt), s.Cached(), want)
				}
				if want > 0 {
					hits++
					if want+4 < len(prompt) {
						partial++
					}
				}
				if random.IntN(10) == 0 {
					c.Evict(3)
				}
				history = append(history, slices.Concat(prompt, out.Tokens))
			}
			if hits < 100 || partial < 50 || c.Stats().KVBlocksUsed != 0 {
				t.Errorf("%d hits, %d partial ones, %+v", hits, partial, c.Stats())
			}
		})
	}
}

// TestGroupsSoak: as TestSoak, with groups and lookahead: references, copies and answers stay whole under preemption,
// aborts and evictions.
func TestGroupsSoak(t *testing.T) {
	t.Parallel()
	for i, o := range groupCases {
		random := rand.New(rand.NewPCG(uint64(i), 3))
		rec := newRecorder()
		o.BlockTokens, o.KVBlocks, o.MaxBatchTokens, o.MaxSeqs, o.Observer = 4, 60, 32, 5, rec
		c := NewCore(o)
		var all []*Sequence
		var prompts [][]uint32
		for range 800 {
			switch random.IntN(8) {
			case 0, 1:
				prompts = append(prompts, promptOf(random.IntN(4), 1+random.IntN(100)))
				all = append(all, c.Submit(Job{Prompt: prompts[len(prompts)-1], MaxTokens: 1 + random.IntN(60)}))
			case 2:
				if random.IntN(2) == 0 && len(all) > 0 {
					all[len(all)-1].Abort()
				}
				c.Evict(random.IntN(4))
			default:
				if _, ok := c.schedule(); ok {
					c.complete()
				}
			}
			checkCore(t, c, rec)
		}
		finish(t, c)
		checkCore(t, c, rec)
		for k, s := range all {
			out, err := readAll(s)
			if err != nil || !slices.Equal(out.Tokens, ExpectedTokens(0, prompts[k], len(out.Tokens))) {
				t.Errorf("%+v, job %d: %v, %d tokens", o.Hybrid, k, err, len(out.Tokens))
			}
		}
		if s := c.Stats(); s.KVBlocksUsed != 0 || s.Finished+s.Aborted != uint64(len(all)) || s.Preempted == 0 {
			t.Errorf("%q %s: %+v", o.Hybrid, o.Profile, s)
		}
	}
}

// TestCheckpoints: where hybrids keep states, for large blocks too. Two lengths of one prompt tell it.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile      string
		block        int
		lookahead    int
		first, again int // prompt tokens
		want         int
	}{
		{ProfileStandard, 784, 0, 2000, 2000, 1568},
		{ProfileStandard, 784, 0, 1568, 1568, 784},      // aligned: the last block is computed again
		{ProfileStandard, 784, 0, 1568, 1800, 784},      // its end is no checkpoint
		{ProfileStandard, 784, 0, 1569, 1800, 1568},     // one token more, and it is
		{ProfileStandard, 784, 0, 783, 783, 0},          // shorter than a block
		{ProfileStandard, 784, 0, 10_000, 10_000, 9408}, // longer than a step
		{ProfileMTP, 800, 0, 15999, 15999, 14400},       // one block is dropped
		{ProfileMTP, 800, 0, 16001, 16001, 15200},
		{ProfileMTP, 800, 0, 16000, 16000, 15200}, // the dropped block may hold the last token (vLLM 0.32)
		{ProfileMTP, 800, 0, 16000, 16100, 15200},
		{ProfileMTP, 800, 1, 16000, 16000, 15200}, // nothing is dropped
		{ProfileMTP, 800, 1, 16001, 16001, 16000},
	} {
		core := NewCore(CoreOptions{Profile: c.profile, BlockTokens: c.block, Lookahead: c.lookahead, Hybrid: "mma", KVBlocks: 400})
		prompt := promptOf(1, max(c.first, c.again))
		serve(t, core, Job{Prompt: prompt[:c.first], MaxTokens: 1})
		again, _ := serve(t, core, Job{Prompt: prompt[:c.again], MaxTokens: 1})
		if again.Cached() != c.want {
			t.Errorf("%+v: %d cached", c, again.Cached())
		}
	}
}

// TestJunction: the first fork off a long prefix misses wholly and leaves a checkpoint, at which its siblings hit; a
// turn that goes on from an answer hits the earlier prompt's checkpoint. So recorded on vLLM 0.32.
func TestJunction(t *testing.T) {
	t.Parallel()
	c := NewCore(CoreOptions{BlockTokens: 160, Hybrid: "mmma", KVBlocks: 200})
	a := promptOf(1, 500)
	var cached []int
	for i, prompt := range [][]uint32{
		a, slices.Concat(a[:400], promptOf(2, 300)), slices.Concat(a[:400], promptOf(3, 300)), slices.Concat(a[:400], promptOf(4, 300)),
	} {
		s, out := serve(t, c, Job{Prompt: prompt, MaxTokens: 200})
		cached = append(cached, s.Cached())
		if i == 0 {
			next, _ := serve(t, c, Job{Prompt: slices.Concat(a, out.Tokens, promptOf(5, 100)), MaxTokens: 2})
			cached = append(cached, next.Cached())
		}
	}
	if !slices.Equal(cached, []int{0, 480, 0, 320, 320}) {
		t.Errorf("cached %v", cached)
	}
}

// TestGroupOrder: events come group by group in the model's order, a mamba group's with one hash or none.
func TestGroupOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(3, 16)
	c := NewCore(CoreOptions{Hybrid: "mam", Observer: l})
	serve(t, c, Job{Prompt: promptOf(1, 50), MaxTokens: 20})
	// 48 of 50 tokens are whole blocks, kept at 48; the block that the answer fills has no checkpoint.
	want := []string{"0:3:1", "1:3:3", "2:3:1", "0:1:0", "1:1:1", "2:1:0"}
	if !slices.Equal(l.spans, want) || l.kinds[1] != kindAttention || l.kinds[0] != kindMamba || l.kinds[2] != kindMamba {
		t.Errorf("stores %v of %v, wanted %v", l.spans, l.kinds, want)
	}
}

// TestLie: what an answer has cached is lost without an event, while the blocks that another sequence uses stay.
func TestLie(t *testing.T) {
	t.Parallel()
	l, lie := newLedger(1, 16), false
	c := NewCore(CoreOptions{Observer: l, Lie: func() bool { return lie }})
	prompt := promptOf(1, 100)
	serve(t, c, Job{Prompt: prompt, MaxTokens: 1})
	lie = true
	if s, _ := serve(t, c, Job{Prompt: prompt, MaxTokens: 1}); s.Cached() != 96 {
		t.Errorf("%d cached before the lie", s.Cached())
	}
	if got := l.expect(prompt, 0, 0); got != 96 {
		t.Errorf("the events say %d, wanted 96", got)
	}
	if s, _ := serve(t, c, Job{Prompt: prompt, MaxTokens: 1}); s.Cached() != 0 {
		t.Errorf("%d cached after the lie", s.Cached())
	}
	running := c.Submit(Job{Prompt: prompt, MaxTokens: 50})
	c.schedule()
	c.complete()
	serve(t, c, Job{Prompt: prompt, MaxTokens: 1})
	lie = false
	if _, err := readAll(running); err != nil {
		t.Fatal(err)
	}
}

func TestGroupsOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "mmma": 3, "am": 0, "mam": 1, "a": -1, "m": -1, "aa": -1, "max": -1} {
		if _, attention, ok := groupsOf(text); ok != (want >= 0) || ok && attention != want {
			t.Errorf("%q: %d, %v", text, attention, ok)
		}
	}
}
