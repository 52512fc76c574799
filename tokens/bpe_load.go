package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// tokenizerFile is the part of a tokenizer.json that decides about ids. Fields of other types of model are read so
// that they can be refused. `truncation` and `padding` are passed over, as transformers switches both off.
type tokenizerFile struct {
	Added        []addedEntry `json:"added_tokens"`
	Normalizer   *component   `json:"normalizer"`
	PreTokenizer *component   `json:"pre_tokenizer"`
	PostProc     *component   `json:"post_processor"`
	Decoder      *component   `json:"decoder"`
	Model        modelEntry   `json:"model"`

	vocabIDs map[string]uint32 // ids of the added tokens that the vocabulary holds too, by its spelling
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

type modelEntry struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

// LoadBPE reads the content of a tokenizer.json. The error names what the file asks for and this package does not do.
func LoadBPE(data []byte) (*BPE, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("cannot read tokenizer.json: %w", err)
	}
	b := &BPE{class: classes()}
	b.scratch.New = func() any { return new(mergeScratch) }
	steps := []func(*tokenizerFile) error{
		refuseModel, b.readNormalizer, b.readPreTokenizer, refuseDecoder, b.readVocab, b.readMerges, b.findWhole, b.readAdded, b.readPostProcessor,
	}
	for _, step := range steps {
		if err := step(&f); err != nil {
			return nil, fmt.Errorf("cannot use tokenizer.json: %w", err)
		}
	}
	return b, nil
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
	f.vocabIDs = make(map[string]uint32, len(f.Added))
	added := make(map[string]bool, len(f.Added))
	size, n := uint32(0), 0
	for _, e := range f.Added {
		added[e.Content] = true
		size = max(size, e.ID)
	}
	if err := eachID(f.Model.Vocab, func(_ string, id uint32) error {
		size = max(size, id)
		n++
		return nil
	}); err != nil {
		return err
	}
	if size >= maxIDs {
		// One wild id must not cost gigabytes.
		return fmt.Errorf("id %d is out of bounds", size)
	}
	b.vocabSize = n
	b.vocab = newVocab(int(size)+1, n+len(f.Added), len(f.Model.Vocab)/4)
	raw := make([]byte, 0, 256)
	if err := eachID(f.Model.Vocab, func(text string, id uint32) error {
		var ok bool
		raw, ok = appendFromByteLevel(raw[:0], text)
		if added[text] {
			f.vocabIDs[strings.Clone(text)] = id
			if !ok || string(raw) != text {
				return nil // never a piece: the added token is found first
			}
		}
		if !ok {
			return fmt.Errorf("vocabulary entry %q is not in byte-level form", text)
		}
		if old, twice := b.vocab.id(string(raw)); twice {
			return fmt.Errorf("vocabulary entry %q has ids %d and %d", text, old, id)
		}
		if !b.vocab.add(string(raw), id, false) {
			return fmt.Errorf("id %d stands for two tokens", id)
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range 256 {
		id, ok := b.vocab.id(string([]byte{byte(i)}))
		if !ok {
			return fmt.Errorf("vocabulary has no token for byte 0x%02x", i)
		}
		b.bytes[i] = id
	}
	return nil
}

func (b *BPE) readMerges(f *tokenizerFile) error {
	var both []byte
	var merges []merged
	err := eachMerge(f.Model.Merges, func(left, right string) error {
		var okL, okR bool
		both, okL = appendFromByteLevel(both[:0], left)
		n := len(both)
		both, okR = appendFromByteLevel(both, right)
		leftID, inL := b.vocab.id(string(both[:n]))
		rightID, inR := b.vocab.id(string(both[n:]))
		id, in := b.vocab.id(string(both))
		switch {
		case !okL || !okR || !inL || !inR || !in:
			return fmt.Errorf("merge %d, %q and %q, is not in the vocabulary", len(merges), left, right)
		case len(merges) == maxMerges:
			return fmt.Errorf("there are more than %d merges", maxMerges)
		}
		merges = append(merges, merged{pairKey(leftID, rightID), id})
		return nil
	})
	if err != nil {
		return err
	}
	var twice int
	if b.pairs, twice = newPairs(merges); twice >= 0 {
		return fmt.Errorf("merge %d is there twice", twice)
	}
	return nil
}

// findWhole marks the tokens that a piece of the same bytes becomes. A token that its own merges do not lead to is
// none of them, unless the file says that the vocabulary is looked up first (ignore_merges, as Llama 3 does).
func (b *BPE) findWhole(f *tokenizerFile) error {
	m := new(mergeScratch)
	m.work.begin(Limits{})
	var got []uint32
	for at, slot := range b.vocab.slots {
		if slot == 0 {
			continue
		}
		id := uint32(slot&(slotWhole-1)) - 1
		if !f.Model.IgnoreMerges {
			got = b.appendMerged(got[:0], m, string(b.vocab.token(id)))
			if len(got) != 1 || got[0] != id {
				continue
			}
		}
		b.vocab.slots[at] |= slotWhole
	}
	return nil
}
