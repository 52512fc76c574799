package kvevents

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/radix"
)

// The applier says of each store what the index needs.
func TestFeedStoresWhatTheIndexNeeds(t *testing.T) {
	t.Parallel()
	root := func(lora, salt string) uint64 { return radix.Root("m", lora, salt) }
	for name, c := range map[string]struct {
		event any
		want  radix.Store
	}{
		"plain":        {storedMap([]uint64{1}, nil, span(1, 2), 2), radix.Store{BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"parent":       {storedMap([]uint64{1}, uint64(3), span(1, 2), 2), radix.Store{BlockTokens: 2, Parent: 3, HasParent: true, Hashes: []uint64{1}, IDs: span(1, 2)}},
		"salt":         {storedMap([]uint64{1}, nil, span(1, 2), 2, "extra_keys", list(list("s"))), radix.Store{BlockTokens: 2, Root: root("", "s"), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"LoRA":         {storedMap([]uint64{1}, nil, span(1, 2), 2, "lora_name", "ad", "extra_keys", list(list("ad"))), radix.Store{BlockTokens: 2, Root: root("ad", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"LoRA's id":    {list("BlockStored", []uint64{1}, nil, span(1, 2), 2, 7), radix.Store{BlockTokens: 2, Root: root("\x007", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"mamba":        {storedMap([]uint64{1}, nil, span(1, 6), 2, "kv_cache_spec_kind", "mamba", "group_idx", 2), radix.Store{Group: 2, Kind: radix.GroupMamba, BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1}, IDs: span(1, 6)}},
		"sliding":      {storedMap([]uint64{1}, nil, span(1, 2), 2, "kv_cache_spec_kind", "sliding_window", "kv_cache_spec_sliding_window", 8), radix.Store{Kind: radix.GroupSliding, Window: 8, BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"lookahead":    {storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "lookahead_token_ids", list(list(3), list(9))), radix.Store{BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1, 2}, IDs: span(1, 4), Lookahead: []uint32{3, 9}}},
		"new kind":     {storedMap([]uint64{1}, nil, span(1, 2), 2, "kv_cache_spec_kind", "mla_attention"), radix.Store{BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
		"over encoder": {storedMap([]uint64{1}, nil, span(1, 2), 2, "kv_cache_spec_kind", "cross_attention"), radix.Store{Kind: radix.GroupOther, BlockTokens: 2, Root: root("", ""), Hashes: []uint64{1}, IDs: span(1, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook()
			f := handFeed(b, Options{Root: root})
			f.onMessage(messageOf("kv", 0, batchOf(0, c.event)))
			if len(b.stores) != 1 || fmt.Sprintf("%+v", b.stores[0]) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("got  %+v\nwant %+v", b.stores, c.want)
			}
		})
	}
}

func TestFeedKeepsMediaApart(t *testing.T) {
	t.Parallel()
	b := newBook()
	f := handFeed(b, Options{})
	for i, hash := range []string{"one", "two"} {
		f.onMessage(messageOf("kv", uint64(i), batchOf(0, storedMap([]uint64{1, 2}, nil, span(1, 4), 2, "extra_keys", list(nil, list(list(hash, 7)))))))
	}
	one, two := b.stores[0].Extra, b.stores[1].Extra
	if len(one) != 2 || one[0] != 0 || two[0] != 0 || one[1] == 0 || one[1] == two[1] {
		t.Errorf("%x and %x", one, two)
	}
}

// With --prefix-match-unit short prompts make partial entries, which say nothing about whole blocks.
func TestFeedPassesOverPartialEntries(t *testing.T) {
	t.Parallel()
	b := newBook()
	f := handFeed(b, Options{})
	for i, event := range []any{
		storedMap([]uint64{1}, uint64(77), span(1, 2), 2), // before the block size is known
		storedMap([]uint64{2}, nil, span(1, 4), 4),
		storedMap([]uint64{3}, uint64(78), span(1, 2), 2),
		storedMap([]uint64{4}, uint64(2), span(5, 4), 4),
	} {
		f.onMessage(messageOf("kv", uint64(i), batchOf(0, event)))
	}
	if err := b.equal([]uint64{2, 4}); err != "" || f.Stats().Partials != 1 {
		t.Errorf("%s %+v", err, f.Stats())
	}
}

// Clients choose salts: a long one counts as another does, and is not kept.
func TestFeedKeepsNoLongSalts(t *testing.T) {
	t.Parallel()
	b := newBook()
	f := handFeed(b, Options{})
	salts := make([]string, 0, 2*maxRootKey)
	for n := range 2 * maxRootKey {
		salts = append(salts, strings.Repeat("s", n)+"x")
	}
	for i, salt := range salts {
		var more []any
		if lora := i % 3; lora > 0 {
			more = list("lora_id", lora-1) // 0 is no adapter
		}
		f.onMessage(messageOf("kv", uint64(i), batchOf(0, storedMap([]uint64{uint64(i)}, nil, span(1, 2), 2, append(more, "extra_keys", list(list(salt)))...))))
	}
	for i, s := range b.stores {
		lora := ""
		if i%3 == 2 {
			lora = "\x001"
		}
		if s.Root != radix.Root("", lora, salts[i]) {
			t.Errorf("a salt of %d bytes has another root", len(salts[i]))
		}
	}
	if n := len(f.apply.roots); len(b.stores) != len(salts) || n < maxRootKey/2 {
		t.Errorf("%d stores, %d roots are kept", len(b.stores), n)
	}
	for key := range f.apply.roots {
		if len(key) > maxRootKey {
			t.Errorf("a key of %d bytes is kept", len(key))
		}
	}
}
