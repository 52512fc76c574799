package tokens

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Bounds of what a file may hold: far above every vocabulary that is served (gpt-oss has 200,000 ids and 446,000
// merges), and small enough for a pair and its rank to share one word.
const (
	maxIDs    = 1<<22 - 1
	maxMerges = 1 << 20
)

// vocab holds the bytes of every token and finds tokens by them. Go's maps would do, at three times the memory and
// twice the time of a lookup; most pieces of text cost nothing but one lookup here.
type vocab struct {
	blob  []byte
	spans []span // by id; the empty one where no token has that id
	// slots is an open-addressed table: the upper half of the hash, the whole flag and id + 1.
	slots []uint64
	used  int
}

type span struct{ off, n uint32 }

// slotWhole marks a token that a piece of the same bytes becomes at once.
const slotWhole = 1 << 31

func newVocab(ids, tokens, bytes int) vocab {
	return vocab{blob: make([]byte, 0, bytes), spans: make([]span, ids), slots: make([]uint64, tableSize(tokens))}
}

// tableSize is a power of two that n entries fill to two thirds at most.
func tableSize(n int) int { return 1 << max(4, bits.Len(uint(n+n/2))) }

// add gives id its bytes; false if other bytes have that id. The bytes are found under the last id that was added.
func (v *vocab) add(token string, id uint32, whole bool) bool {
	if old := v.spans[id]; old.n > 0 {
		if string(v.token(id)) != token {
			return false
		}
	} else {
		v.spans[id] = span{uint32(len(v.blob)), uint32(len(token))}
		v.blob = append(v.blob, token...)
	}
	slot := v.find(token)
	if v.slots[slot] == 0 {
		v.used++
	}
	v.slots[slot] = uint64(id) + 1 | xxh3.HashString(token)&^0xffffffff
	if whole {
		v.slots[slot] |= slotWhole
	}
	return true
}

// find returns the slot of a token, or the free one where it would stand.
func (v *vocab) find(token string) int {
	hash := xxh3.HashString(token)
	mask := len(v.slots) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		slot := v.slots[at]
		if slot == 0 {
			return at
		}
		if slot>>32 == hash>>32 {
			if s := v.spans[slot&(slotWhole-1)-1]; string(v.blob[s.off:s.off+s.n]) == token {
				return at
			}
		}
	}
}

// id finds a token by its bytes.
func (v *vocab) id(token string) (uint32, bool) {
	slot := v.slots[v.find(token)]
	return uint32(slot&(slotWhole-1)) - 1, slot != 0
}

// whole finds the token that a piece becomes without being merged.
func (v *vocab) whole(piece string) (uint32, bool) {
	slot := v.slots[v.find(piece)]
	return uint32(slot&(slotWhole-1)) - 1, slot&slotWhole != 0
}

// token returns the bytes of id; nil for an id without a token.
func (v *vocab) token(id uint32) []byte {
	if int64(id) >= int64(len(v.spans)) {
		return nil
	}
	s := v.spans[id]
	if s.n == 0 {
		return nil
	}
	return v.blob[s.off : s.off+s.n : s.off+s.n]
}

// pairs maps two adjacent symbols to the rank of their merge. A slot is left id, right id and rank in one word.
type pairs struct {
	slots   []uint64
	results []uint32 // by rank: what the two become
}

const emptyPair = ^uint64(0) // left and right would be maxIDs, which no token has

func pairKey(left, right uint32) uint64 { return uint64(left)<<22 | uint64(right) }

// merged is a merge: the two symbols as pairKey has them, and what they become.
type merged struct {
	pair   uint64
	result uint32
}

// newPairs makes the table of merges in the order of their ranks. It returns the rank of a pair that is there twice, or
// -1.
func newPairs(merges []merged) (pairs, int) {
	p := pairs{slots: make([]uint64, tableSize(len(merges))), results: make([]uint32, len(merges))}
	for i := range p.slots {
		p.slots[i] = emptyPair
	}
	for rank, m := range merges {
		at := p.start(m.pair)
		for ; p.slots[at] != emptyPair; at = (at + 1) & (len(p.slots) - 1) {
			if p.slots[at]>>20 == m.pair {
				return p, rank
			}
		}
		p.slots[at] = m.pair<<20 | uint64(rank)
		p.results[rank] = m.result
	}
	return p, -1
}

func (p *pairs) start(key uint64) int {
	return int(key * 0x9e3779b97f4a7c15 >> 32 & uint64(len(p.slots)-1))
}

// rank returns the rank of merging two symbols, noMerge if they do not.
func (p *pairs) rank(left, right uint32) uint32 {
	key := pairKey(left, right)
	for at := p.start(key); ; at = (at + 1) & (len(p.slots) - 1) {
		slot := p.slots[at]
		if slot>>20 == key {
			return uint32(slot & (1<<20 - 1))
		}
		if slot == emptyPair {
			return noMerge
		}
	}
}
