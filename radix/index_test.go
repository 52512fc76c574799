package radix

import (
	"fmt"
	"slices"
	"testing"
)

// told is an engine that is told of in letters: a prompt is a word, each letter a block of two tokens, and a block's
// hash spells the word up to it.
type told struct {
	t *testing.T
	x *Index
	r *Residency
}

func tell(t *testing.T) *told {
	x := NewIndex()
	return &told{t, x, x.Engine(5)}
}

func letters(word string) []uint32 {
	var ids []uint32
	for _, c := range word {
		ids = append(ids, uint32(c), uint32(c)+1000)
	}
	return ids
}

func named(word string) uint64 { return Key(77, letters(word)) }

// store announces the last n blocks of word, to group 0.
func (e *told) store(word string, n int) bool { return e.group(0, GroupAttention, word, n) }

func (e *told) group(group int, kind GroupKind, word string, n int) bool {
	s := Store{Group: group, Kind: kind, BlockTokens: 2, Root: 9, IDs: letters(word[len(word)-n:])}
	if kind == GroupSliding {
		s.Window = 4
	}
	if before := word[:len(word)-n]; before != "" {
		s.Parent, s.HasParent = named(before), true
	}
	for i := range n {
		s.Hashes = append(s.Hashes, named(word[:len(word)-n+i+1]))
	}
	if kind == GroupMamba {
		s.Hashes = s.Hashes[n-1:]
	}
	return e.r.Store(&s)
}

func (e *told) remove(group int, words ...string) int {
	var hashes []uint64
	for _, w := range words {
		hashes = append(hashes, named(w))
	}
	return e.r.Remove(group, hashes)
}

// wants checks how many blocks of a prompt match that is longer than its full blocks.
func (e *told) wants(word string, blocks int) {
	e.t.Helper()
	e.asks(Prompt{Keys: AppendKeys(nil, 9, letters(word), 2), BlockTokens: 2}, word, blocks)
}

// wantsAll checks the same of a prompt that ends with its last full block.
func (e *told) wantsAll(word string, blocks int) {
	e.t.Helper()
	ids := letters(word)
	e.asks(Prompt{Keys: AppendKeys(nil, 9, ids, 2), BlockTokens: 2, Tokens: len(ids), IDs: ids}, word, blocks)
}

func (e *told) asks(p Prompt, word string, blocks int) {
	e.t.Helper()
	tokens := [MaxEngines]int32{4: -7, 5: -7}
	e.x.MatchPrompt(&p, &tokens)
	if tokens[5] != int32(2*blocks) || tokens[4] != -7 {
		e.t.Errorf("%q matches %d tokens, wanted %d; another engine's slot holds %d, wanted it untouched", word, tokens[5], 2*blocks, tokens[4])
	}
}

func TestIndexDense(t *testing.T) {
	t.Parallel()
	e := tell(t)
	silent := [MaxEngines]int32{5: -7}
	if e.x.Match([]uint64{1}, 2, &silent); e.r.BlockTokens() != 0 || e.r.Blocks() != 0 || silent[5] != -7 {
		t.Error("an engine that said nothing has blocks")
	}
	e.store("abcd", 4)
	e.store("abxy", 2)
	e.store("abxyz", 1)
	e.wants("abcd", 4)
	e.wants("abcde", 4)
	e.wants("abxyzz", 5)
	e.wants("aby", 2)
	e.wants("b", 0)
	e.wants("", 0)
	e.wantsAll("abcd", 3) // the last token is always computed
	e.wantsAll("abcde", 4)
	e.remove(0, "ab")
	e.wants("abxyz", 1)
	e.store("ab", 1)
	e.wants("abxyz", 5)
	if got := e.remove(0, "abxyz", "abxyz", "never"); got != 2 {
		t.Errorf("%d unknown hashes, wanted 2", got)
	}
	if got := e.remove(3, "abcd"); got != 1 {
		t.Errorf("%d unknown hashes of a group never seen, wanted 1", got)
	}
	e.wants("abxyz", 4)
	if e.r.Blocks() != 6 || e.r.BlockTokens() != 2 {
		t.Errorf("%d blocks of %d tokens, wanted 6 of 2", e.r.Blocks(), e.r.BlockTokens())
	}
	var tokens [MaxEngines]int32
	e.x.Match(AppendKeys(nil, 8, letters("abcd"), 2), 2, &tokens)
	if tokens[5] != 0 {
		t.Errorf("a prompt of another root matches %d tokens", tokens[5])
	}
	e.r.Clear()
	e.wants("abcd", 0)
	if got := e.remove(0, "abcd"); got != 1 {
		t.Errorf("%d unknown hashes after a clear, wanted 1", got)
	}
}

