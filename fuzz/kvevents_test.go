package fuzz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"

	"ramjet/kvevents"
)

// node is any msgpack value, read without knowing what it should be.
type node struct {
	kind  msgp.Type
	text  []byte  // of a string or bytes
	whole int64   // of an integer, if fits
	big   uint64  // of an unsigned integer
	float float64 // of a float
	items []node  // of an array, or keys and values in turn of a map
	raw   []byte
}

var errDeep = errors.New("too deep for the twin")

// parse is the slow twin's reader: a tree of everything.
func parse(b []byte, depth int) (n node, rest []byte, err error) {
	if depth > 200 {
		return n, nil, errDeep
	}
	if len(b) == 0 {
		return n, nil, msgp.ErrShortBytes
	}
	n.kind = msgp.NextType(b)
	switch n.kind {
	case msgp.StrType:
		n.text, rest, err = msgp.ReadStringZC(b)
	case msgp.BinType:
		n.text, rest, err = msgp.ReadBytesZC(b)
	case msgp.IntType:
		n.whole, rest, err = msgp.ReadInt64Bytes(b)
		n.big = uint64(n.whole)
	case msgp.UintType:
		n.big, rest, err = msgp.ReadUint64Bytes(b)
		n.whole = int64(n.big)
	case msgp.Float32Type, msgp.Float64Type:
		n.float, rest, err = msgp.ReadFloat64Bytes(b)
	case msgp.ArrayType, msgp.MapType:
		var size uint32
		times := 1
		if n.kind == msgp.ArrayType {
			size, rest, err = msgp.ReadArrayHeaderBytes(b)
		} else {
			size, rest, err = msgp.ReadMapHeaderBytes(b)
			times = 2
		}
		for i := 0; err == nil && i < times*int(size); i++ {
			var item node
			if item, rest, err = parse(rest, depth+1); err == nil {
				n.items = append(n.items, item)
			}
		}
	default:
		rest, err = msgp.Skip(b)
	}
	if err == nil {
		n.raw = b[:len(b)-len(rest)]
	}
	return n, rest, err
}

func (n *node) integer() bool {
	return n.kind == msgp.IntType || n.kind == msgp.UintType
}

// small says whether n is a size: a whole number of 31 bits.
func (n *node) small() bool {
	return n.kind == msgp.IntType && n.whole >= 0 && n.whole <= math.MaxInt32 || n.kind == msgp.UintType && n.big <= math.MaxInt32
}

func (n *node) id() bool {
	return n.kind == msgp.IntType && n.whole >= 0 && n.whole <= math.MaxUint32 || n.kind == msgp.UintType && n.big <= math.MaxUint32
}

func (n *node) list(each func(*node) bool) bool {
	if n.kind != msgp.ArrayType {
		return false
	}
	for i := range n.items {
		if !each(&n.items[i]) {
			return false
		}
	}
	return true
}

// hash reports a block hash.
func (n *node) hash() (uint64, bool) {
	if n.kind == msgp.BinType {
		return xxh3.Hash(n.text), true
	}
	return n.big, n.integer()
}

// twinEvent reads one event as the notes on vLLM's events say, field by field.
func twinEvent(n node) string {
	names := []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
		"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id", "lookahead_token_ids"}
	fields := map[string]node{}
	tag, bad := "", false
	set := func(name string, v node) {
		if v.kind != msgp.NilType && !twinFits(name, &v) {
			bad = true
			return
		}
		if name == "type" && v.kind == msgp.StrType {
			tag = string(v.text)
		}
		if v.kind != msgp.NilType {
			fields[name] = v
		}
	}
	switch {
	case n.kind == msgp.MapType:
		for i := 0; i < len(n.items); i += 2 {
			key := n.items[i]
			if key.kind != msgp.StrType && key.kind != msgp.BinType {
				return "odd"
			}
			set(string(key.text), n.items[i+1])
		}
	case n.kind != msgp.ArrayType || len(n.items) == 0 || n.items[0].kind != msgp.StrType:
		return "odd"
	default:
		tag = string(n.items[0].text)
		if tag == "BlockRemoved" {
			names = []string{"block_hashes", "medium", "group_idx"}
		}
		for i := 0; i < len(names) && i+1 < len(n.items) && (tag == "BlockRemoved" || tag == "BlockStored"); i++ {
			set(names[i], n.items[i+1])
		}
	}
	kind, known := map[string]string{"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}[tag]
	switch {
	case !known:
		return "unknown"
	case bad:
		return "odd"
	}
	return kind + twinFields(fields)
}

