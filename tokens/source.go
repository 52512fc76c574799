package tokens

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"ramjet/wire"
)

// The notes of Ids beside those of Parse and Render (chat.go, template_filters.go).
const (
	noteTooLong    = "too long"         // more bytes than the limit, one run without a split point, or too many items or members
	noteTooSlow    = "too slow"         // past the time limit; what was done is kept, so that the next request gets further
	noteNoTemplate = "no chat template" // the model's folder has none that can be used
)

// Notes are all words that Ids and Model.Prepare may return for why a prompt's ids are not known. The list is closed.
func Notes() []string {
	return []string{noteInvalid, noteMedia, notePart, noteSurrogate, noteArgument, noteTemplate, noteSpecial, noteTruncate, noteStored, noteItem,
		noteThinking, noteTools, noteEmbeds, noteSuffix, "big integer", "deep value", "model renderer", errRefused.Error(), errUnsupported.Error(),
		errFailed.Error(), errClock.Error(), errTooMuch.Error(), noteTooLong, noteTooSlow, noteNoTemplate, noteNoTokenizer, noteOwnIDs, noteDrifted, noteForeign, notePrefix}
}

// SourceOptions bound a Source.
type SourceOptions struct {
	// MaxBytes is the longest body, and the longest text in it, that is tokenized (tokens.max_bytes). 0: any.
	MaxBytes int
	// MaxTime is how long one call may encode, by the wall clock (tokens.max_time). 0: any time.
	MaxTime time.Duration
	// Cache is the memory in bytes for what is remembered (tokens.cache), above the tokenizer's own. Of a cache too
	// small for a conversation nothing is gained.
	Cache int
	// Beside is an EngineSource whose memory is used, too, instead of memory of Cache bytes. Nil: there is none.
	Beside *EngineSource
}

// Source knows the prompts of one model: it turns request bodies into the ids that vLLM makes of them, and remembers
// ids by what they were made of, so that a conversation that comes back costs little more than what is new in it.
// It is safe for concurrent use.
//
// What it remembers is found by hashes of 128 bits, seeded anew in each process, of all that the ids depend on:
//
//   - the items of a conversation as it grows lead to the ids of its text, and the template renders the new items only
//     (Conversation.RenderFrom);
//   - the text as it grows, from cut token to cut token, leads to the ids of its beginning;
//   - each text between two cuts leads to its ids, wherever it stands: history that was edited or put in another order
//     is encoded where it differs.
type Source struct {
	tokenizer *Tokenizer
	template  *Template
	maxBytes  int
	maxTime   time.Duration
	cache     *cache
	seed      uint64
	roots     [2]hash128 // in front of a text, without and with the tokenizer's prefix
	clock     time.Duration

	counts [ways]atomic.Uint64
	owed   [ways]atomic.Bool // one that was to be verified was not
	failed atomic.Uint64
	whole  atomic.Bool // what was remembered has been wrong once: nothing is, from then on
}

// NewSource makes a source of a model's tokenizer and chat template; without a template (nil) only completions are
// known.
func NewSource(tok *Tokenizer, tpl *Template, o SourceOptions) *Source {
	s := &Source{tokenizer: tok, template: tpl, maxBytes: o.MaxBytes, maxTime: o.MaxTime, seed: rand.Uint64()}
	if s.cache = o.Beside.memory(); s.cache == nil {
		s.cache = newCache(o.Cache)
	}
	s.roots = [2]hash128{s.hash(kindText, "plain"), s.hash(kindText, "special")}
	if tpl != nil {
		s.clock = clockStep(tpl)
	}
	return s
}

// clockStep is how often a template's text may change by itself: 0 for never.
func clockStep(t *Template) time.Duration {
	step := time.Duration(0)
	for _, source := range [...]string{t.plain.source, t.withTools.source} {
		for {
			_, rest, found := strings.Cut(source, "strftime_now")
			if !found {
				break
			}
			source = rest
			step = max(step, 24*time.Hour)
			if rest = strings.TrimLeft(rest, " "); strings.HasPrefix(rest, "is ") {
				continue // asks whether there is a clock
			}
			// A format that is written there and has no hours or minutes changes once a day.
			format, _, call := strings.Cut(strings.TrimLeft(rest, "( "), ")")
			if !call || rest[0] != '(' || !strings.ContainsAny(format[:min(1, len(format))], `'"`) || strings.Contains(format, "%H") || strings.Contains(format, "%M") {
				return time.Minute
			}
		}
	}
	return step
}

// now numbers the times at which a template may make another text.
func (s *Source) now() int64 {
	if s.clock == 0 || s.template.now == nil {
		return 0
	}
	at := s.template.now()
	_, offset := at.Zone()
	return (at.Unix() + int64(offset)) / int64(s.clock/time.Second)
}

// Way says how a prompt's ids were found.
type Way uint8

// The ways, from the dearest to the cheapest.
const (
	WayWhole Way = iota // rendered whole; what of the text was known was not encoded again
	WayGrown            // an old conversation and its new items
	WaySame             // the very same items
	ways
)

