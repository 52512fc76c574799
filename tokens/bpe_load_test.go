package tokens

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLoadRefuses changes one thing in a good file; each must be refused by its name.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	whole := string(testFile(t))
	for _, c := range []struct{ name, old, new, want string }{
		{"not JSON", "{", "[", "cannot read tokenizer.json"},
		{"other pattern", `\\p{N}|`, `\\p{N}{1,4}|`, "is not one of the known ones"},
		{"other normalizer", `{"type": "NFC"}`, `{"type": "NFKC"}`, `normalizer "NFKC"`},
		{"no pre-tokenizer", `"pre_tokenizer"`, `"pre"`, "no pre-tokenizer"},
		{"other pre-tokenizer", `{"type": "Sequence"`, `{"type": "Whitespace"`, `pre-tokenizer "Whitespace"`},
		{"removing split", `"Isolated"`, `"Removed"`, `behavior "Removed"`},
		{"second pattern", `"ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}` + "\n ]", `"ByteLevel", "add_prefix_space": false}` + "\n ]", `pre-tokenizer "ByteLevel"`},
		{"post-processor", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "BertProcessing"`, `post-processor "BertProcessing"`},
		{"other model", `"type": "BPE"`, `"type": "Unigram"`, `model type "Unigram"`},
		{"dropout", `"dropout": null`, `"dropout": 0.1`, "dropout"},
		{"subword prefix", `"continuing_subword_prefix": ""`, `"continuing_subword_prefix": "##"`, "subwords"},
		{"byte fallback", `"byte_fallback": false`, `"byte_fallback": true`, "falls back"},
		{"empty token", `"content": "<think>"`, `"content": ""`, "empty"},
		{"missing byte", `"!": 0`, `"!!!!!": 0`, "byte 0x21"},
		{"id twice", `"!": 0`, `"!": 1`, "two tokens"},
		{"added id twice", `"id": 4087`, `"id": 400`, "would be given 4087"},
		{"gap before an added id", `"id": 4087`, `"id": 5087`, "would be given 4087"},
		{"added token twice", `"content": "<|im_start|>"`, `"content": "<|endoftext|>"`, "there twice"},
		{"merge twice", "\"merges\": [\n", "\"merges\": [\n[\"t\",\"h\"],[\"t\",\"h\"],", "there twice"},
		{"other decoder", `"decoder": {"type": "ByteLevel"`, `"decoder": {"type": "WordPiece"`, `decoder "WordPiece"`},
		{"prefix space", `"add_prefix_space": false, "trim_offsets": false, "use_regex": false}` + "\n ]", `"add_prefix_space": true, "trim_offsets": false, "use_regex": false}` + "\n ]", "prefix space"},
		{"string split", `"pattern": {"Regex"`, `"pattern": {"String"`, "by a string"},
		{"third step", `{"type": "Sequence", "pretokenizers": [`, `{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},`, `"Digits"`},
		{"empty template", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "TemplateProcessing", "single": []`, "0 times"},
		{"template without ids", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]`, `"<s>" without ids`},
		{"wild id", `"!": 0`, `"!": 4000000000`, "out of bounds"},
		{"not byte-level", `"!": 0`, `"!": 0, "a b": 5000`, "byte-level form"},
		{"merge of three", "\"merges\": [\n", "\"merges\": [\n[\"a\",\"b\",\"c\"],", "3 symbols"},
		{"merge unknown", "\"merges\": [\n", "\"merges\": [\n[\"Q\",\"Z\"],", "not in the vocabulary"},
	} {
		if !strings.Contains(whole, c.old) {
			t.Errorf("%s: the file has no %q", c.name, c.old)
		}
		_, err := LoadBPE([]byte(strings.Replace(whole, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted %q", c.name, err, c.want)
		}
	}
}

// TestLoadCut: a file cut anywhere is refused; no cut is taken for a smaller vocabulary.
func TestLoadCut(t *testing.T) {
	t.Parallel()
	whole := strings.TrimRight(string(testFile(t)), "\n")
	for n := 0; n < len(whole); n += 1 + n/25 {
		if _, err := LoadBPE([]byte(whole[:n])); err == nil {
			t.Errorf("the first %d bytes were taken", n)
		}
	}
}

// TestMergesAsLines reads the older spelling of merges, and nothing else than the two.
func TestMergesAsLines(t *testing.T) {
	t.Parallel()
	read := func(text string) (merges []string, err error) {
		err = eachMerge([]byte(text), func(left, right string) error {
			merges = append(merges, left+"+"+right)
			return nil
		})
		return merges, err
	}
	want := []string{"a+b", "a\"b+é"}
	for _, good := range []string{`[["a","b"],["a\"b","é"]]`, `[ "a b" , "a\"b \u00e9" ]`, "[[\"a\" ,\n\"b\"],\t[\"a\\u0022b\",\"é\"]]"} {
		if got, err := read(good); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, wanted %q", good, got, err, want)
		}
	}
	for _, bad := range []string{`[["a"]]`, `["a b c"]`, `["a"]`, `{}`, `[1]`, `[["a",1]]`, `[[["a"],"b"]]`, `null`, ``} {
		if got, err := read(bad); err == nil {
			t.Errorf("%s was read as %q", bad, got)
		}
	}
}

// TestVocabularyIDs: ids are whole numbers of 32 bits.
func TestVocabularyIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "", `{"a":1, "b" : 4294967295 }`: "a=1 b=4294967295 ", `{"\u00e9":0}`: "é=0 ",
		`{"a":-1}`: "error", `{"a":1.5}`: "error", `{"a":1e3}`: "error", `{"a":4294967296}`: "error", `{"a":"1"}`: "error", `{"a":99999999999999999999}`: "error",
		`[]`: "error", `null`: "error", `{"a":{}}`: "error",
	} {
		got := ""
		err := eachID([]byte(text), func(text string, id uint32) error {
			got += fmt.Sprintf("%s=%d ", text, id)
			return nil
		})
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q, wanted %q", text, got, want)
		}
	}
}

// TestWholeOnlyWhereMerged: a vocabulary entry that its merges do not lead to is no piece of its own, unless the file
// says so.
func TestWholeOnlyWhereMerged(t *testing.T) {
	t.Parallel()
	for _, ignore := range []bool{false, true} {
		b, err := LoadBPE(changedFile(t, func(f map[string]any) {
			model := f["model"].(map[string]any)
			model["ignore_merges"] = ignore
			model["vocab"].(map[string]any)["qzqz"] = 4087
			f["added_tokens"] = nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Equal(b.Encode("qzqz"), []uint32{4087}); got != ignore {
			t.Errorf("ignore_merges %v: %v", ignore, b.Encode("qzqz"))
		}
	}
}

// changedFile is the simulator's tokenizer.json after change.
func changedFile(t testing.TB, change func(file map[string]any)) []byte {
	t.Helper()
	var f map[string]any
	if err := json.Unmarshal(testFile(t), &f); err != nil {
		t.Fatal(err)
	}
	change(f)
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
