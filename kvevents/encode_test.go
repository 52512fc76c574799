package kvevents

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// raw is msgpack that is put in as it is.
type raw []byte

// ordered is a map with its keys in order.
type ordered []any // key, value, key, value ..

// pack encodes what tests put into payloads. It is the encoder's own small twin: values, not vLLM's structs.
func pack(v any) []byte { return appendValue(nil, v) }

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return msgp.AppendNil(b)
	case raw:
		return append(b, v...)
	case string:
		return msgp.AppendString(b, v)
	case []byte:
		return msgp.AppendBytes(b, v)
	case int:
		return msgp.AppendInt(b, v)
	case uint64:
		return msgp.AppendUint64(b, v)
	case uint32:
		return msgp.AppendUint32(b, v)
	case float64:
		return msgp.AppendFloat64(b, v)
	case bool:
		return msgp.AppendBool(b, v)
	case ordered:
		b = msgp.AppendMapHeader(b, uint32(len(v)/2))
		for _, x := range v {
			b = appendValue(b, x)
		}
		return b
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, x := range v {
			b = appendValue(b, x)
		}
		return b
	case []uint64:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, x := range v {
			b = msgp.AppendUint64(b, x)
		}
		return b
	case []uint32:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, x := range v {
			b = msgp.AppendUint32(b, x)
		}
		return b
	}
	panic("BUG: a value that tests do not pack")
}

// list is an array of anything.
func list(v ...any) []any { return v }

// batchOf is a payload as vLLM sends it.
func batchOf(ts float64, events ...any) []byte { return pack(list(ts, list(events...), 0)) }

// storedMap is a BlockStored as vLLM 0.32 sends it. parent is nil or a hash.
func storedMap(hashes []uint64, parent any, tokens []uint32, size int, more ...any) ordered {
	return append(ordered{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", parent, "token_ids", tokens,
		"block_size", size, "lora_id", nil, "medium", "GPU", "lora_name", nil, "extra_keys", nil, "group_idx", 0,
		"kv_cache_spec_kind", "full_attention"}, more...)
}

func removedMap(hashes ...uint64) ordered {
	return ordered{"type", "BlockRemoved", "block_hashes", hashes, "medium", "GPU", "group_idx", 0}
}

func clearedMap() ordered { return ordered{"type", "AllBlocksCleared"} }

// messageOf is a live message.
func messageOf(topic string, seq uint64, payload []byte) *Message {
	m := new(Message)
	for _, f := range [][]byte{[]byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload} {
		m.buf = append(m.buf, f...)
		m.ends = append(m.ends, len(m.buf))
	}
	m.cut()
	return m
}

// span returns n ids from first on.
func span(first uint32, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = first + uint32(i)
	}
	return ids
}
