package kvevents

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

// show writes an event so that tests can compare it whole.
func show(e *Event) string {
	var b strings.Builder
	switch e.Kind {
	case EventUnknown:
		return "unknown"
	case EventOdd:
		return "odd"
	case EventCleared:
		return "cleared"
	case EventStored:
		b.WriteString("stored")
	case EventRemoved:
		b.WriteString("removed")
	}
	fmt.Fprintf(&b, " %x", e.Hashes)
	if e.HasParent {
		fmt.Fprintf(&b, " behind %x", e.Parent)
	}
	if len(e.Tokens) > 0 {
		fmt.Fprintf(&b, " %d", e.Tokens)
	}
	for _, x := range []struct {
		name  string
		value any
		there bool
	}{
		{"size", e.BlockTokens, e.BlockTokens != 0}, {"lora", e.LoraID, e.HasLoraID}, {"lora", string(e.LoraName), len(e.LoraName) > 0},
		{"medium", string(e.Medium), len(e.Medium) > 0}, {"group", e.Group, e.Group != 0}, {"spec", string(e.Spec), len(e.Spec) > 0},
		{"window", e.Window, e.Window != 0}, {"session", string(e.Session), len(e.Session) > 0},
		{"ahead", fmt.Sprint(e.LookaheadTokens, e.Lookahead), len(e.Lookahead) > 0},
	} {
		if x.there {
			fmt.Fprintf(&b, " %s=%v", x.name, x.value)
		}
	}
	e.Extras(func(block int, salt []byte, fold uint64) {
		fmt.Fprintf(&b, " extra[%d]=%s", block, salt)
		if fold != 0 {
			b.WriteString("+")
		}
	})
	return b.String()
}

func decodeAll(payload []byte) (shown []string, b Batch, err error) {
	var d Decoder
	b, err = d.Decode(payload, func(e *Event) { shown = append(shown, show(e)) })
	return shown, b, err
}

// digest is a block hash in the form of VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0.
func digest(last byte) []byte { return append(bytes.Repeat([]byte{0xaa}, 31), last) }

func folded(last byte) string { return fmt.Sprintf("%x", xxh3.Hash(digest(last))) }

var top = uint64(1)<<63 | 5 // a hash with its top bit set, which no signed number holds

