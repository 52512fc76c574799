package tokens

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func testTokenizer(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := LoadTokenizer("../sim/model")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestLoadTokenizer(t *testing.T) {
	t.Parallel()
	folder := testTokenizer(t)
	file, err := LoadTokenizer("../sim/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if folder.Identity() != file.Identity() || len(file.Identity()) != 16 {
		t.Errorf("identities %q and %q", folder.Identity(), file.Identity())
	}
	if folder.Rule() != "qwen2" || folder.VocabSize() != 4096 || folder.BPE().Size() != 4096 {
		t.Errorf("rule %s, %d ids", folder.Rule(), folder.VocabSize())
	}
	ids := folder.SpecialIDs()
	if len(ids) == 0 || !slices.IsSorted(ids) || !folder.BPE().IsSpecial(ids[0]) {
		t.Errorf("special ids %v", ids)
	}
	other, err := NewTokenizer(append(testFile(t), '\n'), nil)
	if err != nil || other.Identity() == file.Identity() {
		t.Errorf("a changed file has the same identity, %v", err)
	}
	got, err := folder.AppendEncode([]uint32{7}, "Hello <|im_end|>", Limits{})
	if want := append([]uint32{7}, testBPE(t).Encode("Hello <|im_end|>")...); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, wanted %v", got, err, want)
	}
}

func TestLoadTokenizerRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := LoadTokenizer(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := LoadTokenizer(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("empty folder: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tokenizer.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTokenizer(dir); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a folder in its place: %v", err)
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"model": {"type": "WordPiece"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTokenizer(bad); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "WordPiece") {
		t.Errorf("another model: %v", err)
	}
}

// TestTokenizerConfig: what transformers reads beside tokenizer.json counts.
func TestTokenizerConfig(t *testing.T) {
	t.Parallel()
	data := testFile(t)
	begin, _ := testBPE(t).TokenID("<|im_start|>")
	end, _ := testBPE(t).TokenID("<|im_end|>")
	for _, c := range []struct {
		name, config   string
		prefix, suffix []uint32
		err            string
	}{
		{name: "none"},
		{name: "flags of another class", config: `{"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": true, "bos_token": "<|im_start|>"}`},
		{name: "begin", config: `{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}`, prefix: []uint32{begin}},
		{name: "both, as objects", config: `{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": true, "bos_token": {"content": "<|im_start|>"}, "eos_token": {"content": "<|im_end|>"}}`, prefix: []uint32{begin}, suffix: []uint32{end}},
		{name: "unknown begin", config: `{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "bos_token": "<bos>"}`, err: `"<bos>" is not in tokenizer.json`},
		{name: "no begin", config: `{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "bos_token": null}`, err: "is not in tokenizer.json"},
		{name: "same added token", config: `{"added_tokens_decoder": {"4088": {"content": "<|im_start|>", "special": true}}}`},
		{name: "another added token", config: `{"added_tokens_decoder": {"5000": {"content": "<new>"}}}`, err: `"<new>", id 5000, is not in tokenizer.json`},
		{name: "another id", config: `{"added_tokens_decoder": {"4089": {"content": "<|im_start|>"}}}`, err: `id 4089, is not in`},
		{name: "no id", config: `{"added_tokens_decoder": {"x": {"content": "<|im_start|>"}}}`, err: `id x, is not in`},
		{name: "another flag", config: `{"added_tokens_decoder": {"4088": {"content": "<|im_start|>", "lstrip": true}}}`, err: "has other flags"},
		{name: "prefix space", config: `{"add_prefix_space": true}`, err: "add_prefix_space"},
		{name: "not JSON", config: `{`, err: "cannot use tokenizer_config.json"},
	} {
		tok, err := NewTokenizer(data, []byte(c.config))
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, wanted %q", c.name, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !slices.Equal(tok.Prefix(), c.prefix) || !slices.Equal(tok.Suffix(), c.suffix):
			t.Errorf("%s: around a text %v and %v, wanted %v and %v", c.name, tok.Prefix(), tok.Suffix(), c.prefix, c.suffix)
		}
	}
}

// TestLimits: past a bound nothing is added, and the word says which one.
func TestLimits(t *testing.T) {
	t.Parallel()
	tok := testTokenizer(t)
	long := strings.Repeat("some words and more ", 1000)
	run := strings.Repeat("-", maxPiece)
	for _, c := range []struct {
		name, text string
		lim        Limits
		want       error
	}{
		{"no limits", long, Limits{}, nil},
		{"just so long", long, Limits{MaxBytes: len(long)}, nil},
		{"a byte too long", long, Limits{MaxBytes: len(long) - 1}, ErrTooLong},
		{"time enough", long, Limits{MaxTime: time.Hour}, nil},
		{"no time", long, Limits{MaxTime: 1}, ErrTooSlow},
		{"no time, but less than a step", long[:workStep/2], Limits{MaxTime: 1}, nil},
		{"no time for normalization", strings.Repeat("e\u0301", 50000), Limits{MaxTime: 1}, ErrTooSlow},
		{"no time for one piece", run[:linearMerge*100], Limits{MaxTime: 1}, ErrTooSlow},
		{"no time to look for added tokens", strings.Repeat("<", 50000), Limits{MaxTime: 1}, ErrTooSlow},
		{"a long piece", run, Limits{MaxBytes: 1 << 30}, nil},
		{"a piece too long", run + "-", Limits{MaxBytes: 1 << 30}, ErrTooLong},
		{"a piece too long, without limits", run + "-", Limits{}, nil},
	} {
		got, err := tok.AppendEncode([]uint32{1, 2, 3}, c.text, c.lim)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, wanted %v", c.name, err, c.want)
			continue
		}
		want := []uint32{1, 2, 3}
		if c.want == nil {
			want = tok.BPE().AppendEncode(want, c.text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d ids, wanted %d", c.name, len(got), len(want))
		}
	}
}

// TestConcurrentUse: one tokenizer, many goroutines, calls that end early among them.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	tok := testTokenizer(t)
	texts := append(slices.Clone(handTexts), "e\u0301 "+strings.Repeat("q\u0307\u0323", 1000))
	want := make([][]uint32, len(texts))
	for i, text := range texts {
		want[i] = tok.BPE().Encode(text)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var dst []uint32
			for i := range texts {
				at := (i + g*11) % len(texts)
				_, _ = tok.AppendEncode(dst[:0], texts[len(texts)-1], Limits{MaxTime: 1}) // ends early
				var err error
				if dst, err = tok.AppendEncode(dst[:0], texts[at], Limits{MaxBytes: 1 << 20}); err != nil || !slices.Equal(dst, want[at]) {
					t.Errorf("%.80q: %v, %v, wanted %v", texts[at], dst, err, want[at])
				}
			}
		})
	}
	wg.Wait()
}
