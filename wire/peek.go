package wire

import (
	"bytes"
	"strconv"
)

// Peeked is what routing needs to know of a request body. All slices and
// spans alias the body given to Peek or a scratch buffer inside the struct:
// they hold until the body changes or Peek is called again. The zero value is
// ready to use and meant to be used again; one goroutine at a time.
//
// A member that is null counts as absent, and of members with the same name
// only the last exists, wholly, because that is what the engine sees (Python
// dict). Names are compared exactly, after decoding escapes.
type Peeked struct {
	// Object is false when the body is JSON but not an object, and when it is
	// Opaque: nothing else is set then, and the verdict is the engine's.
	Object bool
	// Opaque is set for UTF-16 and UTF-32, which Python's reader detects and
	// accepts. Such a body is passed on unread.
	Opaque bool
	// Root spans the object's braces.
	Root Span

	// Model spans the value of the last `model`, whatever its type; ModelName
	// is its decoded text, nil when it is not a string.
	Model     Span
	ModelName []byte

	// Stream is `stream` as pydantic 2 reads it (true, 1, "true", "on" ..).
	// StreamOdd is set when it is neither true, false, null nor absent.
	Stream, StreamOdd bool
	// StreamOptions spans `stream_options` if it is an object.
	StreamOptions Span
	// IncludeUsage is `stream_options.include_usage`, read like Stream.
	IncludeUsage bool

	Messages, Prompt, Input, System, Tools, Instructions, ResponseFormat Span

	// MessageCount is the number of elements of `messages`, or of `input`
	// when that is a list of items; 0 without either.
	MessageCount int
	// Prompts is the number of prompts in `prompt`, else in `input`: the
	// elements of a list of strings or of lists, 1 for everything else.
	Prompts int
	// Cap is the most tokens that the answer may have: the first that is
	// there of max_completion_tokens, max_tokens, max_output_tokens. -1 when
	// none is or when it is not a whole number above 0; at most 2^31-1.
	Cap int64
	// N and BestOf are `n` and `best_of`, 1 when absent or malformed.
	N, BestOf int

	// Session is the client's own hint: the first non-empty string of
	// session_id, prompt_cache_key, metadata.user_id, user; decoded.
	Session []byte
	// PreviousResponseID names a stored response (Responses API); decoded.
	PreviousResponseID []byte
	// Store and Background are those of the Responses API.
	Store      Flag
	Background bool
	// Echo is `echo` of completions; KVTransfer says that the client sent
	// `kv_transfer_params` of its own.
	Echo, KVTransfer bool
	// Media says that a member inside messages or input may carry an image,
	// sound, video or file. It is a hint by names alone and errs towards true.
	Media bool

	// continuous is stream_options.continuous_usage_stats, read like Stream.
	continuous bool
	// listed are the members of the root object, unless unlisted: then there are
	// too many.
	unlisted bool
	listed   *memberList

	fields [fieldCount]Span
	// usage spans the value of stream_options.include_usage.
	usage Span
	// seen has a bit for each of the fields that is there and not null.
	seen fieldSet
	// commas are those between the elements of the list at elementsOf.
	elementsOf uint32
	commas     []uint32

	counts  [3]listShape
	scratch []byte
}

// BodyError says why a body is refused.
type BodyError struct {
	// Param is the member at fault, empty for the body as a whole.
	Param string
	// Message is a sentence for the user; it never quotes the body.
	Message string
}

// Error returns Message.
func (e *BodyError) Error() string { return e.Message }

// Peek reads body in one pass and keeps nothing of it but spans. The error
// is a *BodyError, and only for bodies that Python's json.loads refuses or
// that nest deeper than MaxDepth; p is then as good as empty. An accepted
// body costs no allocation, unless it needs scratch space for the first time
// or gives a count as a fraction.
func (p *Peeked) Peek(body []byte) error {
	p.reset()
	if isWide(body) {
		p.Opaque = true
		return nil
	}
	s := jsonScanner{b: body, noted: p.commas}
	i := s.space(len(bom(body)))
	start := i
	object := s.at(i, '{')
	if object {
		i = p.members(&s, i)
	} else {
		i = s.skip(i)
	}
	p.commas = s.noted
	if i >= 0 {
		if end := s.space(i); end < len(body) {
			s.fail(end, "goes on behind its end")
		}
	}
	if s.errText == "" && s.wide&highBits != 0 {
		if at := invalidUTF8(body); at >= 0 {
			s.fail(at, "is not valid UTF-8")
		}
	}
	if s.errText != "" {
		p.reset()
		return &BodyError{Message: "The request body cannot be read as JSON: it " + s.errText +
			" (byte " + strconv.Itoa(s.errAt) + "). Correct the body and send it again."}
	}
	if object {
		p.Object = true
		p.Root = Span{start, i}
		p.settle(body)
	}
	return nil
}

// maxScratch is how much scratch a Peeked keeps from one body to the next.
const maxScratch = 4 << 10

func (p *Peeked) reset() {
	scratch := p.scratch[:0]
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	commas, listed := p.commas[:0], p.listed
	*p = Peeked{} // in place, while a literal with values is made elsewhere and copied
	if listed != nil {
		listed.n = 0
	}
	p.scratch, p.commas, p.listed = scratch, commas, listed
	p.Prompts, p.Cap, p.N, p.BestOf = 1, -1, 1, 1
}

// bom returns the UTF-8 byte order mark that body starts with, if any:
// json.loads takes it off bytes (utf-8-sig), once.
func bom(body []byte) string {
	const mark = "\xef\xbb\xbf"
	if bytes.HasPrefix(body, []byte(mark)) {
		return mark
	}
	return ""
}

// isWide is CPython's json.detect_encoding: a byte order mark, or zero bytes
// where ASCII in UTF-16 or UTF-32 would have them.
func isWide(b []byte) bool {
	if len(b) == 2 || len(b) >= 4 {
		if b[0] == 0 || b[1] == 0 {
			return true
		}
	}
	return len(b) >= 2 && (b[0] == 0xff && b[1] == 0xfe || b[0] == 0xfe && b[1] == 0xff)
}