// TestIndexCopies: identical prompts at once store their answers' blocks once each, and remove them so (vLLM 0.32).
func TestIndexCopies(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.store("ab", 2)
	e.store("ab", 2)
	e.store("ab", 1)
	e.remove(0, "ab", "ab")
	e.wants("ab", 2)
	e.remove(0, "ab")
	e.wants("ab", 1)
	e.remove(0, "a", "a")
	if e.wants("ab", 0); e.r.Blocks() != 0 {
		t.Errorf("%d blocks left", e.r.Blocks())
	}

	e.store("ab", 2)
	e.store("ab", 1)
	e.store("abc", 1)
	e.store("abcd", 1)
	e.store("abcd", 1)
	e.remove(0, "abcd")
	if got := e.r.DropDoubtful(); got != 1 {
		t.Errorf("%d doubtful blocks, wanted the one that lost a copy and has one", got)
	}
	e.wants("abcd", 3)
	if got := e.r.DropDoubtful(); got != 0 {
		t.Errorf("%d doubtful blocks, wanted none", got)
	}
}

// TestIndexSharedPlace: equal tokens may have two hashes; the block is there until both are gone.
func TestIndexSharedPlace(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.store("ab", 2)
	e.r.Store(&Store{BlockTokens: 2, Parent: named("a"), HasParent: true, Hashes: []uint64{123}, IDs: letters("b")})
	e.remove(0, "ab")
	e.wants("ab", 2)
	e.r.Remove(0, []uint64{123})
	e.wants("ab", 1)
}

// TestIndexExtra: a block with an image is no block of its tokens alone.
func TestIndexExtra(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.r.Store(&Store{BlockTokens: 2, Root: 9, Hashes: []uint64{1, 2, 3}, IDs: letters("abc"), Extra: []uint64{0, 55, 0}})
	e.wants("abc", 1)
	e.store("abc", 3)
	if e.wants("abc", 3); e.r.Blocks() != 6 { // one of them under two hashes
		t.Errorf("%d blocks, wanted 6", e.r.Blocks())
	}
}

// TestIndexHybrid follows what vLLM 0.32 was seen to do with a hybrid model: three mamba groups in front of one of
// attention, whose stores come first.
func TestIndexHybrid(t *testing.T) {
	t.Parallel()
	e := tell(t)
	mamba := func(word string, n int) {
		for g := range 3 {
			if e.group(g, GroupMamba, word, n) {
				t.Errorf("%q: unknown parent", word)
			}
		}
	}
	// A prompt of three blocks and a bit.
	mamba("abc", 3)
	e.wants("abcd", 0)
	e.group(3, GroupAttention, "abc", 3)
	e.wants("abcd", 3)
	e.wantsAll("abc", 0) // the only checkpoint is at the very end
	// The next turn, and the block behind its last checkpoint, for which mamba groups announce a span and no hash.
	mamba("abcd", 1)
	e.group(3, GroupAttention, "abcd", 1)
	for g := range 3 {
		e.r.Store(&Store{Group: g, Kind: GroupMamba, BlockTokens: 2, Parent: named("abcd"), HasParent: true, IDs: letters("e")})
	}
	e.group(3, GroupAttention, "abcde", 1)
	e.wants("abcdef", 4)
	// The first fork misses wholly; the second finds the junction's checkpoint.
	e.wants("abxy", 0)
	mamba("ab", 2)
	e.group(3, GroupAttention, "ab", 2)
	e.wants("abxy", 2)
	// A checkpoint must be there in all mamba groups.
	e.remove(1, "abcd")
	e.wants("abcdef", 3)
	e.remove(0, "abc")
	e.wants("abcdef", 2)
	e.group(1, GroupMamba, "abcd", 1)
	e.wants("abcdef", 4)
	e.remove(3, "abcde", "abcd")
	e.wants("abcdef", 2)

	var kinds []GroupKind
	for _, g := range e.r.Groups() {
		kinds = append(kinds, g.Kind)
	}
	if want := []GroupKind{GroupMamba, GroupMamba, GroupMamba, GroupAttention}; !slices.Equal(kinds, want) {
		t.Errorf("groups %v, wanted %v", kinds, want)
	}
	e.r.Clear()
	e.group(3, GroupAttention, "abc", 3)
	e.wants("abcd", 0) // that mamba groups are there is still known
	e.r.Drop()
	e.group(3, GroupAttention, "abc", 3)
	e.wants("abcd", 3)
}