func TestDecodeEveryShape(t *testing.T) {
	t.Parallel()
	full := storedMap([]uint64{top, 2}, uint64(9), []uint32{1, 200, 70000, 3}, 2)
	for name, c := range map[string]struct {
		event any
		want  string
	}{
		"map, vLLM 0.32":               {full, "stored [8000000000000005 2] behind 9 [1 200 70000 3] size=2 medium=GPU spec=full_attention"},
		"map, no parent":               {storedMap([]uint64{1}, nil, span(1, 2), 2), "stored [1] [1 2] size=2 medium=GPU spec=full_attention"},
		"map, session":                 {storedMap([]uint64{1}, nil, span(1, 2), 2, "session_id", "s-1"), "stored [1] [1 2] size=2 medium=GPU spec=full_attention session=s-1"},
		"map, tiers' fields":           {storedMap([]uint64{1}, nil, span(1, 2), 2, "locality", "LOCAL", "ownership", "x"), "stored [1] [1 2] size=2 medium=GPU spec=full_attention"},
		"map, unknown fields":          {storedMap([]uint64{1}, nil, span(1, 2), 2, "event_version", 3, "origin", ordered{"a", list(1, nil)}), "stored [1] [1 2] size=2 medium=GPU spec=full_attention"},
		"map, the tag last":            {ordered{"block_hashes", []uint64{7}, "medium", nil, "group_idx", 3, "type", "BlockRemoved"}, "removed [7] group=3"},
		"map, keys as bytes":           {ordered{[]byte("type"), "BlockRemoved", []byte("block_hashes"), []uint64{7}}, "removed [7]"},
		"map, window":                  {storedMap([]uint64{1}, nil, span(1, 2), 2, "kv_cache_spec_kind", "sliding_window", "kv_cache_spec_sliding_window", 128), "stored [1] [1 2] size=2 medium=GPU spec=sliding_window window=128"},
		"map, nothing kept":            {ordered{"type", "BlockStored", "block_hashes", list(), "parent_block_hash", uint64(4), "token_ids", span(1, 2), "block_size", 2, "group_idx", 1, "kv_cache_spec_kind", "mamba"}, "stored [] behind 4 [1 2] size=2 group=1 spec=mamba"},
		"map, byte hashes":             {ordered{"type", "BlockStored", "block_hashes", list(digest(1)), "parent_block_hash", digest(2), "token_ids", span(1, 2), "block_size", 2}, "stored [" + folded(1) + "] behind " + folded(2) + " [1 2] size=2"},
		"map, signed hashes":           {ordered{"type", "BlockRemoved", "block_hashes", list(-1)}, "removed [ffffffffffffffff]"},
		"map, lookahead lists":         {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "lookahead_token_ids", list(list(3), list(500))), "stored [1 2] [1 2 3 4] size=2 medium=GPU spec=full_attention ahead=1 [3 500]"},
		"map, lookahead of two":        {storedMap([]uint64{1}, nil, span(1, 2), 2, "lookahead_token_ids", list(list(3, 4))), "stored [1] [1 2] size=2 medium=GPU spec=full_attention ahead=2 [3 4]"},
		"map, lookahead flat":          {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "lookahead_token_ids", list(3, 5)), "stored [1 2] [1 2 3 4] size=2 medium=GPU spec=full_attention ahead=1 [3 5]"},
		"map, salt":                    {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "extra_keys", list(list("tenant"), nil)), "stored [1 2] [1 2 3 4] size=2 medium=GPU spec=full_attention extra[0]=tenant"},
		"map, text that is no salt":    {storedMap([]uint64{1}, uint64(5), span(1, 2), 2, "extra_keys", list(list("x"))), "stored [1] behind 5 [1 2] size=2 medium=GPU spec=full_attention extra[0]=+"},
		"map, media":                   {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "extra_keys", list(nil, list(list("hash", 7)))), "stored [1 2] [1 2 3 4] size=2 medium=GPU spec=full_attention extra[1]=+"},
		"map, LoRA, media and salt":    {storedMap([]uint64{1}, nil, span(1, 2), 2, "lora_name", "ad", "extra_keys", list(list("ad", list("hash", 7), "tenant", []byte{1}))), "stored [1] [1 2] size=2 lora=ad medium=GPU spec=full_attention extra[0]=tenant+"},
		"map, LoRA alone":              {storedMap([]uint64{1}, nil, span(1, 2), 2, "lora_id", 4, "lora_name", "ad", "extra_keys", list(list("ad"))), "stored [1] [1 2] size=2 lora=4 lora=ad medium=GPU spec=full_attention"},
		"map, cleared":                 {clearedMap(), "cleared"},
		"map, unknown":                 {ordered{"type", "BlockInactive", "block_hashes", 5, "token_ids", "x"}, "unknown"},
		"map, no tag":                  {ordered{"block_hashes", []uint64{1}}, "unknown"},
		"map, odd":                     {ordered{"type", "BlockStored", "block_hashes", "x", "block_size", 2}, "odd"},
		"map, odd size":                {ordered{"type", "BlockStored", "block_hashes", list(), "block_size", -2}, "odd"},
		"map, odd lookahead":           {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "lookahead_token_ids", list(list(3), list(4, 5))), "odd"},
		"array, vLLM 0.10":             {list("BlockStored", []uint64{1, 2}, nil, span(1, 4), 2, nil), "stored [1 2] [1 2 3 4] size=2"},
		"array, vLLM 0.11":             {list("BlockStored", []uint64{1}, uint64(8), span(1, 2), 2, 7, "GPU"), "stored [1] behind 8 [1 2] size=2 lora=7 medium=GPU"},
		"array, vLLM 0.23":             {list("BlockStored", []uint64{top}, nil, span(1, 2), 2, nil, "GPU", "ad", list(list("ad")), 2, "sliding_window", 64), "stored [8000000000000005] [1 2] size=2 lora=ad medium=GPU group=2 spec=sliding_window window=64"},
		"array, newer and longer":      {list("BlockStored", []uint64{1}, nil, span(1, 2), 2, nil, nil, nil, nil, nil, nil, nil, "LOCAL", "o", "s-1", list(list(9)), "new", ordered{}), "stored [1] [1 2] size=2 session=s-1 ahead=1 [9]"},
		"array, byte hashes":           {list("BlockRemoved", list(digest(1))), "removed [" + folded(1) + "]"},
		"array, removed":               {list("BlockRemoved", []uint64{1, 2}, "CPU", 1), "removed [1 2] medium=CPU group=1"},
		"array, removed, tiers fields": {list("BlockRemoved", []uint64{1}, nil, nil, "REMOTE", "o"), "removed [1]"},
		"array, cleared":               {list("AllBlocksCleared"), "cleared"},
		"array, unknown":               {list("BlockMoved", 1, ordered{"a", 2}), "unknown"},
		"array, odd":                   {list("BlockStored", "x", nil, span(1, 2), 2), "odd"},
		"array, empty":                 {list(), "odd"},
		"a number":                     {7, "odd"},
		"null":                         {nil, "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The event stands between two others, which it must not cost, in each envelope that there has been.
			around := list(removedMap(1), c.event, removedMap(2))
			for envelope, payload := range map[string][]byte{
				"array":          pack(list(5.5, around, 1)),
				"array, no rank": pack(list(5.5, around)),
				"array, longer":  pack(list(5.5, around, 1, "new", ordered{"x", 1})),
				"map":            pack(ordered{"type", "KVEventBatch", "events", around, "data_parallel_rank", 1, "ts", 5.5}),
				"whole seconds":  pack(list(5, around, nil)),
			} {
				got, b, err := decodeAll(payload)
				want := []string{"removed [1] medium=GPU", c.want, "removed [2] medium=GPU"}
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %q, %v; want %q", envelope, got, err, want)
				}
				if b.Events != 3 || b.Time < 5 || b.Time > 5.5 || b.Odd+b.Unknown != strings.Count(c.want, "odd")+strings.Count(c.want, "unknown") {
					t.Errorf("%s: %+v", envelope, b)
				}
				if rank := strings.Contains(envelope, "longer") || envelope == "array" || envelope == "map"; rank != (b.Rank == 1) {
					t.Errorf("%s: rank %d", envelope, b.Rank)
				}
			}
		})
	}
}

