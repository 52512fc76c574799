package tokens

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// flagged are added tokens of every kind, some of them awkward: one within another, one that begins as another ends,
// one with a character that normalization changes.
var flagged = []addedEntry{
	{Content: "<s>", Special: true},
	{Content: "<w>", SingleWord: true},
	{Content: "wozw", SingleWord: true},
	{Content: "<l>", Lstrip: true},
	{Content: "<r>", Rstrip: true, Special: true},
	{Content: "<lr>", Lstrip: true, Rstrip: true},
	{Content: "<n>", Normalized: true},
	{Content: "<n><n>", Normalized: true},
	{Content: "<nl>", Normalized: true, Lstrip: true},
	{Content: "nwz", Normalized: true, SingleWord: true},
	{Content: "<e\u0301>", Normalized: true},
	{Content: "<\u212b>"},
	{Content: "><"},
	{Content: "<<x>>"},
	{Content: "<x>"},
	{Content: "<|im|>", Special: true},
	{Content: "<|nm|>", Normalized: true},
}

func flaggedParts() []string {
	parts := []string{" ", " ", "\n", "\u3000", "a", "_", "é", "e\u0301", "\u0338", "<", ">", "|", "x", "<x", "w", "o", "-", "\u200d", "中"}
	for _, e := range flagged {
		parts = append(parts, e.Content)
	}
	return append(parts, "<\u00e9>", "<\u00c5>", "<n>", "<|im|>")
}

// fileWithFlags is the simulator's tokenizer.json with the flagged tokens, and with tokens around a text.
func fileWithFlags(t testing.TB, nfc bool) []byte {
	t.Helper()
	return changedFile(t, func(f map[string]any) {
		if !nfc {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{}}
		}
		var list []any
		for i, e := range flagged {
			list = append(list, map[string]any{"id": 4087 + i, "content": e.Content, "single_word": e.SingleWord, "lstrip": e.Lstrip, "rstrip": e.Rstrip, "normalized": e.Normalized, "special": e.Special})
		}
		f["added_tokens"] = list
		f["post_processor"] = map[string]any{"type": "Sequence", "processors": []any{map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}, around(0, 4)}}
	})
}

// around is a post-processor that puts two flagged tokens around a text.
func around(first, last int) map[string]any {
	name := func(i int) map[string]any {
		return map[string]any{"SpecialToken": map[string]any{"id": flagged[i].Content, "type_id": 0}}
	}
	ids := func(i int) map[string]any {
		return map[string]any{"id": flagged[i].Content, "ids": []int{4087 + i}, "tokens": []string{flagged[i].Content}}
	}
	text := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}
	return map[string]any{"type": "TemplateProcessing", "single": []any{name(first), text, name(last)}, "pair": []any{text, map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}},
		"special_tokens": map[string]any{flagged[first].Content: ids(first), flagged[last].Content: ids(last)}}
}

// TestAddedTokens: the leftmost, and there the longest.
func TestAddedTokens(t *testing.T) {
	t.Parallel()
	var list []*addedToken
	for i, content := range []string{"<a", "<a>", "<", "[x]"} {
		list = append(list, &addedToken{addedEntry: addedEntry{ID: uint32(i + 1), Content: content}, match: content})
	}
	a := newAddedSet(list)
	var w work
	w.begin(Limits{})
	for _, c := range []struct {
		text string
		at   int
		id   uint32
	}{{"<a>", 0, 2}, {"x<ab", 1, 1}, {"y<b", 1, 3}, {"[x<", 2, 3}, {"..[x]<a>", 2, 4}, {"", 0, 0}, {"plain", 5, 0}} {
		at, token := a.find(c.text, 0, &w)
		if at != c.at || (token == nil) != (c.id == 0) || token != nil && token.ID != c.id {
			t.Errorf("%q: %d, %v", c.text, at, token)
		}
	}
}

