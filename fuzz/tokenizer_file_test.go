package fuzz

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"ramjet/tokens"
)

// smallTokenizer is a tokenizer.json of 256 bytes, two merges and three added tokens, small enough to be changed
// anywhere.
func smallTokenizer() string {
	var b strings.Builder
	b.WriteString(`{"added_tokens":[{"id":258,"content":"<s>","special":true},{"id":259,"content":"<n>","normalized":true},{"id":260,"content":"<l>","lstrip":true,"rstrip":true,"single_word":true}],
"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel"},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[258]}}},"decoder":{"type":"ByteLevel"},
"model":{"type":"BPE","ignore_merges":false,"merges":["t h",["th","e"]],"vocab":{"th":256,"the":257`)
	other := rune(256)
	for i := range rune(256) {
		r := i
		if !(r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae) {
			r = other
			other++
		}
		text := string(r)
		if r == '"' || r == '\\' {
			text = `\` + text
		}
		b.WriteString(`,"` + text + `":` + strconv.Itoa(int(i)))
	}
	b.WriteString(`}}}`)
	return b.String()
}

// FuzzTokenizerFile: whatever a file holds, it is refused or it encodes every text to ids that decode to it.
func FuzzTokenizerFile(f *testing.F) {
	good := smallTokenizer()
	if _, err := tokens.NewTokenizer([]byte(good), nil); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(good), []byte(nil))
	f.Add([]byte(good), []byte(`{"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true,"bos_token":"<s>","added_tokens_decoder":{"258":{"content":"<s>"}}}`))
	for n := 0; n < len(good); n += 97 {
		f.Add([]byte(good[:n]), []byte(`{}`))
		f.Add([]byte(good[:n]+"0"+good[n+1:]), []byte(nil))
	}
	for _, change := range [][2]string{
		{`"id":258`, `"id":4294967295`}, {`"th":256`, `"th":4194303`}, {`["th","e"]`, `["th","e","x"]`}, {`"t h"`, `"t  h"`}, {`[{"SpecialToken"`, `[null,{"SpecialToken"`}, {`{"type":"NFC"}`, `{"type":"Sequence","normalizers":[{"type":"Sequence"},{"type":"NFC"}]}`},
		{`"content":"<s>"`, `"content":"\ud800"`}, {`"!":33`, `"\u0021":33`}, {`"!":33`, `"!":-33`}, {`"merges":[`, `"merges":[[],`}, {`"vocab":{`, `"vocab":{"":1,`}, {`{"type":"ByteLevel"},`, `{"type":"ByteLevel","pattern":"x","single":[1]},`},
	} {
		if !strings.Contains(good, change[0]) {
			f.Fatalf("the small file has no %q", change[0])
		}
		f.Add([]byte(strings.Replace(good, change[0], change[1], 1)), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, data, config []byte) {
		if len(data) > 64<<10 {
			return
		}
		tok, err := tokens.NewTokenizer(data, config)
		if err != nil {
			if !strings.Contains(err.Error(), "cannot") {
				t.Errorf("error %q does not say what cannot be done", err)
			}
			return
		}
		for _, text := range []string{"", "the they", "a<s>b <n> <l> c", "e\u0301\xff中", "<l", strings.Repeat("th", 100)} {
			ids, err := tok.AppendEncode(nil, text, tokens.Limits{MaxBytes: 1 << 20})
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			for _, id := range ids {
				if int(id) >= tok.VocabSize() || tok.BPE().TokenBytes(id) == nil {
					t.Errorf("%q has id %d of %d", text, id, tok.VocabSize())
				}
			}
			added := slices.ContainsFunc(ids, func(id uint32) bool { return id > 257 }) // which may have eaten spaces
			if got := tok.BPE().Decode(ids, false); got != norm.NFC.String(strings.ToValidUTF8(text, "\uFFFD")) && got != text && !added {
				t.Errorf("%q comes back as %q", text, got)
			}
			for range tok.Cuts(text) {
			}
		}
		tok.Prefix()
		tok.SpecialIDs()
	})
}
