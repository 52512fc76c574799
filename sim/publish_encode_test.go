package sim

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// capture returns the payloads of all live messages and replayed ones in a recording of vLLM's events.
func capture(t *testing.T, name string) (payloads [][]byte) {
	t.Helper()
	f, err := os.Open(filepath.Join("../../shared/vllm/captures", name+".jsonl"))
	if err != nil {
		t.Skip("the recordings of vLLM's events are not here")
	}
	defer f.Close()
	r := bufio.NewScanner(f)
	r.Buffer(nil, 64<<20)
	for r.Scan() {
		var line struct {
			Kind   string
			Frames json.RawMessage
		}
		if err := json.Unmarshal(r.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		var messages [][]string
		switch line.Kind {
		case "live":
			messages = make([][]string, 1)
			err = json.Unmarshal(line.Frames, &messages[0])
		case "replay":
			err = json.Unmarshal(line.Frames, &messages)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			b, err := hex.DecodeString(m[len(m)-1])
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 0 { // the end of a replay
				payloads = append(payloads, b)
			}
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return payloads
}

// eventOf turns a decoded event into ours. It knows every field that vLLM sends and fails at others.
func eventOf(v any) (e kvEvent, err error) {
	fields := map[string]any{}
	var tag string
	switch v := v.(type) {
	case *mpMap:
		fields = v.values
		tag, _ = fields["type"].(string)
		delete(fields, "type")
	case []any:
		tag, _ = v[0].(string)
		names := map[string][]string{
			"BlockStored":  {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"},
			"BlockRemoved": {"block_hashes", "medium", "group_idx"},
		}[tag]
		if len(v)-1 > len(names) {
			return e, fmt.Errorf("%s of %d fields", tag, len(v))
		}
		for i, f := range v[1:] {
			fields[names[i]] = f
		}
	}
	switch tag {
	case "BlockStored":
		e.kind = kvStored
	case "BlockRemoved":
		e.kind = kvRemoved
	case "AllBlocksCleared":
		e.kind = kvCleared
	default:
		return e, fmt.Errorf("no such event: %q", tag)
	}
	for name, v := range fields {
		if v == nil {
			continue
		}
		switch name {
		case "block_hashes":
			for _, h := range v.([]any) {
				e.hashes = append(e.hashes, hashOf(h))
			}
		case "parent_block_hash":
			h := hashOf(v)
			e.parent = &h
		case "token_ids":
			e.tokenIDs = tokensOf(v)
		case "block_size":
			e.blockSize = int(v.(uint64))
		case "lora_id":
			e.loraID = intOf(v)
		case "medium":
			s := v.(string)
			e.medium = &s
		case "lora_name":
			s := v.(string)
			e.loraName = &s
		case "extra_keys":
			e.extraKeys = keysOf(v)
		case "group_idx":
			e.groupIdx = intOf(v)
		case "kv_cache_spec_kind":
			e.specKind = v.(string)
		case "kv_cache_spec_sliding_window":
			e.slidingWindow = intOf(v)
		case "session_id":
			e.sessionID = v.(string)
		case "locality":
			e.locality = v.(string)
		case "ownership":
			e.ownership = v.(string)
		case "lookahead_token_ids":
			e.lookahead = [][]uint32{}
			for _, ids := range v.([]any) {
				e.lookahead = append(e.lookahead, tokensOf(ids))
			}
		default:
			return e, fmt.Errorf("no such field: %q", name)
		}
	}
	return e, nil
}

func hashOf(v any) blockHash {
	if b, ok := v.([]byte); ok {
		return blockHash{bytes: b}
	}
	return blockHash{num: v.(uint64)}
}

func intOf(v any) *int {
	n := int(v.(uint64))
	return &n
}

func tokensOf(v any) []uint32 {
	ids := []uint32{}
	for _, id := range v.([]any) {
		ids = append(ids, uint32(id.(uint64)))
	}
	return ids
}

func keysOf(v any) [][]string {
	keys := [][]string{}
	for _, k := range v.([]any) {
		if k == nil {
			keys = append(keys, nil)
			continue
		}
		list := []string{}
		for _, s := range k.([]any) {
			list = append(list, s.(string))
		}
		keys = append(keys, list)
	}
	return keys
}

// batchOf decodes a payload.
func batchOf(payload []byte) (ts float64, events []kvEvent, rank int, err error) {
	v, rest, err := mpDecode(payload)
	if err != nil || len(rest) > 0 {
		return 0, nil, 0, fmt.Errorf("payload does not decode: %w, %d bytes left", err, len(rest))
	}
	parts, ok := v.([]any)
	if m, isMap := v.(*mpMap); isMap {
		parts, ok = []any{m.values["ts"], m.values["events"], m.values["data_parallel_rank"]}, len(m.keys) == 3
	}
	if !ok || len(parts) != 3 {
		return 0, nil, 0, fmt.Errorf("envelope is %T", v)
	}
	for _, e := range parts[1].([]any) {
		ev, err := eventOf(e)
		if err != nil {
			return 0, nil, 0, err
		}
		events = append(events, ev)
	}
	return parts[0].(float64), events, int(parts[2].(uint64)), nil
}

// Every payload that real vLLM sent, and those in the layouts of older releases, come out of this encoder to the byte.
func TestEncoderAgainstCaptures(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]kvForm{
		"dense-basic":            {},
		"dense-bytes":            {},
		"dense-evict":            {},
		"dense-ngram":            {},
		"hybrid":                 {},
		"dense-basic-array-0.23": {layout: kvArrays},
		"dense-basic-array-0.10": {layout: kvArrays5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[kvKind]int{}
			for i, want := range capture(t, name) {
				ts, events, rank, err := batchOf(want)
				if err != nil {
					t.Fatalf("payload %d: %v", i, err)
				}
				for _, e := range events {
					seen[e.kind]++
				}
				if got := form.appendBatch(nil, ts, events, rank); !bytes.Equal(got, want) {
					t.Fatalf("payload %d:\n got %x\nwant %x", i, got, want)
				}
			}
			if seen[kvStored] == 0 {
				t.Error("no BlockStored in it")
			}
		})
	}
}

// full is one event with every field.
func full() kvEvent {
	text := func(s string) *string { return &s }
	number := func(n int) *int { return &n }
	return kvEvent{
		kind: kvStored, hashes: []blockHash{{num: 1<<64 - 1}, {bytes: bytes.Repeat([]byte{7}, 32)}}, parent: &blockHash{num: 5},
		tokenIDs: []uint32{1, 200, 70_000, 1<<32 - 1}, blockSize: 2, loraID: number(3), medium: text("GPU"), loraName: text("l"),
		extraKeys: [][]string{{"salt", "b"}, nil}, groupIdx: number(4), specKind: "sliding_window", slidingWindow: number(4096),
		locality: "LOCAL", ownership: "tier-1", sessionID: "s", lookahead: [][]uint32{{9}, {}},
	}
}

// Which fields an event has in which layout, by what a decoder finds.
func TestEncoderFields(t *testing.T) {
	t.Parallel()
	all := "block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window locality ownership session_id lookahead_token_ids"
	removed, cleared, bare := full(), full(), kvEvent{kind: kvStored}
	removed.kind, cleared.kind = kvRemoved, kvCleared
	for _, c := range []struct {
		name   string
		event  kvEvent
		fields string // of the map
		arrays [4]int // elements: 0.23, 0.23 cut, 0.10, 0.10 cut
	}{
		{"stored", full(), "type " + all, [4]int{12, 12, 6, 6}},
		{"removed", removed, "type block_hashes medium group_idx locality ownership", [4]int{4, 4, 2, 2}},
		{"cleared", cleared, "type", [4]int{1, 1, 1, 1}},
		{"bare", bare, "type block_hashes parent_block_hash token_ids block_size lora_id medium lora_name", [4]int{12, 8, 6, 6}},
		{"bare removed", kvEvent{kind: kvRemoved}, "type block_hashes medium", [4]int{4, 3, 2, 2}},
	} {
		v, _, err := mpDecode(kvForm{}.appendEvents(nil, []kvEvent{c.event}))
		if err != nil {
			t.Fatal(err)
		}
		m := v.([]any)[0].(*mpMap)
		if got := strings.Join(m.keys, " "); got != c.fields {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.fields)
		}
		if m.values["type"] != kvTag(c.event.kind) {
			t.Errorf("%s: type %v", c.name, m.values["type"])
		}
		for i, f := range []kvForm{{layout: kvArrays}, {layout: kvArrays, cut: true}, {layout: kvArrays5}, {layout: kvArrays5, cut: true}} {
			v, _, err := mpDecode(f.appendEvents(nil, []kvEvent{c.event}))
			if err != nil {
				t.Fatal(err)
			}
			if got := v.([]any)[0].([]any); len(got) != c.arrays[i] || got[0] != kvTag(c.event.kind) {
				t.Errorf("%s in form %d: %v, want %d elements", c.name, i, got, c.arrays[i])
			}
		}
	}
}

// Every value survives, in the map layout and in both envelopes.
func TestEncoderValues(t *testing.T) {
	t.Parallel()
	for _, f := range []kvForm{{}, {mapEnvelope: true}} {
		want := []kvEvent{full(), {kind: kvCleared}}
		ts, got, rank, err := batchOf(f.appendBatch(nil, 1796012490.79, want, 3))
		if err != nil || ts != 1796012490.79 || rank != 3 {
			t.Fatalf("ts %v, rank %d, %v", ts, rank, err)
		}
		if g, w := fmt.Sprintf("%+v", pointed(got)), fmt.Sprintf("%+v", pointed(want)); g != w {
			t.Errorf("\n got %s\nwant %s", g, w)
		}
	}
	v, _, err := mpDecode(kvForm{mapEnvelope: true}.appendBatch(nil, 1, nil, 0))
	if m, ok := v.(*mpMap); err != nil || !ok || !slices.Equal(slices.Sorted(maps.Keys(m.values)), []string{"data_parallel_rank", "events", "ts"}) {
		t.Errorf("the envelope is %v, %v", v, err)
	}
}

// pointed writes events so that what pointers point to can be compared.
func pointed(events []kvEvent) []string {
	var out []string
	for _, e := range events {
		s := fmt.Sprintf("%+v %v %v", e.hashes, e.tokenIDs, e.lookahead)
		for _, p := range []*int{e.loraID, e.groupIdx, e.slidingWindow} {
			if p != nil {
				s += fmt.Sprint(" ", *p)
			}
		}
		for _, p := range []*string{e.medium, e.loraName} {
			if p != nil {
				s += " " + *p
			}
		}
		if e.parent != nil {
			s += fmt.Sprintf(" %+v", *e.parent)
		}
		out = append(out, s+fmt.Sprint(e.kind, e.blockSize, e.extraKeys, e.specKind, e.locality, e.ownership, e.sessionID))
	}
	return out
}

// A nil list of extra keys and an absent one are not the same: only the first is null in its place.
func TestEncoderExtraKeys(t *testing.T) {
	t.Parallel()
	e := kvEvent{kind: kvStored, extraKeys: [][]string{nil, {}}}
	if got := hex.EncodeToString(appendExtraKeys(nil, &e)); got != "92c090" {
		t.Errorf("got %s", got)
	}
}
