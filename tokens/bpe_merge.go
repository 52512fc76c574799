package tokens

import (
	"slices"

	"golang.org/x/text/unicode/norm"
)

// linearMerge is the longest piece in bytes whose best merge is found by looking at all of them; above it a heap
// keeps the cost from growing with the square.
const linearMerge = 96

// noMerge is the rank of two symbols that do not merge.
const noMerge = ^uint32(0)

// mergeScratch is the working memory of one Encode call.
type mergeScratch struct {
	ids        []uint32
	ranks      []uint32 // linear: rank of the merge of symbol i with the next one
	prev, next []int32  // heap: neighbours of a symbol; next is -1 at the end
	heap       []uint64 // rank << 32 | position: the least is the next merge, the leftmost among equals
	valid      []byte   // text that was not UTF-8
	normal     []byte   // text in normal form
	iter       norm.Iter
	work       work
}

// appendMerged appends the ids that piece merges into: always the merge of least rank, the leftmost among equals.
// Where the call's time runs out the ids are incomplete and m.work holds the error.
func (b *BPE) appendMerged(dst []uint32, m *mergeScratch, piece string) []uint32 {
	m.ids = m.ids[:0]
	for i := range len(piece) {
		m.ids = append(m.ids, b.bytes[piece[i]])
	}
	if len(m.ids) <= linearMerge {
		return append(dst, b.mergeLinear(m)...)
	}
	return b.appendMergedHeap(dst, m)
}

func (b *BPE) mergeLinear(m *mergeScratch) []uint32 {
	ids, ranks := m.ids, m.ranks[:0]
	for i := 0; i+1 < len(ids); i++ {
		ranks = append(ranks, b.pairs.rank(ids[i], ids[i+1]))
	}
	for len(ranks) > 0 {
		best := 0
		for i, r := range ranks {
			if r < ranks[best] {
				best = i
			}
		}
		if ranks[best] == noMerge {
			break
		}
		ids[best] = b.pairs.results[ranks[best]]
		ids = slices.Delete(ids, best+1, best+2)
		ranks = slices.Delete(ranks, best, best+1)
		if best > 0 {
			ranks[best-1] = b.pairs.rank(ids[best-1], ids[best])
		}
		if best < len(ranks) {
			ranks[best] = b.pairs.rank(ids[best], ids[best+1])
		}
	}
	m.ranks = ranks
	return ids
}

func (b *BPE) appendMergedHeap(dst []uint32, m *mergeScratch) []uint32 {
	n := len(m.ids)
	m.prev, m.next, m.heap = m.prev[:0], m.next[:0], m.heap[:0]
	for i := range n {
		m.prev = append(m.prev, int32(i-1))
		m.next = append(m.next, int32(i+1))
	}
	m.next[n-1] = -1
	for i := range n - 1 {
		if r := b.pairs.rank(m.ids[i], m.ids[i+1]); r != noMerge {
			m.heap = append(m.heap, uint64(r)<<32|uint64(i))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		siftDown(m.heap, i)
	}
	const gone = -2 // prev of a symbol that was merged into its left neighbour
	for len(m.heap) > 0 && m.work.spend(heapStep) {
		top := popHeap(&m.heap)
		at := int32(top & 0xffffffff)
		if m.prev[at] == gone || m.next[at] < 0 {
			continue
		}
		right := m.next[at]
		rank := b.pairs.rank(m.ids[at], m.ids[right])
		if rank != uint32(top>>32) {
			continue // one of the two has changed since this entry was made
		}
		m.ids[at] = b.pairs.results[rank]
		m.prev[right] = gone
		m.next[at] = m.next[right]
		if m.next[at] >= 0 {
			m.prev[m.next[at]] = at
			b.pushMerge(m, at)
		}
		if m.prev[at] >= 0 {
			b.pushMerge(m, m.prev[at])
		}
	}
	for i := int32(0); i >= 0; i = m.next[i] {
		dst = append(dst, m.ids[i])
	}
	return dst
}

func (b *BPE) pushMerge(m *mergeScratch, at int32) {
	if r := b.pairs.rank(m.ids[at], m.ids[m.next[at]]); r != noMerge {
		pushHeap(&m.heap, uint64(r)<<32|uint64(uint32(at)))
	}
}

// pushHeap, popHeap and siftDown keep a binary heap with the least value in front. container/heap would box every
// entry.
func pushHeap(h *[]uint64, v uint64) {
	s := append(*h, v)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if s[up] <= v {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = v
	*h = s
}

func popHeap(h *[]uint64) uint64 {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	siftDown(s[:last], 0)
	return top
}

// siftDown moves the value at i to where no value below it is less.
func siftDown(s []uint64, i int) {
	if i >= len(s) {
		return
	}
	v := s[i]
	for {
		down := 2*i + 1
		if down >= len(s) {
			break
		}
		if down+1 < len(s) && s[down+1] < s[down] {
			down++
		}
		if s[down] >= v {
			break
		}
		s[i] = s[down]
		i = down
	}
	s[i] = v
}
