package wire

import "bytes"

// Usage is an engine's own count of tokens; -1 is unknown. Prompt includes
// what came from the cache in every dialect: Anthropic's input_tokens leaves
// the cached ones out (vLLM 0.32), so the three input counts are summed.
type Usage struct{ Prompt, Cached, Completion int64 }

// unknownUsage is the Usage of a text that carries none.
var unknownUsage = Usage{Prompt: -1, Cached: -1, Completion: -1}

// EventInfo says what one event of a stream means for its request.
type EventInfo struct {
	// Comment: nothing but comments, retry, id or blank lines, an empty data
	// line, or an Anthropic ping. No sign of life and no first token.
	Comment bool
	// Generated: proof of at least one generated token. Chat: the role chunk
	// (vLLM sends it with the first token) and every later choice.
	// Completions: any choice. Responses: whatever follows created, queued
	// and in_progress. Anthropic: message_start and later. An abort without
	// content proves nothing.
	Generated bool
	Delta     bool // carries generated content: progress by at least one token
	Error     bool // an error object, event: error, response.failed
	Done      bool // [DONE], message_stop, response.completed, incomplete or failed
	Finished  bool // carries a finish reason
	// Abort: the answer was ended by the engine, as a stopping vLLM does:
	// finish_reason "abort"; a Responses stream that ends incomplete or
	// cancelled though no limit was reached, or failed without output; an
	// Anthropic stop_reason outside the documented list, or a message_delta or
	// plain message without one.
	Abort    bool
	HasUsage bool
	Usage    Usage
	// ResponseID is the raw id in response.created, aliasing the event.
	ResponseID []byte
}

// AnswerInfo says what a whole answer means for its request.
type AnswerInfo struct {
	Abort bool // as in EventInfo
	Error bool // the body is an error object, or a failed response
	// NoOutput: no generated content, and usage does not speak of any. Says
	// something only for answers that generate.
	NoOutput   bool
	HasUsage   bool
	Usage      Usage
	ResponseID []byte // Responses: the id, raw, aliasing the body
}

// ClassifyEvent reads one block as EventScanner returns it, abbreviated
// (recognised by its length) or not, into info. It allocates nothing. Keys are taken as they stand at their
// place in the JSON (never from text that merely looks like them); keys
// written with escapes are not recognised, since no engine writes them.
func ClassifyEvent(d Dialect, event []byte, info *EventInfo) {
	*info = EventInfo{Usage: unknownUsage}
	switch d {
	case DialectResponses, DialectAnthropic:
		if namedDelta(d, event, info) {
			return
		}
	default:
		if plainDelta(event, info) {
			return
		}
	}
	name, data, several := readBlock(event)
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		info.Comment = true
		return
	}
	if string(data) == "[DONE]" {
		info.Done = true
		return
	}
	var f facts
	f.read(d, data, several, len(event) == 2*AbridgeEnd)
	if len(name) == 0 {
		name = f.kind
	}
	switch d {
	case DialectResponses:
		f.responsesEvent(name, info)
	case DialectAnthropic:
		f.anthropicEvent(name, info)
	default:
		f.openaiEvent(name, info)
	}
	info.HasUsage, info.Usage = f.hasUsage, f.usage
}

// ClassifyAnswer reads one JSON body, or the abbreviated form of it that an
// Abridger keeps (recognised by its length), into info. What lies in the part
// left out is not seen: no usage then, and output is assumed unless usage says
// that there is none. It allocates nothing.
func ClassifyAnswer(d Dialect, body []byte, info *AnswerInfo) {
	var f facts
	f.read(d, body, false, len(body) == 2*AbridgeEnd)
	if d == DialectAnthropic && string(f.kind) == "message" {
		f.unstopped()
	}
	*info = AnswerInfo{
		Abort:    f.abort,
		Error:    f.failed,
		NoOutput: !f.content && f.usage.Completion <= 0,
		HasUsage: f.hasUsage,
		Usage:    f.usage,
	}
	if d == DialectResponses {
		info.Abort = f.responseCut(f.status)
		info.Error = f.failed || string(f.status) == "failed"
		info.ResponseID = f.id
	}
}

// readBlock returns the event name (nil if none) and the data of a block. data
// runs from the first data line's value to the end of the last one's, but for empty ones; several
// is set when lines lie in between.
func readBlock(event []byte) (name, data []byte, several bool) {
	from, to := -1, -1
	for i := 0; i < len(event); {
		end := lineEnd(event, i)
		if end < 0 {
			end = len(event)
		}
		line := event[i:end]
		switch {
		case bytes.HasPrefix(line, dataField):
			if blank := len(bytes.TrimSpace(line[len(dataField):])) == 0; blank && (from < 0 || len(event) != 2*AbridgeEnd) {
				break // around a value it is white space; where one is abridged, places are counted from its end
			}
			several = from >= 0
			if from < 0 {
				from = i + len(dataField)
			}
			to = end
		case bytes.HasPrefix(line, eventField):
			name = bytes.TrimPrefix(line[len(eventField):], oneSpace)
		case len(line) == len(eventField)-1 && bytes.HasPrefix(eventField, line):
			name = nil // a field without a colon has an empty value
		}
		i = end + 1
	}
	if from < 0 {
		return name, nil, false
	}
	return name, event[from:to], several
}

var (
	dataField  = []byte("data:")
	eventField = []byte("event:")
	oneSpace   = []byte(" ")

	responsePrefix = []byte("response.")
)
