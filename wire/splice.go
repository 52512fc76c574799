package wire

// AppendModelSplice appends body to dst with the value of the last top-level
// `model` replaced by the given name, which is the one that the engine reads.
// Everything else is copied byte for byte, and a body without a model wholly.
// p must be the reading of this very body. dst must not overlap body.
func AppendModelSplice(dst, body []byte, p *Peeked, model string) []byte {
	dst, _ = AppendSplices(dst, body, p, model, false)
	return dst
}

// AppendIncludeUsage appends body to dst with `stream_options.include_usage`
// set to true. ok is false, and dst unchanged, when there is nothing to do or
// nothing safe to do: no stream, usage asked for already, or a member that
// the engine will refuse. p must be the reading of this very body.
func AppendIncludeUsage(dst, body []byte, p *Peeked) (out []byte, ok bool) {
	if _, _, ok = p.usageEdit(body); !ok {
		return dst, false
	}
	return AppendSplices(dst, body, p, "", true)
}

// AppendSplices does both splices in one copy: the model's name unless it is
// empty, and include_usage when usage is set. asked tells whether the latter
// was done, by the rules of AppendIncludeUsage.
func AppendSplices(dst, body []byte, p *Peeked, model string, usage bool) (out []byte, asked bool) {
	out, done := AppendEdits(dst, body, p, Edits{Model: model, Usage: usage})
	return out, done.Usage
}

// usageEdit says which bytes to replace by what. A new member goes to the end
// of its object, so that all spans before it still hold.
func (p *Peeked) usageEdit(body []byte) (at Span, text string, ok bool) {
	if !p.Stream || p.IncludeUsage {
		return Span{}, "", false
	}
	options := p.fields[fieldStreamOptions]
	switch {
	case options.Empty():
		end := p.Root.End - 1
		return Span{end, end}, `,"stream_options":{"include_usage":true}`, true
	case isNull(options.Of(body)):
		return options, `{"include_usage":true}`, true
	case p.StreamOptions.Empty():
		return Span{}, "", false
	case p.continuous:
		return Span{}, "", false // without effect until usage is asked for, then in every event
	case p.usage.Empty():
		end := options.End - 1
		s := jsonScanner{b: body}
		if s.space(options.Start+1) == end {
			return Span{end, end}, `"include_usage":true`, true
		}
		return Span{end, end}, `,"include_usage":true`, true
	}
	if raw := p.usage.Of(body); isNull(raw) || p.flag(raw) == FlagFalse {
		return p.usage, "true", true
	}
	return Span{}, "", false
}
