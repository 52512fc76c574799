package sim

import (
	"encoding/binary"
	"math"
)

// The part of MessagePack that event batches need, always in the shortest form, which is what msgspec writes for
// vLLM. Every function appends to dst.

func appendNil(dst []byte) []byte { return append(dst, 0xc0) }

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(dst, byte(v))
	case v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
	}
}

func appendFloat(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(v))
}

// appendStr appends a string, appendBin bytes. They differ in their heads only.
func appendStr(dst []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(dst, 0xa0|byte(len(s))), s...)
	}
	return append(appendLength(dst, len(s), 0xd9, 0xda, 0xdb), s...)
}

func appendBin(dst, b []byte) []byte {
	return append(appendLength(dst, len(b), 0xc4, 0xc5, 0xc6), b...)
}

// appendLength appends the tag that has room for n, and n.
func appendLength(dst []byte, n int, tag8, tag16, tag32 byte) []byte {
	switch {
	case n < 1<<8:
		return append(dst, tag8, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, tag16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(dst, tag32), uint32(n))
	}
}

// appendArray starts an array of n elements, appendMap a map of n pairs.
func appendArray(dst []byte, n int) []byte { return appendContainer(dst, n, 0x90, 0xdc, 0xdd) }

func appendMap(dst []byte, n int) []byte { return appendContainer(dst, n, 0x80, 0xde, 0xdf) }

func appendContainer(dst []byte, n int, fix, tag16, tag32 byte) []byte {
	switch {
	case n < 16:
		return append(dst, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, tag16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(dst, tag32), uint32(n))
	}
}