// Scratch is memory for Ids and what it says beside the ids. The zero value is ready; use it again, for one call at a
// time.
type Scratch struct {
	conv     Conversation
	text     []byte
	head     []byte
	parts    []part
	states   []hash128
	nodes    []*entry
	runs     [][]uint64
	ends     []int
	deadline time.Time

	encoded int // bytes
	late    int // bytes that were encoded when the time was up
	cutting int // what cutting took, in bytes of common text
	// rendered says that time was spent on a rendering, for which none was given back yet.
	rendered bool
	node     *entry // whose ids the first prompt's begin with
	shape    Shape  // of the whole conversation
	way      Way
	verify   bool
}

// Ends are the ends of the prompts in the ids that Ids appended, in order: one but for completions with a list of
// prompts. The slice holds until the next call.
func (scr *Scratch) Ends() []int { return scr.ends }

// Way says how the last call found the ids.
func (scr *Scratch) Way() Way { return scr.way }

// Encoded says how many bytes of text the last call had to encode.
func (scr *Scratch) Encoded() int { return scr.encoded }

// maxScratch is the most bytes that a Scratch keeps for the next call.
const maxScratch = 4 << 20

// Ids appends the ids of a request's prompt to dst, exactly as vLLM makes them, or says in a note out of Notes why they
// are not known; dst is returned as it was then. The ids of several prompts (Scratch.Ends) follow each other. p is what
// wire.Peek found in body.
//
// Where the same items were seen before it allocates only to grow dst.
func (s *Source) Ids(dst []uint32, e Endpoint, body []byte, p *wire.Peeked, scr *Scratch) (ids []uint32, note string) {
	scr.begin()
	defer scr.release()
	if s.maxBytes > 0 && len(body) > s.maxBytes {
		return dst, noteTooLong
	}
	if e != EndpointCompletions && s.template == nil {
		return dst, noteNoTemplate
	}
	if note = scr.conv.open(e, body, p); note != "" {
		return dst, note
	}
	return s.resolve(dst, scr)
}

// resolve is Ids for a body that scr.conv holds open.
func (s *Source) resolve(dst []uint32, scr *Scratch) (ids []uint32, note string) {
	if s.maxTime > 0 {
		scr.deadline = time.Now().Add(s.maxTime)
	}
	base := len(dst)
	switch {
	case scr.conv.endpoint == EndpointCompletions:
		ids, note = s.completions(dst, scr)
	case s.template == nil:
		ids, note = dst, noteNoTemplate
	default:
		ids, note = s.chat(dst, scr)
	}
	if note != "" {
		scr.ends, scr.node, scr.verify = scr.ends[:0], nil, false
		return ids[:base], note
	}
	s.count(scr)
	return ids, ""
}

// sampled is of how many calls of one Way one is to be verified: the first, and then each of these.
const sampled = 100

func (s *Source) count(scr *Scratch) {
	owed := s.owed[scr.way].Load() && s.owed[scr.way].Swap(false)
	scr.verify = s.counts[scr.way].Add(1)%sampled == 1 || owed
}

// begin forgets the last call.
func (scr *Scratch) begin() {
	scr.ends, scr.node, scr.way, scr.verify, scr.encoded, scr.late, scr.cutting, scr.rendered, scr.shape = scr.ends[:0], nil, WayWhole, false, 0, 0, 0, false, 0
}

// release lets go of the body and of memory that is too much to keep.
func (scr *Scratch) release() {
	scr.conv.release()
	if cap(scr.text)+cap(scr.head)+int(unsafe.Sizeof(part{}))*cap(scr.parts)+int(unsafe.Sizeof(hash128{}))*cap(scr.states) > maxScratch {
		scr.text, scr.head, scr.parts, scr.states = nil, nil, nil, nil
	}
	clear(scr.nodes)
	clear(scr.runs)
}

// completions appends the ids of all prompts.
func (s *Source) completions(dst []uint32, scr *Scratch) ([]uint32, string) {
	special := scr.conv.SpecialTokens()
	first, total := len(dst), 0
	for i, prompt := range scr.conv.Prompts() {
		if prompt.IDs != nil {
			dst = append(dst, prompt.IDs...)
			scr.ends = append(scr.ends, len(dst)-first)
			continue
		}
		if total += len(prompt.Text); s.maxBytes > 0 && total > s.maxBytes {
			return dst, noteTooLong
		}
		base := len(dst)
		ids, known, err := s.text(dst, scr, prompt.Text, special)
		if dst = ids; err != nil {
			return dst, noteOfEncoding(err)
		}
		if len(scr.parts) > 0 && !s.whole.Load() {
			if known = s.node(scr, dst, base, scr.lastStop(), known); i == 0 {
				scr.node = known
			}
		}
		if special {
			dst = append(dst, s.tokenizer.Suffix()...)
		}
		scr.ends = append(scr.ends, len(dst)-first)
	}
	return dst, ""
}

// SourceStats counts what a source has done since it was made.
type SourceStats struct {
	Bytes, Limit       int    // of memory in the cache
	Entries            int    // in the cache
	Evicted            uint64 // entries dropped for others
	Whole, Grown, Same uint64 // prompts by Way
	Mismatches         uint64 // by Verify
}

// Stats returns the counts.
func (s *Source) Stats() SourceStats {
	st := SourceStats{Limit: s.cache.limit, Whole: s.counts[WayWhole].Load(), Grown: s.counts[WayGrown].Load(), Same: s.counts[WaySame].Load(), Mismatches: s.failed.Load()}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	st.Bytes, st.Entries, st.Evicted = s.cache.bytes, len(s.cache.entries), s.cache.evicted
	return st
}