// TestIndexDrop: vLLM up to 0.32 with MTP matches one block of attention beyond a hit and gives it up; checkpoints are
// not given up.
func TestIndexDrop(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.r.SetDrop(1)
	e.store("abc", 3)
	e.wants("abcd", 2)
	e.wants("a", 0)
	e.wantsAll("abc", 1) // with one group, the block that holds the last token is not looked up
	e.r.Clear()
	e.r.SetDrop(1)
	e.group(1, GroupMamba, "ab", 2)
	e.group(1, GroupMamba, "abc", 1)
	e.store("abc", 3)
	e.wants("abcd", 2)
	e.wantsAll("abc", 2) // with several, it may be the one that is given up
	e.store("abcd", 1)
	e.wants("abcd", 3)
	e.r.SetDrop(0)
	e.group(1, GroupMamba, "abcd", 1)
	e.wants("abcd", 4)
}

// TestIndexLookahead: vLLM 0.33 with MTP hashes each block with the token behind it, and gives nothing up.
func TestIndexLookahead(t *testing.T) {
	t.Parallel()
	e := tell(t)
	ahead := func(word string) []uint32 {
		var ids []uint32
		for _, c := range word {
			ids = append(ids, uint32(c))
		}
		return ids
	}
	e.r.Store(&Store{BlockTokens: 2, Root: 9, Hashes: []uint64{1, 2}, IDs: letters("ab"), Lookahead: ahead("bc")})
	e.r.Store(&Store{BlockTokens: 2, Parent: 2, HasParent: true, Hashes: []uint64{3}, IDs: letters("c"), Lookahead: ahead("d")})
	// The same block in front of another token is another block.
	e.r.Store(&Store{BlockTokens: 2, Parent: 1, HasParent: true, Hashes: []uint64{4}, IDs: letters("b"), Lookahead: ahead("x")})
	if e.r.Lookahead() != 1 || e.r.Blocks() != 4 {
		t.Errorf("%d blocks with %d tokens of look-ahead, wanted 4 with 1", e.r.Blocks(), e.r.Lookahead())
	}
	e.wantsAll("abcd", 3)
	e.wantsAll("abce", 2)
	e.wantsAll("abc", 2)
	e.wantsAll("abx", 2)
	e.wantsAll("aby", 1)
	e.wants("abcd", 0) // nothing without ids
	e.r.Remove(0, []uint64{2})
	e.wantsAll("abcd", 1)
	e.wantsAll("abx", 2)
	// A store without the field belongs to no tree of this engine.
	e.store("q", 1)
	if e.r.Odd() != 1 {
		t.Errorf("%d odd stores, wanted 1", e.r.Odd())
	}
}

