package fuzz

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"ramjet/radix"
)

// slowEngine is the obvious twin of a radix.Residency: per group a map from the engine's hash to the very tokens that
// the block stands for, from the first one of the prompt on.
type slowEngine struct {
	slowShape
	lost   int // blocks lost at the end of each hit
	groups []*slowGroup
}

// slowShape is how an engine caches.
type slowShape struct {
	block, ahead int
	kinds        map[int]radix.GroupKind
}

type slowGroup struct {
	number int
	blocks map[uint64]*slowBlock
}

type slowBlock struct {
	way      slowWay
	copies   int
	doubtful bool
}

// slowWay is the tokens up to a block's end, and those behind it that its hash covers. Without the former the block
// stands nowhere.
type slowWay struct{ tokens, ahead string }

// spell writes tokens, which are 0 or 1 here, as digits.
func spell(ids []uint32) string {
	var b [32]byte
	for i, id := range ids {
		b[i] = byte('0' + id)
	}
	return string(b[:len(ids)])
}

// spellRoot is what stands in front of a prompt's first token.
func spellRoot(root uint64) string { return string(rune('A' + root)) }

// window is the tokens that the sliding groups look back: two blocks and a bit.
func (s slowShape) window() int { return 2*s.block + 2 }

func (e *slowEngine) group(number int) *slowGroup {
	for _, g := range e.groups {
		if g.number == number {
			return g
		}
	}
	g := &slowGroup{number, map[uint64]*slowBlock{}}
	e.groups = append(e.groups, g)
	return g
}

func (e *slowEngine) store(s *radix.Store) (unknownParent bool) {
	g := e.group(s.Group)
	tokens := spellRoot(s.Root)
	if s.HasParent {
		tokens = ""
		var parent *slowBlock
		for _, o := range append([]*slowGroup{g}, e.groups...) {
			if b := o.blocks[s.Parent]; b != nil && (parent == nil || parent.way.tokens == "") {
				parent = b
			}
		}
		switch first := spell(s.IDs[:e.ahead]); {
		case parent == nil:
			unknownParent = true
		case parent.way.tokens == "" || parent.way.ahead == first:
			tokens = parent.way.tokens
		default: // no engine does this, but what it does must be said
			tokens = fmt.Sprintf("(%s not %s)", parent.way, first)
		}
	}
	for i, hash := range s.Hashes {
		var way slowWay
		if end := len(s.IDs) - (len(s.Hashes)-1-i)*e.block; tokens != "" {
			ahead := s.Lookahead[len(s.Lookahead)-e.ahead:]
			if end < len(s.IDs) {
				ahead = s.IDs[end : end+e.ahead]
			}
			way = slowWay{tokens + spell(s.IDs[:end]), spell(ahead)}
		}
		b := g.blocks[hash]
		switch {
		case b == nil:
			b = &slowBlock{way: way}
			g.blocks[hash] = b
		case way.tokens == "":
		case b.way.tokens == "":
			b.way = way
		case b.way != way:
			*b = slowBlock{way: way}
		}
		b.copies++
	}
	return unknownParent
}

func (e *slowEngine) remove(number int, hash uint64) (unknown int) {
	for _, g := range e.groups {
		if b := g.blocks[hash]; g.number == number && b != nil {
			if b.copies--; b.copies == 0 {
				delete(g.blocks, hash)
			} else {
				b.doubtful = true
			}
			return 0
		}
	}
	return 1
}

func (e *slowEngine) dropDoubtful() (dropped int) {
	for _, g := range e.groups {
		for hash, b := range g.blocks {
			if b.doubtful {
				delete(g.blocks, hash)
				dropped++
			}
		}
	}
	return dropped
}

func (e *slowEngine) held() (blocks int) {
	for _, g := range e.groups {
		for _, b := range g.blocks {
			if b.way.tokens != "" {
				blocks++
			}
		}
	}
	return blocks
}

