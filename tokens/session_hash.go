package tokens

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// hash128 names what the cache holds. 128 bits, seeded by a secret of the process, leave no room for two texts with
// one name, by chance or by intent.
type hash128 = xxh3.Uint128

// Each kind of name has its own seed, so that all may live in one map.
const (
	kindSegment uint64 = iota // a text between two cuts, wherever it stands
	kindText                  // a text from its beginning up to a place
	kindCut                   // the same, ending with a cut token
	kindHead                  // what a conversation's items depend on
	kindItems                 // a conversation's first items
)

func (s *Source) hash(kind uint64, text string) hash128 {
	return xxh3.HashString128Seed(text, s.seed+kind)
}

// step is the name of what state names, and next behind it.
func (s *Source) step(kind uint64, state, next hash128) hash128 {
	var b [32]byte
	binary.LittleEndian.PutUint64(b[0:], state.Lo)
	binary.LittleEndian.PutUint64(b[8:], state.Hi)
	binary.LittleEndian.PutUint64(b[16:], next.Lo)
	binary.LittleEndian.PutUint64(b[24:], next.Hi)
	return xxh3.Hash128Seed(b[:], s.seed+kind)
}

// aliasOf is b as a string without a copy: it must not outlive b, and b must not change meanwhile. A body of a long
// conversation has half a megabyte, and copying it costs as much as all the rest that is done with it here.
func aliasOf(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