// TestIndexSliding: a group with a window needs the blocks in front of a hit's end and no others.
func TestIndexSliding(t *testing.T) {
	t.Parallel()
	e := tell(t) // a window of 4 tokens looks at 2 blocks
	e.store("abcdef", 6)
	e.group(1, GroupSliding, "abcdef", 6)
	e.wants("abcdefg", 6)
	e.remove(1, "a", "ab", "abc")
	e.wants("abcdefg", 6)
	e.remove(1, "abcdef")
	e.wants("abcdefg", 5)
	e.remove(1, "abcd")
	e.wants("abcdefg", 0)
	e.group(1, GroupSliding, "ab", 2)
	e.wants("abcdefg", 2)
	e.store("abcxyz", 3)
	e.group(1, GroupSliding, "abcxyz", 2) // its parent stands in the other group
	e.wants("abcxyzz", 6)
	e.group(1, GroupSliding, "abcx", 1)
	e.remove(1, "abcxy")
	e.wants("abcxyzz", 2)
	e.group(1, GroupSliding, "abc", 1)
	e.wants("abcxyzz", 4) // the window lies in two edges
}

// TestIndexTwoAttentionGroups: every one of them must hold a hit, from whenever it is known.
func TestIndexTwoAttentionGroups(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.store("abc", 3)
	e.store("xyz", 3)
	e.wants("abc", 3)
	e.group(1, GroupAttention, "ab", 2)
	e.wants("abc", 2)
	e.wants("xyz", 0)
	e.remove(1, "a")
	e.wants("abc", 0)
}

func TestIndexUnknownParent(t *testing.T) {
	t.Parallel()
	e := tell(t)
	if !e.store("abcd", 2) {
		t.Error("the first of a lost chain is no surprise")
	}
	if e.store("abcde", 1) {
		t.Error("its second is: once is enough")
	}
	if e.remove(0, "abc", "abcd", "abcde") != 0 {
		t.Error("blocks that match nothing were not noted")
	}
	if e.r.Blocks() != 0 {
		t.Errorf("%d blocks that stand nowhere are counted", e.r.Blocks())
	}
	e.store("abcd", 2)
	e.store("ab", 2)
	e.wants("abcd", 2)
	e.store("abcd", 2)
	e.wants("abcd", 4)
}

func TestIndexOddStores(t *testing.T) {
	t.Parallel()
	good := Store{BlockTokens: 2, Hashes: []uint64{1, 2}, IDs: letters("ab")}
	for name, change := range map[string]func(s *Store){
		"more tokens than hashes":    func(s *Store) { s.IDs = letters("abc") },
		"fewer tokens than hashes":   func(s *Store) { s.IDs = letters("a") },
		"half a block":               func(s *Store) { s.IDs = s.IDs[:3] },
		"no tokens":                  func(s *Store) { s.IDs = nil },
		"another size":               func(s *Store) { s.BlockTokens = 1; s.IDs = s.IDs[:2] },
		"another kind":               func(s *Store) { s.Kind = GroupMamba },
		"look-ahead all of a sudden": func(s *Store) { s.Lookahead = []uint32{1, 2} },
		"look-ahead that fits none":  func(s *Store) { s.Lookahead = []uint32{1, 2, 3} },
		"extras for some":            func(s *Store) { s.Extra = []uint64{1} },
	} {
		r := NewIndex().Engine(0)
		r.Store(&Store{BlockTokens: 2, Hashes: []uint64{9}, IDs: letters("z")})
		s := good
		change(&s)
		if r.Store(&s) || r.Odd() != 1 || r.Blocks() != 1 {
			t.Errorf("%s: %d odd stores, %d blocks, wanted 1 and 1", name, r.Odd(), r.Blocks())
		}
		if got := r.Remove(0, s.Hashes); got != 0 {
			t.Errorf("%s: %d of its hashes are unknown", name, got)
		}
	}
	for name, s := range map[string]Store{
		"blocks of nothing":             {Hashes: []uint64{1}},
		"blocks of less than nothing":   {BlockTokens: -1, Hashes: []uint64{1}},
		"look-ahead beyond one block":   {BlockTokens: 2, Hashes: []uint64{1}, IDs: letters("a"), Lookahead: []uint32{1, 2, 3}},
		"nothing":                       {BlockTokens: 2, IDs: letters("a")},
		"a group that asks for nothing": {BlockTokens: 2, Kind: GroupOther, Hashes: []uint64{1}, IDs: letters("a")},
	} {
		r := NewIndex().Engine(0)
		if r.Store(&s) || r.Blocks() != 0 {
			t.Errorf("%s: %d blocks", name, r.Blocks())
		}
		r.Remove(0, s.Hashes)
		r.DropDoubtful()
		r.Clear()
		r.Drop()
	}
}

