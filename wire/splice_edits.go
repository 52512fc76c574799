package wire

import "strconv"

// TokenForm says where in a body an engine reads the prompt's token ids.
type TokenForm uint8

// The forms. The first is no hand-over at all.
const (
	TokenNone       TokenForm = iota
	TokenField                // `"prompt_token_ids":[..]`, a member of the chat request (vllm-project/vllm pull 55771)
	TokenKVTransfer           // `"kv_transfer_params":{"prompt_token_ids":[..]}` (vLLM from pull 48145 on)
	TokenPrompt               // the value of `prompt` becomes the list of ids (completions)
)

var tokenFormWords = [...]string{"none", "prompt_token_ids", "kv_transfer_params", "prompt"}

// String returns the member that carries the ids, "none" for none.
func (f TokenForm) String() string {
	if int(f) < len(tokenFormWords) {
		return tokenFormWords[f]
	}
	return tokenFormWords[TokenNone]
}

// TokenSplice is the ids of a prompt and the form in which they go into the
// body. The ids are only read; the zero value splices nothing.
type TokenSplice struct {
	Form TokenForm
	IDs  []uint32
}

// Edits is all that may be changed in a body on its way to an engine. The
// zero value changes nothing.
type Edits struct {
	Model  string // replaces the value of `model`; "" leaves it
	Usage  bool   // ask for usage, by the rules of AppendIncludeUsage
	Tokens TokenSplice
}

// Edited says which of the wished edits were made.
type Edited struct {
	Model, Usage, Tokens bool
}

// edit is bytes of the body that give way to others.
type edit struct {
	at     Span
	kind   editKind
	text   string
	tokens TokenSplice
}

type editKind uint8

const (
	editText   editKind = iota // text as it is
	editQuoted                 // text as a JSON string
	editTokens
)

// AppendEdits appends body to dst with the edits made and every other byte
// copied as it is: nothing is serialised again. An edit that has no place
// (no `model`, no `prompt`, no object at all) is left out. A new member goes
// to the end of the object: of several with one name Python's reader takes
// the last. p must be the reading of this very body; dst must not overlap
// body. It allocates only to grow dst.
func AppendEdits(dst, body []byte, p *Peeked, e Edits) (out []byte, done Edited) {
	var edits [3]edit
	n := 0
	if e.Model != "" && !p.Model.Empty() {
		edits[n] = edit{at: p.Model, kind: editQuoted, text: e.Model}
		n++
		done.Model = true
	}
	if e.Usage {
		if at, text, ok := p.usageEdit(body); ok {
			edits[n] = edit{at: at, text: text}
			n++
			done.Usage = true
		}
	}
	if at, ok := p.tokenPlace(e.Tokens); ok {
		edits[n] = edit{at: at, kind: editTokens, tokens: e.Tokens}
		n++
		done.Tokens = true
	}
	// Three at most; equal places keep their order.
	for i := 1; i < n; i++ {
		for k := i; k > 0 && edits[k].at.Start < edits[k-1].at.Start; k-- {
			edits[k], edits[k-1] = edits[k-1], edits[k]
		}
	}
	from := 0
	for i := range edits[:n] {
		dst = append(dst, body[from:edits[i].at.Start]...)
		dst = edits[i].append(dst)
		from = edits[i].at.End
	}
	return append(dst, body[from:]...), done
}

// tokenPlace is what the ids replace.
func (p *Peeked) tokenPlace(t TokenSplice) (at Span, ok bool) {
	if len(t.IDs) == 0 || !p.Object {
		return Span{}, false
	}
	switch t.Form {
	case TokenField, TokenKVTransfer:
		if p.Messages.Empty() {
			return Span{}, false // also: the object has a member, so that a comma may follow
		}
		return Span{p.Root.End - 1, p.Root.End - 1}, true
	case TokenPrompt:
		return p.Prompt, !p.Prompt.Empty()
	case TokenNone:
	}
	return Span{}, false
}

func (e *edit) append(dst []byte) []byte {
	switch e.kind {
	case editQuoted:
		return AppendQuoted(dst, e.text)
	case editTokens:
		return e.tokens.append(dst)
	case editText:
	}
	return append(dst, e.text...)
}

func (t TokenSplice) append(dst []byte) []byte {
	switch t.Form {
	case TokenField:
		dst = append(dst, `,"prompt_token_ids":`...)
		return AppendIDs(dst, t.IDs)
	case TokenKVTransfer:
		dst = append(dst, `,"kv_transfer_params":{"prompt_token_ids":`...)
		return append(AppendIDs(dst, t.IDs), '}')
	case TokenPrompt:
		return AppendIDs(dst, t.IDs)
	case TokenNone:
	}
	return dst
}

// AppendIDs appends ids as a JSON list: some 6.5 bytes an id.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}
