package radix

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Root is the key in front of a prompt's first block. Prompts of other models, LoRA adapters or cache salts never
// share a block, so that their roots differ.
func Root(model, lora, salt string) uint64 {
	key := xxh3.HashString(model)
	key = xxh3.HashStringSeed(lora, key)
	return xxh3.HashStringSeed(salt, key)
}

// Key is the key of a block of token ids behind the block whose key is parent, or behind a Root: xxh3 over the ids as
// little-endian 32-bit words, seeded by parent. Equal on every machine and in every run. It allocates nothing.
func Key(parent uint64, ids []uint32) uint64 {
	if littleEndian {
		// Encoding the ids costs more than hashing them (46 ns against 8 ns for 16 ids), so they are hashed where
		// they lie: a slice of uint32 is that many times four bytes, and the hash keeps no reference.
		return xxh3.HashSeed(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids)), parent)
	}
	return keyEncoded(parent, ids)
}

// keyEncoded is Key on machines of the other byte order.
func keyEncoded(parent uint64, ids []uint32) uint64 {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return xxh3.HashSeed(b, parent)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// AppendKeys appends the keys of all full blocks of blockTokens ids behind parent; ids that fill no block have none.
func AppendKeys(dst []uint64, parent uint64, ids []uint32, blockTokens int) []uint64 {
	if blockTokens <= 0 {
		panic("BUG: a block holds at least one token")
	}
	for ; len(ids) >= blockTokens; ids = ids[blockTokens:] {
		parent = Key(parent, ids[:blockTokens])
		dst = append(dst, parent)
	}
	return dst
}