// match looks at every hit that could be, the longest first.
func (e *slowEngine) match(root uint64, ids []uint32, longest int) int {
	whole := spellRoot(root) + spell(ids)
	has := func(g *slowGroup, blocks int) bool {
		end := 1 + blocks*e.block
		if end+e.ahead > len(whole) {
			return false
		}
		way := slowWay{whole[:end], whole[end : end+e.ahead]}
		for _, b := range g.blocks {
			if b.way == way {
				return true
			}
		}
		return false
	}
	attention, groups := false, 0
	for _, g := range e.groups {
		attention = attention || e.kinds[g.number] == radix.GroupAttention
		if e.kinds[g.number] != radix.GroupOther {
			groups++
		}
	}
	if groups == 1 { // the block that holds the last token is not looked up
		longest -= e.lost
	}
	for hit := longest; hit > 0 && attention; hit-- {
		good := true
		for _, g := range e.groups {
			from, to := 1, hit+e.lost
			switch e.kinds[g.number] {
			case radix.GroupMamba:
				from, to = hit, hit
			case radix.GroupSliding:
				needed := (e.window() - 1 + e.block - 1) / e.block
				from, to = max(hit-needed+1, 1), hit
			default:
			}
			for b := from; b <= to && good; b++ {
				good = has(g, b)
			}
		}
		if good {
			return hit * e.block
		}
	}
	return 0
}

// radixPlay reads what happens out of data.
type radixPlay struct {
	t       *testing.T
	data    []byte
	index   *radix.Index
	engines []*slowEngine
	prompts []radixPrompt
}

type radixPrompt struct {
	root uint64
	ids  []uint32
}

