package sim

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
)

// mpValue is a decoded value: nil, bool, uint64, int64, float64, string, []byte, []any or *mpMap.
type mpMap struct {
	keys   []string
	values map[string]any
}

// mpDecode is a plain decoder for tests. It returns what follows the value.
func mpDecode(b []byte) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errors.New("cut short")
	}
	tag, b := b[0], b[1:]
	number := func(size int) (n uint64) {
		if len(b) < size {
			err = errors.New("cut short")
			return 0
		}
		for _, c := range b[:size] {
			n = n<<8 | uint64(c)
		}
		b = b[size:]
		return n
	}
	bytes := func(n uint64) []byte {
		if err != nil || uint64(len(b)) < n {
			err = errors.New("cut short")
			return nil
		}
		v := b[:n]
		b = b[n:]
		return v
	}
	items := func(n uint64) []any {
		list := []any{}
		for ; err == nil && n > 0; n-- {
			var item any
			item, b, err = mpDecode(b)
			list = append(list, item)
		}
		return list
	}
	pairs := func(n uint64) *mpMap {
		m := &mpMap{values: map[string]any{}}
		list := items(2 * n)
		for i := 0; err == nil && i < len(list); i += 2 {
			k, ok := list[i].(string)
			if !ok {
				err = errors.New("key is no string")
				break
			}
			m.keys = append(m.keys, k)
			m.values[k] = list[i+1]
		}
		return m
	}
	switch {
	case tag < 0x80:
		v = uint64(tag)
	case tag < 0x90:
		v = pairs(uint64(tag & 15))
	case tag < 0xa0:
		v = items(uint64(tag & 15))
	case tag < 0xc0:
		v = string(bytes(uint64(tag & 31)))
	case tag == 0xc0:
	case tag >= 0xc4 && tag <= 0xc6:
		v = bytes(number(1 << (tag - 0xc4)))
	case tag == 0xcb:
		v = math.Float64frombits(number(8))
	case tag >= 0xcc && tag <= 0xcf:
		v = number(1 << (tag - 0xcc))
	case tag >= 0xd9 && tag <= 0xdb:
		v = string(bytes(number(1 << (tag - 0xd9))))
	case tag == 0xdc || tag == 0xdd:
		v = items(number(2 << (tag - 0xdc)))
	case tag == 0xde || tag == 0xdf:
		v = pairs(number(2 << (tag - 0xde)))
	default:
		err = errors.New("tag that vLLM does not send: " + hex.EncodeToString([]byte{tag}))
	}
	return v, b, err
}

// The shortest form at each of its borders, by the MessagePack specification.
func TestMsgpackForms(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		got  []byte
		head string // in hex; the rest is content
	}{
		{appendNil(nil), "c0"},
		{appendUint(nil, 0), "00"},
		{appendUint(nil, 127), "7f"},
		{appendUint(nil, 128), "cc80"},
		{appendUint(nil, 255), "ccff"},
		{appendUint(nil, 256), "cd0100"},
		{appendUint(nil, 65535), "cdffff"},
		{appendUint(nil, 65536), "ce00010000"},
		{appendUint(nil, 1<<32-1), "ceffffffff"},
		{appendUint(nil, 1<<32), "cf0000000100000000"},
		{appendUint(nil, 1<<64-1), "cfffffffffffffffff"},
		{appendFloat(nil, 1.5), "cb3ff8000000000000"},
		{appendStr(nil, ""), "a0"},
		{appendStr(nil, long(31)), "bf78"},
		{appendStr(nil, long(32)), "d92078"},
		{appendStr(nil, long(255)), "d9ff78"},
		{appendStr(nil, long(256)), "da010078"},
		{appendStr(nil, long(65536)), "db0001000078"},
		{appendBin(nil, nil), "c400"},
		{appendBin(nil, []byte(long(32))), "c42078"},
		{appendBin(nil, []byte(long(256))), "c5010078"},
		{appendBin(nil, []byte(long(65536))), "c60001000078"},
		{appendArray(nil, 15), "9f"},
		{appendArray(nil, 16), "dc0010"},
		{appendArray(nil, 65535), "dcffff"},
		{appendArray(nil, 65536), "dd00010000"},
		{appendMap(nil, 15), "8f"},
		{appendMap(nil, 16), "de0010"},
		{appendMap(nil, 65536), "df00010000"},
	} {
		if got := hex.EncodeToString(c.got); !strings.HasPrefix(got, c.head) || strings.Trim(strings.TrimPrefix(got, c.head), "78") != "" {
			t.Errorf("got %.20s.., want %s", got, c.head)
		}
	}
}

// What is appended is decoded to the same.
func TestMsgpackRoundTrip(t *testing.T) {
	t.Parallel()
	for shift := range 64 {
		for _, v := range []uint64{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			if got, rest, err := mpDecode(appendUint(nil, v)); err != nil || got != v || len(rest) > 0 {
				t.Errorf("%d came back as %v, %v", v, got, err)
			}
		}
	}
	for n := range 70_000 {
		if n > 300 && n < 65_500 {
			continue
		}
		s := string(binary.BigEndian.AppendUint32(nil, uint32(n))) + strings.Repeat("x", n)
		if got, rest, err := mpDecode(appendStr(nil, s)); err != nil || got != s || len(rest) > 0 {
			t.Fatalf("string of %d bytes: %v", len(s), err)
		}
		if got, rest, err := mpDecode(appendBin(nil, []byte(s))); err != nil || string(got.([]byte)) != s || len(rest) > 0 {
			t.Fatalf("bytes of %d: %v", len(s), err)
		}
	}
}