// twinFits says whether a value is of its field's type.
func twinFits(name string, v *node) bool {
	switch name {
	case "type", "medium", "lora_name", "kv_cache_spec_kind", "session_id":
		return v.kind == msgp.StrType
	case "block_hashes":
		return v.list(func(n *node) bool { _, ok := n.hash(); return ok })
	case "parent_block_hash":
		_, ok := v.hash()
		return ok
	case "token_ids":
		return v.list((*node).id)
	case "lora_id":
		return v.kind == msgp.IntType || v.kind == msgp.UintType && v.big <= math.MaxInt64
	case "block_size", "group_idx", "kv_cache_spec_sliding_window":
		return v.small()
	case "lookahead_token_ids":
		length := -1
		return v.list(func(n *node) bool {
			got := 1
			if n.kind == msgp.ArrayType {
				if got = len(n.items); !n.list((*node).id) {
					return false
				}
			} else if !n.id() {
				return false
			}
			same := length < 0 || length == got
			length = got
			return same
		})
	}
	return true
}

func twinFields(f map[string]node) string {
	var hashes []uint64
	for _, h := range f["block_hashes"].items {
		v, _ := h.hash()
		hashes = append(hashes, v)
	}
	var tokens, ahead []uint64
	for _, t := range f["token_ids"].items {
		tokens = append(tokens, t.big)
	}
	for _, l := range f["lookahead_token_ids"].items {
		if l.kind != msgp.ArrayType {
			ahead = append(ahead, l.big)
		}
		for _, t := range l.items {
			ahead = append(ahead, t.big)
		}
	}
	parent, has := f["parent_block_hash"]
	behind, _ := parent.hash()
	lora, hasLora := f["lora_id"]
	text := func(name string) string { n := f[name]; return string(n.text) }
	number := func(name string) int64 { n := f[name]; return n.whole }
	extra := f["extra_keys"]
	return fmt.Sprintf(" %x %v %x %d %d %v %d %q %q %x %d %q %d %d %q", hashes, has, behind, tokens, number("block_size"), hasLora, lora.whole,
		text("medium"), text("lora_name"), extra.raw, number("group_idx"), text("kv_cache_spec_kind"), number("kv_cache_spec_sliding_window"), ahead, text("session_id"))
}

func showEvent(e *kvevents.Event) string {
	kind := map[kvevents.EventKind]string{kvevents.EventStored: "stored", kvevents.EventRemoved: "removed", kvevents.EventCleared: "cleared",
		kvevents.EventOdd: "odd", kvevents.EventUnknown: "unknown"}[e.Kind]
	if kind == "odd" || kind == "unknown" {
		return kind
	}
	return kind + fmt.Sprintf(" %x %v %x %d %d %v %d %q %q %x %d %q %d %d %q", e.Hashes, e.HasParent, e.Parent, e.Tokens, e.BlockTokens, e.HasLoraID, e.LoraID,
		e.Medium, e.LoraName, e.Extra, e.Group, e.Spec, e.Window, e.Lookahead, e.Session)
}

func kvSeeds() (seeds [][]byte) {
	event := func(fields ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(fields); i += 2 {
			m[fields[i].(string)] = fields[i+1]
		}
		return m
	}
	for _, events := range [][]any{
		{event("type", "BlockStored", "block_hashes", []any{uint64(1) << 63, 2}, "parent_block_hash", nil, "token_ids", []any{1, 200, 70000, 3}, "block_size", 2,
			"lora_id", nil, "medium", "GPU", "lora_name", nil, "extra_keys", []any{nil, []any{"salt"}}, "group_idx", 0, "kv_cache_spec_kind", "full_attention")},
		{event("type", "BlockStored", "block_hashes", []any{[]byte("0123456789abcdef0123456789abcdef")}, "lookahead_token_ids", []any{[]any{1}}, "session_id", "s")},
		{[]any{"BlockStored", []any{1}, 2, []any{1, 2}, 2, 7, "GPU", "ad", []any{[]any{"ad", []any{"h", 1}}}, 2, "mamba", 64}},
		{event("type", "BlockRemoved", "block_hashes", []any{1}, "medium", "CPU"), []any{"BlockRemoved", []any{-1}}, event("type", "AllBlocksCleared"), []any{"AllBlocksCleared"}},
		{event("type", "BlockInactive", "block_hashes", 5), []any{"New", 1}, 5, nil, "x", []any{}},
	} {
		for _, envelope := range []any{[]any{1.5, events, 0}, []any{1.5, events}, event("ts", 1.5, "events", events, "data_parallel_rank", 1)} {
			b, err := msgp.AppendIntf(nil, envelope)
			if err != nil {
				panic(err)
			}
			seeds = append(seeds, b)
		}
	}
	return append(seeds, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, []byte{0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0x91}, 100))
}