func (p *radixPlay) next() int {
	if len(p.data) == 0 {
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return int(b)
}

// shape makes a dense or hybrid engine, with one or two groups of each sort, plain or with look-ahead.
func (p *radixPlay) shape() slowShape {
	b := p.next()
	s := slowShape{block: 1 + b%3, kinds: map[int]radix.GroupKind{3: radix.GroupAttention}}
	if b&4 != 0 {
		s.ahead = 1
	}
	if b&8 != 0 {
		s.kinds[0], s.kinds[1] = radix.GroupMamba, radix.GroupMamba
	}
	if b&16 != 0 {
		s.kinds[7] = radix.GroupSliding
	}
	if b&32 != 0 {
		s.kinds[5] = radix.GroupAttention
	}
	return s
}

// prompt makes one of two tokens, so that prompts share beginnings.
func (p *radixPlay) prompt() radixPrompt {
	a, b, c := p.next(), p.next(), p.next()
	q := radixPrompt{root: uint64(1 + c>>7), ids: make([]uint32, 1+c%19)}
	for i := range q.ids {
		q.ids[i] = uint32((a | b<<8) >> (i % 16) & 1)
	}
	return q
}

// store makes the event of an engine that fills blocks of a prompt, in one of its groups or in all.
func (p *radixPlay) store(slot int, e *slowEngine) {
	q := p.prompt()
	p.prompts = append(p.prompts, q)
	how, span, only := p.next(), p.next(), p.next()
	blocks := (len(q.ids) - e.ahead) / e.block
	if blocks <= 0 {
		return
	}
	from := span % blocks
	to := from + 1 + span/16%(blocks-from)
	if how&3 == 0 {
		from, to = 0, blocks
	}
	numbers := make([]int, 0, len(e.kinds))
	for n := range e.kinds {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	if how&4 != 0 {
		i := only % len(numbers)
		numbers = numbers[i : i+1]
	}
	hash := func(end int) uint64 {
		if how&0x30 == 0x30 { // hashes that say now this and now that
			return uint64(end+only) % 5
		}
		h := fnv.New64a()
		h.Write([]byte(spellRoot(q.root) + spell(q.ids[:end*e.block+e.ahead])))
		if how&0xc0 == 0xc0 { // a second hash of the same tokens
			h.Write([]byte{'+'})
		}
		return h.Sum64()
	}
	for _, n := range numbers {
		s := radix.Store{
			Group: n, Kind: e.kinds[n], BlockTokens: e.block, Root: q.root,
			IDs: q.ids[from*e.block : to*e.block],
		}
		if s.Kind == radix.GroupSliding {
			s.Window = e.window()
		}
		if from > 0 {
			s.Parent, s.HasParent = hash(from), true
		}
		first := from
		if s.Kind == radix.GroupMamba {
			first = to - 1
		}
		for b := first; b < to; b++ {
			s.Hashes = append(s.Hashes, hash(b+1))
			s.Lookahead = append(s.Lookahead, q.ids[(b+1)*e.block:][:e.ahead]...)
		}
		if got, want := p.index.Engine(slot).Store(&s), e.store(&s); got != want {
			p.t.Fatalf("engine %d: unknown parent %v, its twin %v: %+v", slot, got, want, s)
		}
	}
}

func (p *radixPlay) remove(slot int, e *slowEngine) {
	which, hash := p.next(), uint64(p.next())
	number := which % 8
	if len(e.groups) > 0 && which < 240 {
		g := e.groups[which%len(e.groups)]
		number = g.number
		var hashes []uint64
		for h := range g.blocks {
			hashes = append(hashes, h)
		}
		if slices.Sort(hashes); len(hashes) > 0 {
			hash = hashes[int(hash)%len(hashes)]
		}
	}
	got, want := p.index.Engine(slot).Remove(number, []uint64{hash}), e.remove(number, hash)
	if got != want {
		p.t.Fatalf("engine %d: removing %x of group %d: %d unknown, its twin %d", slot, hash, number, got, want)
	}
}

func (p *radixPlay) act() {
	what := p.next()
	slot := what % len(p.engines)
	e, r := p.engines[slot], p.index.Engine(slot)
	switch what /= len(p.engines); {
	case what < 40:
		p.store(slot, e)
	case what < 72:
		p.remove(slot, e)
	case what < 76:
		p.prompts = append(p.prompts, p.prompt())
	case what < 78:
		e.lost = p.next() % 2
		r.SetDrop(e.lost)
	case what < 80:
		if got, want := r.DropDoubtful(), e.dropDoubtful(); got != want {
			p.t.Fatalf("engine %d: %d doubtful blocks, its twin %d", slot, got, want)
		}
	case what < 82:
		r.Clear()
		for _, g := range e.groups {
			clear(g.blocks)
		}
	default:
		r.Drop()
		e.groups = nil
		if what == 84 { // another process, of other shape
			e.slowShape = p.shape()
		}
	}
	if got, want := r.Blocks(), e.held(); got != want {
		p.t.Fatalf("engine %d holds %d blocks, its twin %d", slot, got, want)
	}
}

// check compares all engines' matches of the latest prompts.
func (p *radixPlay) check() {
	for _, q := range p.prompts[max(len(p.prompts)-3, 0):] {
		for block := 1; block <= 3; block++ {
			var tokens [radix.MaxEngines]int32
			for i := range tokens {
				tokens[i] = -1
			}
			asked := radix.Prompt{Keys: radix.AppendKeys(nil, q.root, q.ids, block), BlockTokens: block, IDs: q.ids}
			longest := len(asked.Keys)
			if len(p.prompts)%2 == 0 {
				asked.Tokens = len(q.ids)
				longest = (len(q.ids) - 1) / block
			}
			p.index.MatchPrompt(&asked, &tokens)
			for slot, e := range p.engines {
				want := int32(-1)
				if len(e.groups) > 0 && e.block == block {
					want = int32(e.match(q.root, q.ids, longest))
				}
				if tokens[slot] != want {
					p.t.Fatalf("engine %d matches %d tokens of %v, its twin %d", slot, tokens[slot], q.ids, want)
				}
			}
		}
	}
}

// FuzzRadix: whatever engines announce, the index says what a map of every block's tokens says.
func FuzzRadix(f *testing.F) {
	for seed := range 60 {
		data := make([]byte, 400)
		state := uint64(seed)*2654435761 + 1
		for i := range data {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			data[i] = byte(state >> 24)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &radixPlay{t: t, data: data[:min(len(data), 600)], index: radix.NewIndex()}
		for range 3 {
			p.engines = append(p.engines, &slowEngine{slowShape: p.shape()})
		}
		for len(p.data) > 0 {
			p.act()
			p.check()
		}
		if n := p.index.Bytes(); n < 0 {
			t.Fatalf("the index takes %d bytes", n)
		}
	})
}
