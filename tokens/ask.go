package tokens

import "context"

// Asker asks one engine: it posts a JSON body to path and returns at most limit bytes of the answer. engine.Engine is
// one. It must be safe for concurrent use and may ask twice.
type Asker interface {
	Post(ctx context.Context, path string, body []byte, limit int64) (status int, answer []byte, err error)
}

// Getter is an Asker that can also get; the search for KV connectors needs it.
type Getter interface {
	Get(ctx context.Context, path string, limit int64) (status int, body []byte, err error)
}

// Log takes lines about what changed; telemetry.Log is one. kv are pairs of a name and a value.
type Log interface {
	Info(msg string, kv ...any)
	Warn(msg string, kv ...any)
}

// Counts takes what is counted; it must be safe for concurrent use and allocate nothing.
type Counts interface {
	// Tokenized counts for ramjet_tokenize_total; the words are those of TokenizeSources and TokenizeOutcomes.
	Tokenized(source, outcome string)
}

// The words of ramjet_tokenize_total.
const (
	sourceLocal  = "local"  // the model's own tokenizer here
	sourceEngine = "engine" // an engine's /tokenize, beside the requests

	outcomeWhole   = "whole"   // local: rendered whole, in Way's words
	outcomeGrown   = "grown"   // local
	outcomeSame    = "same"    // local
	outcomeUnknown = "unknown" // local: not exact
	outcomeKept    = "kept"    // engine: ids came and are kept
	outcomeFound   = "found"   // engine: a later turn found them
	outcomeFailed  = "failed"  // engine: no answer, or none of use
	outcomeDropped = "dropped" // engine: not asked, because the queue was full or the engines busy
)

// TokenizeSources is the closed list of sources that Counts is told.
func TokenizeSources() []string { return []string{sourceLocal, sourceEngine} }

// TokenizeOutcomes is the closed list of outcomes that Counts is told.
func TokenizeOutcomes() []string {
	return []string{outcomeWhole, outcomeGrown, outcomeSame, outcomeUnknown, outcomeKept, outcomeFound, outcomeFailed, outcomeDropped}
}

// noLog and noCounts stand in for what was not given.
type noLog struct{}

func (noLog) Info(string, ...any) {}
func (noLog) Warn(string, ...any) {}

type noCounts struct{}

func (noCounts) Tokenized(string, string) {}
