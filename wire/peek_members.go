package wire

import "bytes"

// field numbers the top-level members that Peek looks at.
type field uint8

const (
	fieldNone field = iota
	// The first three are lists whose elements are counted.
	fieldMessages
	fieldPrompt
	fieldInput
	fieldModel
	fieldStream
	fieldStreamOptions
	fieldSystem
	fieldTools
	fieldInstructions
	fieldResponseFormat
	fieldMaxCompletionTokens
	fieldMaxTokens
	fieldMaxOutputTokens
	fieldN
	fieldBestOf
	fieldSessionID
	fieldPromptCacheKey
	fieldMetadata
	fieldUser
	fieldPreviousResponseID
	fieldStore
	fieldBackground
	fieldEcho
	fieldKVTransfer
	fieldCount
)

// fieldSet has bit f for field f.
type fieldSet uint32

func setOf(fields ...field) (s fieldSet) {
	for _, f := range fields {
		s |= 1 << f
	}
	return s
}

// The groups of fields that settle looks at one by one, if any of them is there.
var (
	capFields     = setOf(fieldMaxCompletionTokens, fieldMaxTokens, fieldMaxOutputTokens)
	choiceFields  = setOf(fieldN, fieldBestOf)
	sessionFields = setOf(fieldSessionID, fieldPromptCacheKey, fieldMetadata, fieldUser)
	textFields    = setOf(fieldPrompt, fieldInput, fieldSystem, fieldTools, fieldInstructions, fieldResponseFormat)
	rareFields    = setOf(fieldPreviousResponseID, fieldStore, fieldBackground, fieldEcho, fieldKVTransfer)
)

// longestField is the length of the longest name below.
const longestField = len("max_completion_tokens")

func fieldOf(name []byte) field {
	switch string(name) {
	case "messages":
		return fieldMessages
	case "prompt":
		return fieldPrompt
	case "input":
		return fieldInput
	case "model":
		return fieldModel
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "system":
		return fieldSystem
	case "tools":
		return fieldTools
	case "instructions":
		return fieldInstructions
	case "response_format":
		return fieldResponseFormat
	case "max_completion_tokens":
		return fieldMaxCompletionTokens
	case "max_tokens":
		return fieldMaxTokens
	case "max_output_tokens":
		return fieldMaxOutputTokens
	}
	return rareFieldOf(name)
}

func rareFieldOf(name []byte) field {
	switch string(name) {
	case "n":
		return fieldN
	case "best_of":
		return fieldBestOf
	case "session_id":
		return fieldSessionID
	case "prompt_cache_key":
		return fieldPromptCacheKey
	case "metadata":
		return fieldMetadata
	case "user":
		return fieldUser
	case "previous_response_id":
		return fieldPreviousResponseID
	case "store":
		return fieldStore
	case "background":
		return fieldBackground
	case "echo":
		return fieldEcho
	case "kv_transfer_params":
		return fieldKVTransfer
	}
	return fieldNone
}

// listShape is what counts in a value that may be a list.
type listShape struct {
	elements int
	// first is the first byte of the first element, 0 when there is none.
	first byte
	media bool
}

// members reads the object at i and notes where the known members are; a
// later one of the same name overwrites an earlier one.
func (p *Peeked) members(s *jsonScanner, i int) int {
	s.push(i, true)
	i = s.space(i + 1)
	if s.at(i, '}') {
		return i + 1
	}
	for {
		nameEnd, value := s.key(i)
		if value < 0 {
			return -1
		}
		name := i + 1
		f, plain := p.fieldAt(s.b[name : nameEnd-1])
		if i = p.member(s, f, value); i < 0 {
			return -1
		}
		p.list(Span{name, nameEnd - 1}, Span{value, i}, plain)
		i = s.space(i)
		switch {
		case s.at(i, ','):
			i = s.space(i + 1)
		case s.at(i, '}'):
			return i + 1
		case i >= len(s.b):
			return s.fail(i, "ends inside an array or object")
		default:
			return s.fail(i, "has something other than a comma or a closing bracket behind a value")
		}
	}
}

// fieldAt tells which member a name is. plain: it has no escapes, for certain.
func (p *Peeked) fieldAt(raw []byte) (f field, plain bool) {
	const escaped = len(`\u0000`)
	if len(raw) > longestField*escaped {
		return fieldNone, false
	}
	f = fieldOf(raw)
	if f == fieldNone && bytes.IndexByte(raw, '\\') >= 0 { // no name has a backslash
		p.scratch = appendUnescaped(p.scratch[:0], raw)
		return fieldOf(p.scratch), false
	}
	return f, true
}

// member reads one value and notes it under f.
func (p *Peeked) member(s *jsonScanner, f field, i int) int {
	s.watch, s.media = f == fieldMessages || f == fieldInput, false
	s.note = s.watch && s.at(i, '[') && len(s.b) <= maxNotedBody
	if s.note {
		s.noted = s.noted[:0]
	}
	end := s.skip(i)
	if s.note && s.commas <= maxNoted {
		p.elementsOf = uint32(i) //nolint:gosec // noted only up to maxNotedBody
	} else if s.note {
		p.elementsOf = 0
	}
	s.watch, s.note = false, false
	if end < 0 || f == fieldNone {
		return end
	}
	p.fields[f] = Span{i, end}
	if p.seen |= 1 << f; isNull(s.b[i:end]) {
		p.seen &^= 1 << f
	}
	if f <= fieldInput {
		shape := listShape{media: s.media}
		if first := s.space(i + 1); s.b[i] == '[' && s.b[first] != ']' {
			shape.elements, shape.first = s.commas+1, s.b[first]
		}
		p.counts[f-fieldMessages] = shape
	}
	return end
}

