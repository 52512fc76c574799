package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// tokenizerFile is the part of a tokenizer.json that decides about ids. Fields of other types of model are read so
// that they can be refused.
type tokenizerFile struct {
	Added        []addedEntry `json:"added_tokens"`
	Normalizer   *component   `json:"normalizer"`
	PreTokenizer *component   `json:"pre_tokenizer"`
	PostProc     *component   `json:"post_processor"`
	Model        modelEntry   `json:"model"`
}

type addedEntry struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// component is a normalizer, a pre-tokenizer or a post-processor.
type component struct {
	Type           string      `json:"type"`
	PreTokenizers  []component `json:"pretokenizers"`
	Pattern        regexEntry  `json:"pattern"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	AddPrefixSpace bool        `json:"add_prefix_space"`
	UseRegex       *bool       `json:"use_regex"` // absent means true
}

type regexEntry struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

type modelEntry struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]uint32 `json:"vocab"`
	Merges       mergeList         `json:"merges"`
}

// mergeList reads both forms of merges: "a b" (tokenizers before 0.20) and ["a","b"].
type mergeList [][2]string

func (l *mergeList) UnmarshalJSON(data []byte) error {
	var lines []string
	if json.Unmarshal(data, &lines) == nil {
		for i, line := range lines {
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return fmt.Errorf("merge %d, %q, is not two symbols", i, line)
			}
			*l = append(*l, [2]string{left, right})
		}
		return nil
	}
	var pairs [][]string
	if err := json.Unmarshal(data, &pairs); err != nil {
		return err
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("merge %d has %d symbols", i, len(p))
		}
		*l = append(*l, [2]string{p[0], p[1]})
	}
	return nil
}

// LoadBPE reads the content of a tokenizer.json. The error names what the file asks for and this package does not do.
func LoadBPE(data []byte) (*BPE, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("cannot read tokenizer.json: %w", err)
	}
	b := &BPE{}
	b.scratch.New = func() any { return new(mergeScratch) }
	steps := []func(*tokenizerFile) error{b.readNormalizer, b.readPattern, refusePostProcessor, refuseModel, b.readVocab, b.readAdded, b.readMerges}
	for _, step := range steps {
		if err := step(&f); err != nil {
			return nil, fmt.Errorf("cannot use tokenizer.json: %w", err)
		}
	}
	b.findWhole(f.Model.IgnoreMerges)
	return b, nil
}

func (b *BPE) readNormalizer(f *tokenizerFile) error {
	switch {
	case f.Normalizer == nil:
		return nil
	case f.Normalizer.Type == "NFC":
		b.nfc = true
		return nil
	}
	return fmt.Errorf("normalizer %q is not known", f.Normalizer.Type)
}

// readPattern wants what every byte-level BPE with a pattern of its own has: a Split, then a ByteLevel without one.
func (b *BPE) readPattern(f *tokenizerFile) error {
	pre := f.PreTokenizer
	if pre == nil {
		return errors.New("there is no pre-tokenizer")
	}
	if pre.Type != "Sequence" || len(pre.PreTokenizers) != 2 {
		return fmt.Errorf("pre-tokenizer %q with %d parts is not known", pre.Type, len(pre.PreTokenizers))
	}
	split, level := pre.PreTokenizers[0], pre.PreTokenizers[1]
	if split.Type != "Split" || split.Behavior != "Isolated" || split.Invert || split.Pattern.Regex == "" {
		return fmt.Errorf("pre-tokenizer %q with behavior %q is not known", split.Type, split.Behavior)
	}
	if level.Type != "ByteLevel" || level.AddPrefixSpace || level.UseRegex == nil || *level.UseRegex {
		return fmt.Errorf("pre-tokenizer %q with a prefix space or a pattern of its own is not known", level.Type)
	}
	var err error
	b.pattern, err = patternOf(split.Pattern.Regex)
	return err
}

// refusePostProcessor accepts ByteLevel, which only moves offsets; others add tokens.
func refusePostProcessor(f *tokenizerFile) error {
	if f.PostProc != nil && f.PostProc.Type != "ByteLevel" {
		return fmt.Errorf("post-processor %q is not known", f.PostProc.Type)
	}
	return nil
}

func refuseModel(f *tokenizerFile) error {
	m := f.Model
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model type %q is not known", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return errors.New("model has dropout")
	case m.Prefix != nil && *m.Prefix != "", m.Suffix != nil && *m.Suffix != "":
		return errors.New("model marks subwords")
	case m.ByteFallback:
		return errors.New("model falls back to bytes")
	}
	return nil
}

func (b *BPE) readVocab(f *tokenizerFile) error {
	added := map[string]bool{}
	size := uint32(0)
	for _, e := range f.Added {
		added[e.Content] = true
		size = max(size, e.ID)
	}
	for _, id := range f.Model.Vocab {
		size = max(size, id)
	}
	const most = 1 << 22 // far above any vocabulary; a file with one wild id must not cost gigabytes
	if size >= most {
		return fmt.Errorf("id %d is out of bounds", size)
	}
	b.pieces = make([][]byte, size+1)
	b.ids = make(map[string]uint32, len(f.Model.Vocab)+len(f.Added))
	for text, id := range f.Model.Vocab {
		if added[text] {
			continue
		}
		raw, ok := fromByteLevel(text)
		if !ok {
			return fmt.Errorf("vocabulary entry %q is not in byte-level form", text)
		}
		if b.pieces[id] != nil {
			return fmt.Errorf("id %d stands for two tokens", id)
		}
		b.pieces[id] = raw
		b.ids[string(raw)] = id
	}
	for i := range 256 {
		id, ok := b.ids[string([]byte{byte(i)})]
		if !ok {
			return fmt.Errorf("vocabulary has no token for byte 0x%02x", i)
		}
		b.bytes[i] = id
	}
	return nil
}

func (b *BPE) readAdded(f *tokenizerFile) error {
	for _, e := range f.Added {
		switch {
		case e.Content == "":
			return errors.New("an added token is empty")
		case e.Normalized, e.Lstrip, e.Rstrip, e.SingleWord:
			return fmt.Errorf("added token %q is normalized, strips or wants a whole word", e.Content)
		case b.pieces[e.ID] != nil && string(b.pieces[e.ID]) != e.Content:
			return fmt.Errorf("id %d stands for two tokens", e.ID)
		}
		b.pieces[e.ID] = []byte(e.Content)
		b.ids[e.Content] = e.ID
	}
	b.added = newAddedTokens(f.Added)
	return nil
}

func (b *BPE) readMerges(f *tokenizerFile) error {
	b.merges = make(map[uint64]merge, len(f.Model.Merges))
	for rank, pair := range f.Model.Merges {
		left, okL := f.Model.Vocab[pair[0]]
		right, okR := f.Model.Vocab[pair[1]]
		id, ok := f.Model.Vocab[pair[0]+pair[1]]
		if !okL || !okR || !ok {
			return fmt.Errorf("merge %d, %q and %q, is not in the vocabulary", rank, pair[0], pair[1])
		}
		key := pairKey(left, right)
		if _, twice := b.merges[key]; !twice {
			b.merges[key] = merge{uint32(rank), id}
		}
	}
	return nil
}

// findWhole collects the tokens that a piece of the same bytes becomes. A token that its own merges do not lead to is
// none of them, unless the file says that the vocabulary is looked up first (ignore_merges, as Llama 3 does).
func (b *BPE) findWhole(ignoreMerges bool) {
	b.whole = make(map[string]uint32, len(b.pieces))
	m := new(mergeScratch)
	var got []uint32
	for id, raw := range b.pieces {
		if raw == nil || b.ids[string(raw)] != uint32(id) {
			continue
		}
		got = b.appendMerged(got[:0], m, string(raw))
		if ignoreMerges || len(got) == 1 && got[0] == uint32(id) {
			b.whole[string(raw)] = uint32(id)
		}
	}
}

// fromByteLevel undoes GPT-2's spelling of bytes as printable characters: the printable ones of Latin-1 stand for
// themselves, the 68 others for U+0100 onwards in their order.
func fromByteLevel(text string) ([]byte, bool) {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		switch {
		case r < 256 && byteLevelPrintable(byte(r)):
			out = append(out, byte(r))
		case r >= 256 && int(r-256) < len(byteLevelOthers):
			out = append(out, byteLevelOthers[r-256])
		default:
			return nil, false
		}
	}
	return out, len(out) > 0
}

func byteLevelPrintable(c byte) bool {
	return c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae
}

// byteLevelOthers are the bytes that are not printable in Latin-1, in order.
var byteLevelOthers = func() []byte {
	var out []byte
	for c := range 256 {
		if !byteLevelPrintable(byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}()
