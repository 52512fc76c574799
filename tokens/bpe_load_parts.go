package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
)

// component is a normalizer, a pre-tokenizer, a post-processor or a decoder.
type component struct {
	Type           string                  `json:"type"`
	Normalizers    []component             `json:"normalizers"`
	PreTokenizers  []component             `json:"pretokenizers"`
	Processors     []component             `json:"processors"`
	Decoders       []component             `json:"decoders"`
	Pattern        regexEntry              `json:"pattern"`
	Behavior       string                  `json:"behavior"`
	Invert         bool                    `json:"invert"`
	AddPrefixSpace bool                    `json:"add_prefix_space"`
	UseRegex       *bool                   `json:"use_regex"` // absent means true
	Single         []json.RawMessage       `json:"single"`
	SpecialTokens  map[string]specialEntry `json:"special_tokens"`
}

// regexEntry is the pattern of a Split.
type regexEntry struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

// UnmarshalJSON passes over patterns of other components, which may be of any shape: those are refused by their type.
func (r *regexEntry) UnmarshalJSON(data []byte) error {
	type plain regexEntry
	if json.Unmarshal(data, (*plain)(r)) != nil {
		*r = regexEntry{}
	}
	return nil
}

// specialEntry is a token of a template: the ids it stands for.
type specialEntry struct {
	IDs []uint32 `json:"ids"`
}

// flatten puts the parts of Sequences where the Sequences stand.
func flatten(c *component, parts func(*component) []component) []component {
	if c == nil {
		return nil
	}
	if c.Type != "Sequence" {
		return []component{*c}
	}
	var all []component
	for _, part := range parts(c) {
		all = append(all, flatten(&part, parts)...)
	}
	return all
}

// readNormalizer accepts NFC, once or more often, and none.
func (b *BPE) readNormalizer(f *tokenizerFile) error {
	for _, c := range flatten(f.Normalizer, func(c *component) []component { return c.Normalizers }) {
		if c.Type != "NFC" {
			return fmt.Errorf("normalizer %q is not known", c.Type)
		}
		b.nfc = true
	}
	return nil
}

// readPreTokenizer wants Splits and then a ByteLevel without a pattern of its own, or a ByteLevel alone, whose pattern
// is GPT-2's.
func (b *BPE) readPreTokenizer(f *tokenizerFile) error {
	if f.PreTokenizer == nil {
		return errors.New("there is no pre-tokenizer")
	}
	parts := flatten(f.PreTokenizer, func(c *component) []component { return c.PreTokenizers })
	var regexes []string
	for i, c := range parts {
		switch {
		case c.Type == "ByteLevel" && i == len(parts)-1:
			if c.AddPrefixSpace {
				return fmt.Errorf("pre-tokenizer %q with a prefix space is not known", c.Type)
			}
			if c.UseRegex == nil || *c.UseRegex {
				if i > 0 {
					return fmt.Errorf("pre-tokenizer %q with a pattern of its own after another is not known", c.Type)
				}
				regexes = []string{regexGPT2}
			}
			var err error
			b.rule, err = ruleOf(regexes)
			return err
		case c.Type != "Split":
			return fmt.Errorf("pre-tokenizer %q is not known", c.Type)
		case c.Pattern.Regex == "":
			return fmt.Errorf("pre-tokenizer %q by a string is not known", c.Type)
		case c.Behavior == "Isolated" && !c.Invert:
		case c.Behavior == "Removed" && c.Invert && len(parts) == 2:
			// Files made from tiktoken's keep what matches and drop the rest; the single expressions here match
			// every character, so nothing is dropped.
		default:
			return fmt.Errorf("pre-tokenizer %q with behavior %q, inverted %v, is not known", c.Type, c.Behavior, c.Invert)
		}
		regexes = append(regexes, c.Pattern.Regex)
	}
	return errors.New("pre-tokenizer without ByteLevel is not known")
}

// refuseDecoder accepts ByteLevel, and none: it says nothing about ids.
func refuseDecoder(f *tokenizerFile) error {
	for _, c := range flatten(f.Decoder, func(c *component) []component { return c.Decoders }) {
		if c.Type != "ByteLevel" {
			return fmt.Errorf("decoder %q is not known", c.Type)
		}
	}
	return nil
}

// readPostProcessor accepts ByteLevel, which only moves offsets, and one TemplateProcessing, which puts tokens around
// the text (Hugging Face's library fails at a second one).
func (b *BPE) readPostProcessor(f *tokenizerFile) error {
	templates := 0
	for _, c := range flatten(f.PostProc, func(c *component) []component { return c.Processors }) {
		switch c.Type {
		case "ByteLevel":
		case "TemplateProcessing":
			if templates++; templates > 1 {
				return fmt.Errorf("a second post-processor %q is not known", c.Type)
			}
			var err error
			if b.prefix, b.suffix, err = template(&c); err != nil {
				return err
			}
		default:
			return fmt.Errorf("post-processor %q is not known", c.Type)
		}
	}
	return nil
}

// template returns the ids before and behind the one sequence of a TemplateProcessing.
func template(c *component) (prefix, suffix []uint32, err error) {
	text := 0
	for _, raw := range c.Single {
		var part struct {
			SpecialToken *struct{ ID string }
			Sequence     *struct{ ID string }
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, nil, fmt.Errorf("post-processor %q: %w", c.Type, err)
		}
		switch {
		case part.Sequence != nil:
			text++
		case part.SpecialToken == nil:
			return nil, nil, fmt.Errorf("post-processor %q has a part that is not known: %s", c.Type, raw)
		default:
			token, ok := c.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("post-processor %q names token %q without ids", c.Type, part.SpecialToken.ID)
			}
			if text == 0 {
				prefix = append(prefix, token.IDs...)
			} else {
				suffix = append(suffix, token.IDs...)
			}
		}
	}
	if text != 1 {
		return nil, nil, fmt.Errorf("post-processor %q holds the text %d times", c.Type, text)
	}
	return prefix, suffix, nil
}