// raw returns the value of f, nil when absent or null.
func (p *Peeked) raw(body []byte, f field) []byte {
	if p.seen>>f&1 == 0 {
		return nil
	}
	return p.fields[f].Of(body)
}

func (p *Peeked) span(f field) Span {
	if p.seen>>f&1 == 0 {
		return Span{}
	}
	return p.fields[f]
}

// settle turns the noted spans into values, once the whole body is known to
// be valid and which of several members of one name is the last.
func (p *Peeked) settle(body []byte) {
	p.scratch = p.scratch[:0]
	p.Model = p.span(fieldModel)
	p.ModelName = p.text(p.Model.Of(body))
	p.Messages = p.span(fieldMessages)
	if p.seen&textFields != 0 {
		p.Prompt = p.span(fieldPrompt)
		p.Input = p.span(fieldInput)
		p.System = p.span(fieldSystem)
		p.Tools = p.span(fieldTools)
		p.Instructions = p.span(fieldInstructions)
		p.ResponseFormat = p.span(fieldResponseFormat)
	}
	p.settleStream(body)
	p.settleCounts(body)
	if p.seen&sessionFields != 0 {
		p.settleSession(body)
	}
	if p.seen&rareFields != 0 {
		p.PreviousResponseID = p.text(p.raw(body, fieldPreviousResponseID))
		p.Store = p.flag(p.raw(body, fieldStore))
		p.Background = p.flag(p.raw(body, fieldBackground)) == FlagTrue
		p.Echo = p.flag(p.raw(body, fieldEcho)) == FlagTrue
		p.KVTransfer = p.raw(body, fieldKVTransfer) != nil
	}
}

func (p *Peeked) settleStream(body []byte) {
	stream := p.raw(body, fieldStream)
	p.Stream = p.flag(stream) == FlagTrue
	p.StreamOdd = len(stream) > 0 && stream[0] != 't' && stream[0] != 'f'
	if raw := p.raw(body, fieldStreamOptions); len(raw) > 0 && raw[0] == '{' {
		p.StreamOptions = p.fields[fieldStreamOptions]
		p.usage = p.inner(body, p.StreamOptions, "include_usage")
		p.IncludeUsage = p.flag(p.usage.Of(body)) == FlagTrue
		p.continuous = p.flag(p.inner(body, p.StreamOptions, "continuous_usage_stats").Of(body)) == FlagTrue
	}
}

func (p *Peeked) settleCounts(body []byte) {
	messages, prompt, input := p.counts[0], p.counts[1], p.counts[2]
	p.Media = messages.media || input.media
	switch {
	case !p.Messages.Empty():
		p.MessageCount = messages.elements
	case input.first == '{':
		p.MessageCount = input.elements
	}
	if p.Prompt.Empty() {
		prompt = input
	}
	if prompt.first == '"' || prompt.first == '[' {
		p.Prompts = prompt.elements
	}
	if p.seen&(capFields|choiceFields) == 0 {
		return
	}
	for _, f := range [...]field{fieldMaxCompletionTokens, fieldMaxTokens, fieldMaxOutputTokens} {
		if raw := p.raw(body, f); raw != nil {
			if n, ok := readCount(raw); ok {
				p.Cap = n
			}
			break
		}
	}
	if p.seen&choiceFields == 0 {
		return
	}
	if n, ok := readCount(p.raw(body, fieldN)); ok {
		p.N = int(n)
	}
	if n, ok := readCount(p.raw(body, fieldBestOf)); ok {
		p.BestOf = int(n)
	}
}

func (p *Peeked) settleSession(body []byte) {
	for _, f := range [...]field{fieldSessionID, fieldPromptCacheKey, fieldMetadata, fieldUser} {
		raw := p.raw(body, f)
		if f == fieldMetadata {
			if len(raw) == 0 || raw[0] != '{' {
				continue
			}
			raw = p.inner(body, p.fields[f], "user_id").Of(body)
		}
		if text := p.text(raw); len(text) > 0 {
			p.Session = text
			return
		}
	}
}

// inner finds the last member of that name directly inside the object at
// outer. The object is valid and small, so it is simply read again.
func (p *Peeked) inner(body []byte, outer Span, name string) (found Span) {
	const depth = 1 // below the root; the limit held in the first pass
	s := jsonScanner{b: body[:outer.End], depth: depth}
	s.push(outer.Start, true)
	i := s.space(outer.Start + 1)
	for !s.at(i, '}') {
		nameEnd, value := s.key(i)
		key := body[i+1 : nameEnd-1]
		if len(key) > len(name) && len(key) <= len(name)*len(`\u0000`) && bytes.IndexByte(key, '\\') >= 0 {
			from := len(p.scratch)
			p.scratch = appendUnescaped(p.scratch, key)
			key = p.scratch[from:]
			p.scratch = p.scratch[:from]
		}
		end := s.skip(value)
		if string(key) == name {
			found = Span{value, end}
		}
		i = s.space(end)
		if s.at(i, ',') {
			i = s.space(i + 1)
		}
	}
	return found
}

// text returns the decoded inside of a raw string, nil for other values.
func (p *Peeked) text(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '"' {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	from := len(p.scratch)
	p.scratch = appendUnescaped(p.scratch, raw)
	return p.scratch[from:len(p.scratch):len(p.scratch)]
}

// flag is readBool with this struct's scratch space.
func (p *Peeked) flag(raw []byte) Flag {
	return readBool(raw, p.scratch[len(p.scratch):])
}
