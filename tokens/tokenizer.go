package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Tokenizer is a model's tokenizer as a file describes it. It is immutable and safe for concurrent use.
type Tokenizer struct {
	bpe            *BPE
	identity       string
	prefix, suffix []uint32
}

// maxFile bounds what is read into memory; the largest tokenizer.json that is served (gpt-oss) has 28 MB.
const maxFile = 256 << 20

// LoadTokenizer reads a tokenizer.json, or the one in a folder. A tokenizer_config.json beside it is looked at too,
// for what transformers lets it change. The error says what is missing or not known; it is of no use to try again
// before the files change.
func LoadTokenizer(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot load a tokenizer: %w", err)
	}
	if info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("cannot load a tokenizer: %w", err)
	}
	config, err := readBounded(filepath.Join(filepath.Dir(path), "tokenizer_config.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot load a tokenizer: %w", err)
	}
	t, err := NewTokenizer(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// NewTokenizer makes a tokenizer of the content of a tokenizer.json and, unless it is empty, of the
// tokenizer_config.json beside it.
func NewTokenizer(data, config []byte) (*Tokenizer, error) {
	bpe, err := LoadBPE(data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	t := &Tokenizer{bpe: bpe, identity: hex.EncodeToString(sum[:8]), prefix: bpe.prefix, suffix: bpe.suffix}
	if len(config) > 0 {
		if err := t.readConfig(config); err != nil {
			return nil, fmt.Errorf("cannot use tokenizer_config.json: %w", err)
		}
	}
	return t, nil
}

// tokenizerConfig is what in a tokenizer_config.json can change ids.
type tokenizerConfig struct {
	Class          string                `json:"tokenizer_class"`
	AddBOS         bool                  `json:"add_bos_token"`
	AddEOS         bool                  `json:"add_eos_token"`
	AddPrefixSpace bool                  `json:"add_prefix_space"`
	BOS            tokenName             `json:"bos_token"`
	EOS            tokenName             `json:"eos_token"`
	Added          map[string]addedEntry `json:"added_tokens_decoder"`
}

// tokenName is a token's content, or an object that holds it.
type tokenName string

func (n *tokenName) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*n = tokenName(text)
		return nil
	}
	var object struct{ Content string }
	err := json.Unmarshal(data, &object)
	*n = tokenName(object.Content)
	return err
}

// readConfig follows transformers, which adds the tokens of added_tokens_decoder to those of tokenizer.json, and whose
// LlamaTokenizerFast (DeepSeek's class too) replaces the post-processor by begin and end tokens as flagged. Of the
// other classes none that this package can read does that.
func (t *Tokenizer) readConfig(data []byte) error {
	var c tokenizerConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if c.AddPrefixSpace {
		return errors.New("add_prefix_space is not known")
	}
	for key, e := range c.Added {
		id, err := strconv.ParseUint(key, 10, 32)
		have := t.bpe.added.byID[uint32(id)]
		if err != nil || have == nil || have.Content != e.Content {
			return fmt.Errorf("added token %q, id %s, is not in tokenizer.json", e.Content, key)
		}
		e.ID, e.Special = have.ID, have.Special
		if have.addedEntry != e {
			return fmt.Errorf("added token %q has other flags than in tokenizer.json", e.Content)
		}
	}
	if c.Class != "LlamaTokenizer" && c.Class != "LlamaTokenizerFast" {
		return nil
	}
	t.prefix, t.suffix = nil, nil
	for _, add := range []struct {
		flag bool
		name tokenName
		to   *[]uint32
	}{{c.AddBOS, c.BOS, &t.prefix}, {c.AddEOS, c.EOS, &t.suffix}} {
		if !add.flag {
			continue
		}
		id, ok := t.bpe.TokenID(string(add.name))
		if !ok {
			return fmt.Errorf("token %q is not in tokenizer.json", add.name)
		}
		*add.to = []uint32{id}
	}
	return nil
}

// AppendEncode appends the ids of text to dst. Added tokens are recognised in the text; none is put around it, as an
// engine does with what a chat template rendered. The error is ErrTooLong or ErrTooSlow; dst then comes back as it
// was. It allocates only to grow dst.
func (t *Tokenizer) AppendEncode(dst []uint32, text string, lim Limits) ([]uint32, error) {
	return t.bpe.AppendEncodeLimited(dst, text, lim)
}

// Prefix and Suffix are the ids that an engine puts around a prompt given as text (add_special_tokens): the token for
// the begin of a text, for instance. They must not be changed.
func (t *Tokenizer) Prefix() []uint32 { return t.prefix }

// Suffix is described with Prefix.
func (t *Tokenizer) Suffix() []uint32 { return t.suffix }

// Cuts yields where a text may be cut and encoded in parts; see BPE.Cuts.
func (t *Tokenizer) Cuts(text string) iter.Seq[Cut] { return t.bpe.Cuts(text) }

// IsCut says whether Cuts yields id wherever its spelling stands.
func (t *Tokenizer) IsCut(id uint32) bool { return t.bpe.IsCut(id) }

// BPE returns what text is encoded and decoded with.
func (t *Tokenizer) BPE() *BPE { return t.bpe }

// Identity is 16 hexadecimal digits that say which tokenizer.json this is: equal content, equal identity.
func (t *Tokenizer) Identity() string { return t.identity }

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int { return t.bpe.Size() }

// Rule is the name of the split rule, for logs.
func (t *Tokenizer) Rule() string { return t.bpe.rule.name }

// SpecialIDs are the ids of the added tokens flagged special, in ascending order.
func (t *Tokenizer) SpecialIDs() []uint32 {
	var ids []uint32
	for id, token := range t.bpe.added.byID {
		if token.Special {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
