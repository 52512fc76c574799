package tokens

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/wire"
)

// The notes of Prepare beside those of Ids.
const (
	noteNoTokenizer = "no tokenizer"      // no source of ids at all
	noteOwnIDs      = "own ids"           // the client gave ids that stand in for its messages
	noteDrifted     = "class drifted"     // requests like this one had other counts or ids at the engine
	noteForeign     = "foreign tokenizer" // the tokenizer is not that of the model which the engines serve
	notePrefix      = "known prefix"      // an engine's own ids of the conversation's beginning are at hand
)

// ModelOptions are what a Model works with.
type ModelOptions struct {
	// Source is the local tokenizer; nil for none.
	Source *Source
	// Engines fetches ids from the engines beside the requests, where Source does not know them; nil asks nobody.
	// NewEngineSource makes it; the Model uses it, main runs and closes it.
	Engines *EngineSource
	// MaxBytes is the longest body that is looked at (tokens.max_bytes). 0: any.
	MaxBytes int
	// Log is told when a class of requests stops or begins to be exact. Nil: nobody is.
	Log Log
	// Counts counts for ramjet_tokenize_total. Nil: nothing is counted.
	Counts Counts
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Model knows one deployment's prompts and how far that can be relied on. It is safe for concurrent use.
type Model struct {
	o      ModelOptions
	source atomic.Pointer[Source]
	parity parity
	names  names
	ratio  atomic.Uint64 // float64 bits: bytes of prompt text for one token
}

// firstRatio is the bytes of text a token when nothing was learnt: English and code in the vocabularies of today.
const firstRatio = 4.0

// NewModel makes a Model. It starts nothing.
func NewModel(o ModelOptions) *Model {
	if o.Log == nil {
		o.Log = noLog{}
	}
	if o.Counts == nil {
		o.Counts = noCounts{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Model{o: o}
	m.source.Store(o.Source)
	m.ratio.Store(math.Float64bits(firstRatio))
	m.parity.log = o.Log
	return m
}

// Source returns the local tokenizer, nil if there is none.
func (m *Model) Source() *Source { return m.source.Load() }

// SetSource replaces the local tokenizer. Requests that are under way keep the one that they began with.
func (m *Model) SetSource(s *Source) { m.source.Store(s) }

// Prepare finds out what it can of a request's prompt, once per request: p is filled anew. model is the name that the
// engine will be asked for, empty for its default. body and peek (its reading) must not change while p is in use.
// It never fails: what is not known has its word in p.Note. A conversation that comes back costs no allocation.
//
// Each request of a class that has drifted is looked at no further, but for one in twenty: see Observe.
func (m *Model) Prepare(p *Prepared, e Endpoint, model, body []byte, peek *wire.Peeked) {
	p.reset(m)
	c := &p.scr.conv
	p.scr.begin()
	defer p.scr.release()
	var note string
	if max := m.o.MaxBytes; max > 0 && len(body) > max {
		note = c.openLong(e, body, peek)
	} else {
		note = c.open(e, body, peek)
	}
	p.Class = c.class(peek) | m.names.number(model)
	p.readGuards(c)
	m.estimate(p, body, peek)
	if note == "" && p.guards&guardOwnPrompt != 0 {
		note = noteOwnIDs
		p.Bytes = 0 // the engine's count is of the ids, and tells nothing of the text
	}
	if note == "" {
		note = m.ids(p)
	}
	if p.Note = note; note == "" {
		p.Exact = true
		return
	}
	m.o.Counts.Tokenized(sourceLocal, outcomeUnknown)
	if m.o.Engines != nil && m.o.Engines.wanted(p.Tokens) {
		m.o.Engines.help(p, model)
	}
}

// ids makes the ids by the local tokenizer, and judges by what was learnt of the class whether they may be used.
func (m *Model) ids(p *Prepared) (note string) {
	if p.source == nil {
		if !p.ownIDs() {
			return noteNoTokenizer
		}
	} else {
		if note = m.parity.hopeless(p.Class); note != "" {
			return note
		}
		if p.IDs, note = p.source.resolve(p.IDs, &p.scr); note != "" {
			return note
		}
	}
	p.Class = p.Class.withShape(p.scr.shape)
	p.Ends = append(p.Ends, p.scr.ends...)
	p.Predicted = len(p.IDs)
	if note = m.parity.verdict(p.Class); note != "" {
		p.IDs, p.Ends = p.IDs[:0], p.Ends[:0] // counted, to be compared, but not to be used
		return note
	}
	p.Tokens = len(p.IDs)
	m.o.Counts.Tokenized(sourceLocal, [...]string{outcomeWhole, outcomeGrown, outcomeSame}[p.scr.way])
	if p.Class&ClassIDs == 0 {
		m.learnRatio(p.Bytes, p.Tokens)
	}
	return ""
}

// ownIDs takes the ids that the client gave for its prompts, if it gave no text: they need no tokenizer.
func (p *Prepared) ownIDs() bool {
	prompts := p.scr.conv.prompts
	for _, prompt := range prompts {
		if prompt.IDs == nil {
			return false
		}
	}
	for _, prompt := range prompts {
		p.IDs = append(p.IDs, prompt.IDs...)
		p.scr.ends = append(p.scr.ends, len(p.IDs))
	}
	return len(prompts) > 0
}

// estimate sets the tokens that a prompt has by its length alone.
func (m *Model) estimate(p *Prepared, body []byte, peek *wire.Peeked) {
	text, media := p.measure(body, peek)
	p.Bytes = text
	p.Tokens = int(float64(text)/m.BytesPerToken()) + media*tokensPerMedium
	if p.Tokens == 0 && text > 0 {
		p.Tokens = 1
	}
}

// tokensPerMedium is what an image counts for in an estimate: one of a megapixel has about that many tokens in the
// Qwen-VL family, which makes one token of 28 x 28 pixels.
const tokensPerMedium = 1280

// BytesPerToken is how many bytes of a request's prompt text, as JSON, one token takes: learnt, 4 at the start.
func (m *Model) BytesPerToken() float64 { return math.Float64frombits(m.ratio.Load()) }

// ObserveTokens learns from an engine's count of prompt tokens how long a token is. bytes is Prepared.Bytes. For
// requests that are exact Prepare has learnt it already.
func (m *Model) ObserveTokens(bytes, reported int) { m.learnRatio(bytes, reported) }

// shortestLesson is the text from which on something can be learnt: in a shorter one the template weighs too much.
const shortestLesson = 512

func (m *Model) learnRatio(bytes, tokens int) {
	if bytes < shortestLesson || tokens <= 0 {
		return
	}
	const weight = 1.0 / 32
	got := min(max(float64(bytes)/float64(tokens), 1), 32) // a byte a token is the least a byte-level vocabulary does
	for {
		old := m.ratio.Load()
		have := math.Float64frombits(old)
		if m.ratio.CompareAndSwap(old, math.Float64bits(have+(got-have)*weight)) {
			return
		}
	}
}

// names numbers the models by name for Class. The numbers of names beyond the last are one.
type names struct {
	list atomic.Pointer[map[string]Class]
	mu   sync.Mutex // held to add a name
}

// lastName is the highest number of a name; a deployment serves a few models and adapters.
const lastName = 1<<8 - 1

// longestName is the longest name that is remembered: a client's may be as long as its body where no engine tells what
// it serves.
const longestName = 256

func (n *names) number(model []byte) Class {
	if len(model) == 0 {
		return 0
	}
	if len(model) > longestName {
		return lastName << classModel
	}
	if list := n.list.Load(); list != nil {
		if class, ok := (*list)[string(model)]; ok {
			return class
		}
		if len(*list) >= lastName-1 {
			return lastName << classModel
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	grown := map[string]Class{}
	if list := n.list.Load(); list != nil {
		for name, class := range *list {
			grown[name] = class
		}
	}
	if class, ok := grown[string(model)]; ok {
		return class
	}
	class := Class(min(len(grown)+1, lastName)) << classModel
	grown[string(model)] = class
	n.list.Store(&grown)
	return class
}