// cuttable is a payload with everything in it.
func cuttable() []byte {
	return pack(ordered{"ts", 1.5, "events", list(
		storedMap([]uint64{top, 2}, uint64(9), []uint32{1, 200, 70000, 3}, 2, "session_id", "s", "lookahead_token_ids", list(list(1), list(2)), "x", ordered{"y", 1.5}),
		list("BlockStored", list(digest(1)), digest(2), span(1, 2), 2, 7, "GPU", "ad", list(list("ad", list("h", 1), "salt")), 2, "mamba", 64),
		removedMap(1), clearedMap(), ordered{"type", "New"}, list("New", 1),
	), "data_parallel_rank", 0})
}

func TestDecodeCutAtEveryByte(t *testing.T) {
	t.Parallel()
	whole := cuttable()
	all, _, err := decodeAll(whole)
	if err != nil || len(all) != 6 {
		t.Fatalf("%q, %v", all, err)
	}
	for i := range whole {
		got, _, err := decodeAll(whole[:i])
		if err == nil {
			t.Fatalf("cut at %d of %d: no error", i, len(whole))
		}
		if len(got) > len(all) || fmt.Sprint(got) != fmt.Sprint(all[:len(got)]) {
			t.Fatalf("cut at %d: %q", i, got)
		}
	}
	if _, _, err := decodeAll(append(bytes.Clone(whole), 1)); err == nil {
		t.Error("a byte behind the batch is no error")
	}
}

// What a payload announces costs nothing; only what it holds does.
func TestDecodeAllocatesNoMoreThanItsInput(t *testing.T) {
	huge := raw{0xdd, 0xff, 0xff, 0xff, 0xff} // an array of 2^32-1
	deep := raw(bytes.Repeat([]byte{0x91}, 5<<20))
	for name, payload := range map[string][]byte{
		"events":     pack(list(1.0, huge)),
		"envelope":   huge,
		"map":        {0xdf, 0xff, 0xff, 0xff, 0xff},
		"hashes":     batchOf(1, ordered{"type", "BlockStored", "block_hashes", huge}),
		"tokens":     batchOf(1, ordered{"type", "BlockStored", "token_ids", huge}),
		"lookahead":  batchOf(1, ordered{"type", "BlockStored", "lookahead_token_ids", huge}),
		"inner":      batchOf(1, ordered{"type", "BlockStored", "lookahead_token_ids", list(huge)}),
		"array":      batchOf(1, list("BlockStored", huge)),
		"text":       batchOf(1, ordered{"type", raw{0xdb, 0xff, 0xff, 0xff, 0xff}}),
		"bytes":      batchOf(1, ordered{"type", "BlockRemoved", "block_hashes", list(raw{0xc6, 0xff, 0xff, 0xff, 0xff})}),
		"nest":       deep,
		"nest inner": batchOf(1, ordered{"x", deep}),
	} {
		before := new(runtime.MemStats)
		runtime.ReadMemStats(before)
		_, _, err := decodeAll(payload)
		after := new(runtime.MemStats)
		runtime.ReadMemStats(after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		// Stacks of the nest are not heap; a few hundred bytes are the errors themselves.
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(16*len(payload)+64<<10) {
			t.Errorf("%s: %d bytes allocated for %d", name, n, len(payload))
		}
	}
}

func TestDecodeNumbersAtTheirEdges(t *testing.T) {
	t.Parallel()
	for _, id := range []uint32{0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxInt32, math.MaxUint32} {
		got, _, err := decodeAll(batchOf(1, ordered{"type", "BlockStored", "token_ids", []uint32{id, id}}))
		if want := fmt.Sprintf("[stored [] [%d %d]]", id, id); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%d: %v %v", id, got, err)
		}
	}
	for _, bad := range []any{-1, uint64(math.MaxUint32 + 1), "1", 1.5} {
		if got, _, _ := decodeAll(batchOf(1, ordered{"type", "BlockStored", "token_ids", list(1, bad)})); fmt.Sprint(got) != "[odd]" {
			t.Errorf("token id %v: %v", bad, got)
		}
	}
}