// TestIndexBlockSizeIsAttentions: what another group said of a size first does not bind the engine.
func TestIndexBlockSizeIsAttentions(t *testing.T) {
	t.Parallel()
	e := tell(t)
	e.r.Store(&Store{Group: 1, Kind: GroupSliding, BlockTokens: 1, Hashes: []uint64{1}, IDs: []uint32{1}})
	e.store("ab", 2)
	if got := e.x.BlockSizes(nil); !slices.Equal(got, []int{2}) {
		t.Errorf("block sizes %v, wanted 2", got)
	}
	e.wants("ab", 2)
}

func TestIndexBlockSizes(t *testing.T) {
	t.Parallel()
	x := NewIndex()
	for slot, size := range []int{16, 784, 16, 800} {
		x.Engine(slot).Store(&Store{BlockTokens: size, Hashes: []uint64{1}, IDs: make([]uint32, size)})
	}
	x.Engine(4).Store(&Store{BlockTokens: 16, Hashes: []uint64{1}, IDs: make([]uint32, 16), Lookahead: []uint32{0}})
	if got := x.BlockSizes([]int{16}); !slices.Equal(got, []int{16, 16, 784, 800}) {
		t.Errorf("block sizes %v", got)
	}
	ids := make([]uint32, 1601)
	for _, c := range []struct {
		size int
		want string
	}{
		{16, "[16 -1 16 -1 16]"}, {784, "[-1 784 -1 -1 -1]"}, {800, "[-1 -1 -1 800 -1]"}, {32, "[-1 -1 -1 -1 -1]"},
	} {
		tokens := [MaxEngines]int32{-1, -1, -1, -1, -1}
		x.MatchPrompt(&Prompt{Keys: AppendKeys(nil, 0, ids, c.size), BlockTokens: c.size, IDs: ids}, &tokens)
		if got := fmt.Sprint(tokens[:5]); got != c.want {
			t.Errorf("blocks of %d: %s tokens, wanted %s", c.size, got, c.want)
		}
	}
	for slot := range 4 {
		x.Engine(slot).Drop()
	}
	if got := x.BlockSizes(nil); !slices.Equal(got, []int{16}) {
		t.Errorf("block sizes %v, wanted that of the last engine", got)
	}
	x.Engine(4).Drop()
	if x.Bytes() != 0 || len(x.BlockSizes(nil)) != 0 {
		t.Errorf("an index of nothing takes %d bytes", x.Bytes())
	}
}

// TestIndexIsBounded: an engine that announces more than it can hold has lost removals.
func TestIndexIsBounded(t *testing.T) {
	t.Parallel()
	p := randomPrompts(40, 100)
	r := NewIndex().Engine(0)
	r.SetCapacity(1500)
	for c := range 15 {
		p.store(r, c, 100)
	}
	if r.Blocks() != 1500 || r.Forgotten() != 0 {
		t.Errorf("%d blocks, %d forgotten, wanted 1500 and none", r.Blocks(), r.Forgotten())
	}
	for c := range 25 {
		p.store(r, 15+c, 100)
	}
	if r.Blocks() != 1500 || r.Forgotten() != 2500 {
		t.Errorf("%d blocks, %d forgotten, wanted 1500 and 2500", r.Blocks(), r.Forgotten())
	}
	verify(t, r.index)
}