// TestPostProcessor: what a template puts around is known, and a second template refused.
func TestPostProcessor(t *testing.T) {
	t.Parallel()
	tok, err := NewTokenizer(fileWithFlags(t, true), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Prefix(), []uint32{4087}; !slices.Equal(got, want) {
		t.Errorf("prefix %v, wanted %v", got, want)
	}
	if got, want := tok.Suffix(), []uint32{4087 + 4}; !slices.Equal(got, want) {
		t.Errorf("suffix %v, wanted %v", got, want)
	}
	_, err = LoadBPE(changedFile(t, func(f map[string]any) {
		f["post_processor"] = map[string]any{"type": "Sequence", "processors": []any{around(0, 4), around(1, 2)}}
	}))
	if err == nil || !strings.Contains(err.Error(), "second") {
		t.Errorf("two templates: %v", err)
	}
}

// TestCutTokens: which of the awkward tokens cut whatever stands around them.
func TestCutTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		list []addedEntry
		want string
	}{
		{"usual ones", []addedEntry{{Content: "<|im_start|>"}, {Content: "<|im_end|>"}, {Content: "<think>"}, {Content: "</think>"}}, "<|im_start|> <|im_end|> <think> </think>"},
		{"one within another", []addedEntry{{Content: "<a>"}, {Content: "<<a>>"}}, "<<a>>"},
		{"one begins another", []addedEntry{{Content: "<a"}, {Content: "<a>"}, {Content: "[b]"}}, "<a> [b]"},
		{"one begins as another ends", []addedEntry{{Content: "<a|"}, {Content: "|b>"}, {Content: "[c]"}}, "[c]"},
		{"one begins as it ends", []addedEntry{{Content: "aba"}, {Content: "[c]"}}, "[c]"},
		{"flags", []addedEntry{{Content: "<w>", SingleWord: true}, {Content: "<l>", Lstrip: true}, {Content: "[c]"}, {Content: "zqd"}, {Content: "( )"}, {Content: "( "}}, "[c] ( )"},
		{"normalized", []addedEntry{{Content: "[n]", Normalized: true}, {Content: "[c]"}}, "[c]"},
	} {
		b, err := LoadBPE(changedFile(t, func(f map[string]any) { f["added_tokens"] = numbered(c.list) }))
		if err != nil {
			t.Fatal(err)
		}
		if got := cutNames(b); got != c.want {
			t.Errorf("%s: %s, wanted %s", c.name, got, c.want)
		}
	}
}

func numbered(list []addedEntry) []addedEntry {
	list = slices.Clone(list)
	for i := range list {
		list[i].ID = uint32(4087 + i)
	}
	return list
}

func cutNames(b *BPE) string {
	var names []string
	for id := range uint32(b.Size()) {
		if b.IsCut(id) {
			names = append(names, string(b.TokenBytes(id)))
		}
	}
	return strings.Join(names, " ")
}

// TestCutsAreExact: whatever stands around a cut token, the parts on both sides are encoded as if each stood alone.
func TestCutsAreExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	usual := []addedEntry{{Content: "<|im|>", Special: true}, {Content: "<|nm|>", Normalized: true}, {Content: "<w>", SingleWord: true}, {Content: "<l>", Lstrip: true}, {Content: "<r>", Rstrip: true}, {Content: "<<r>>"}}
	for _, nfc := range []bool{true, false} {
		b, err := LoadBPE(changedFile(t, func(f map[string]any) {
			f["added_tokens"] = numbered(usual)
			if !nfc {
				f["normalizer"] = nil
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		parts := append(flaggedParts(), "\xff", "\xe4\xb8", "\xad", "<|im", "im|>", "<<r>>", "<|nm|>", "<|im|>", "<|im|>")
		texts := mixed(r, 1000, parts)
		cuts := 0
		for i, text := range texts[1:] {
			for c := range b.Cuts(text) {
				cuts++
				want := append(append(b.Encode(text[:c.Start]), c.ID), b.Encode(text[c.End:])...)
				if got := b.Encode(text); !slices.Equal(got, want) {
					t.Fatalf("nfc %v: %q is %v, in parts %v", nfc, text, got, want)
				}
			}
			for id := range uint32(b.Size()) {
				if id < 4087 || !b.IsCut(id) {
					continue
				}
				before, after := texts[i], text
				want := append(append(b.Encode(before), id), b.Encode(after)...)
				if got := b.Encode(before + string(b.TokenBytes(id)) + after); !slices.Equal(got, want) {
					t.Fatalf("nfc %v: %q, %q, %q is %v, in parts %v", nfc, before, b.TokenBytes(id), after, got, want)
				}
			}
		}
		if cuts < 500 {
			t.Errorf("nfc %v: only %d cuts", nfc, cuts)
		}
	}
}