// FuzzKVEvents compares the decoder with a twin that reads a tree of everything first and then looks at it.
func FuzzKVEvents(f *testing.F) {
	for _, s := range kvSeeds() {
		f.Add(s)
		f.Add(s[:len(s)/2])
	}
	var d kvevents.Decoder // kept, so that nothing of one payload may show in the next
	f.Fuzz(func(t *testing.T, payload []byte) {
		var got []string
		batch, err := d.Decode(payload, func(e *kvevents.Event) {
			got = append(got, showEvent(e))
			blocks := 0
			e.Extras(func(int, []byte, uint64) { blocks++ })
			if blocks > len(payload) || cap(e.Tokens) > 16*len(payload)+1024 && len(payload) > 4096 {
				t.Fatalf("%d extras and room for %d tokens from %d bytes", blocks, cap(e.Tokens), len(payload))
			}
		})
		if batch.Events != len(got) {
			t.Fatalf("%d events counted, %d given", batch.Events, len(got))
		}
		tree, rest, bad := parse(payload, 0)
		if errors.Is(bad, errDeep) {
			return
		}
		if whole := bad == nil && len(rest) == 0; !whole {
			if err == nil {
				t.Fatalf("no error, and the twin says %v with %d bytes left", bad, len(rest))
			}
			return
		}
		want, ok := twinBatch(&tree)
		if ok != (err == nil) {
			t.Fatalf("error %v, and the twin says %v", err, ok)
		}
		if ok && strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got\n%s\ntwin\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// twinBatch reads the envelope; ok is false if it is none.
func twinBatch(n *node) (events []string, ok bool) {
	one := func(name string, v *node) bool {
		switch name {
		case "ts":
			return v.kind == msgp.NilType || v.kind == msgp.IntType || v.kind == msgp.UintType && v.big <= math.MaxInt64 || v.kind == msgp.Float32Type || v.kind == msgp.Float64Type
		case "data_parallel_rank":
			return v.kind == msgp.NilType || v.kind == msgp.IntType || v.kind == msgp.UintType && v.big <= math.MaxInt64
		case "events":
			return v.list(func(e *node) bool { events = append(events, twinEvent(*e)); return true })
		}
		return true
	}
	switch n.kind {
	case msgp.MapType:
		for i := 0; i < len(n.items); i += 2 {
			key := n.items[i]
			if key.kind != msgp.StrType && key.kind != msgp.BinType || !one(string(key.text), &n.items[i+1]) {
				return nil, false
			}
		}
		return events, true
	case msgp.ArrayType:
		for i, name := range []string{"ts", "events", "data_parallel_rank"} {
			if i < len(n.items) && !one(name, &n.items[i]) {
				return nil, false
			}
		}
		return events, true
	}
	return nil, false
}

// twinMessages reads a stream of frames from the rules of RFC 37, message by message, until its end or what no peer
// sends.
func twinMessages(b []byte, most int) (shown []string, whole bool) {
	for len(b) > 0 {
		var frames [][]byte
		var total int
		var command bool
		for {
			if len(b) < 2 || b[0] > 7 {
				return shown, false
			}
			flags, size, head := b[0], uint64(b[1]), 2
			if flags&2 != 0 {
				if len(b) < 9 {
					return shown, false
				}
				size, head = binary.BigEndian.Uint64(b[1:]), 9
			}
			command = flags&4 != 0
			if command && (len(frames) > 0 || flags&1 != 0 || size > 4096) || len(frames) == 16 || size > uint64(most-total) || size > uint64(len(b)-head) {
				return shown, false
			}
			frames = append(frames, b[head:head+int(size)])
			total += int(size)
			b = b[head+int(size):]
			if flags&1 == 0 {
				break
			}
		}
		shown = append(shown, fmt.Sprintf("%v %q", command, frames))
	}
	return shown, true
}

// FuzzZMTP compares the frame reader with its twin, however the bytes arrive.
func FuzzZMTP(f *testing.F) {
	for _, s := range []string{
		"", "\x00\x01x", "\x01\x02kv\x01\x08\x00\x00\x00\x00\x00\x00\x00\x05\x00\x03abc", "\x04\x07\x04PING\x00\x0a\x00\x00",
		"\x02\x00\x00\x00\x00\x00\x00\x00\x03abc", "\x02\x00\x00\x00\x00\x40\x00\x00\x00x", "\x02\xff\xff\xff\xff\xff\xff\xff\xffx", strings.Repeat("\x01\x00", 20),
		"\x01\x00\x04\x00", "\x05\x00", "\x08\x00", "HTTP/1.1 400\r\n", "\x00",
	} {
		f.Add([]byte(s), []byte{})
		f.Add([]byte(s), []byte{1})
	}
	f.Fuzz(func(t *testing.T, stream, plan []byte) {
		const most = 1 << 16
		in, out := io.Pipe()
		go func() {
			cuts(stream, plan, func(piece []byte) bool {
				_, err := out.Write(piece)
				return err == nil
			})
			out.Close()
		}()
		defer in.Close()
		r := kvevents.NewReader(in, most)
		var m kvevents.Message
		var got []string
		var err error
		for err = r.Next(&m); err == nil; err = r.Next(&m) {
			got = append(got, fmt.Sprintf("%v %q", m.Command, m.Frames))
		}
		want, whole := twinMessages(stream, most)
		if fmt.Sprint(got) != fmt.Sprint(want) || whole != (err == io.EOF) {
			t.Fatalf("%q, %v; twin %q, whole %v", got, err, want, whole)
		}
	})
}
