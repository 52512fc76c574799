package wire

import "bytes"

// facts is what one JSON text of an engine says, in any dialect.
type facts struct {
	kind     []byte // type
	status   []byte // Responses: status
	reason   []byte // Responses: incomplete_details.reason
	id       []byte // Responses: id
	choices  bool   // at least one choice
	content  bool   // generated content that is not empty
	finished bool
	abort    bool
	failed   bool // an error object
	whole    bool // the text was read to its end, with nothing left out
	nullStop bool // Anthropic: a stop_reason that is null
	settled  bool // the list that holds the content was read to its end
	hasUsage bool
	usage    Usage
}

// lineEndMargin is more than the line ends that were cut off the end of an
// event's data, so that its last AbridgeEnd bytes reach that far less back.
const lineEndMargin = 16

// read fills f from data. abridged: data may have lost its middle. If it does
// not parse to its end, its head is read forwards and its tail backwards.
func (f *facts) read(d Dialect, data []byte, several, abridged bool) {
	*f = facts{usage: unknownUsage}
	s := docScan{b: data, sse: several}
	f.walk(d, &s)
	f.whole = s.finished()
	if !abridged {
		return
	}
	if joint := len(data) - AbridgeEnd; joint > 0 && !f.whole {
		*f = facts{usage: unknownUsage}
		s = docScan{b: data[:joint], sse: several}
		f.walk(d, &s)
		f.tail(d, data[joint+lineEndMargin:])
	}
	// Output makes a text that long, but so do instructions and prompt token
	// ids; the engine's count decides where there is one.
	f.content = f.content || !f.settled && f.usage.Completion != 0
}

func (f *facts) walk(d Dialect, s *docScan) {
	switch d {
	case DialectResponses:
		f.responses(s, false)
	case DialectAnthropic:
		f.anthropic(s, false)
	default:
		f.openai(s)
	}
}

// tail reads the members near the end of an abbreviated text. Those of a
// stream's response object lie one level deeper than those of an answer.
func (f *facts) tail(d Dialect, b []byte) {
	t := tailScan{b: b, i: len(b)}
	for {
		key, depth, value, ok := t.next()
		if !ok {
			return
		}
		s := docScan{b: b, i: value}
		switch {
		case string(key) == "usage" && depth <= 2 && !f.hasUsage:
			f.readUsage(d, &s)
		case string(key) == "finish_reason" && d == DialectOpenAI && depth == 3:
			f.finish(&s)
		case string(key) == "stop_reason" && d == DialectAnthropic && depth <= 2:
			f.stop(&s)
		case string(key) == "status" && d == DialectResponses && depth <= 2 && f.status == nil:
			f.status = s.text()
		case string(key) == "type" && depth == 1 && f.kind == nil:
			f.kind = s.text()
		}
	}
}

// readUsage reads a usage object; null and anything else leave f as it is.
func (f *facts) readUsage(d Dialect, s *docScan) {
	if !s.enter('{') {
		return
	}
	u := unknownUsage
	read, written := int64(-1), int64(-1) // Anthropic: from and to the cache
	names := usageNames(d)
	for {
		key, ok := s.key()
		if !ok {
			break
		}
		switch string(key) {
		case names.prompt:
			u.Prompt = s.count()
		case names.completion:
			u.Completion = s.count()
		case names.details:
			u.Cached = cachedTokens(s)
		case "cache_read_input_tokens":
			read = s.count()
		case "cache_creation_input_tokens":
			written = s.count()
		default:
			s.skip()
		}
	}
	if s.bad {
		return
	}
	if d == DialectAnthropic {
		u.Cached = read
		if u.Prompt >= 0 {
			u.Prompt += max(read, 0) + max(written, 0)
		}
	}
	f.hasUsage, f.usage = true, u
}

type usageKeys struct{ prompt, completion, details string }

func usageNames(d Dialect) usageKeys {
	if d == DialectOpenAI {
		return usageKeys{"prompt_tokens", "completion_tokens", "prompt_tokens_details"}
	}
	return usageKeys{"input_tokens", "output_tokens", "input_tokens_details"}
}

func cachedTokens(s *docScan) int64 {
	n := int64(-1)
	if !s.enter('{') {
		return n
	}
	for {
		key, ok := s.key()
		if !ok {
			return n
		}
		if string(key) == "cached_tokens" {
			n = s.count()
		} else {
			s.skip()
		}
	}
}

// fault reads the value of an error member: anything but null is one.
func (f *facts) fault(s *docScan) {
	if !s.null() {
		f.failed = true
	}
}

// openai reads a chat or completions chunk or answer, or an error body.
func (f *facts) openai(s *docScan) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "choices":
			if s.enter('[') {
				for s.elem() {
					f.choices = true
					f.choice(s)
				}
				f.settled = !s.bad
			}
		case "usage":
			f.readUsage(DialectOpenAI, s)
		case "error":
			f.fault(s)
		case "object":
			// vLLM before 0.10 wrote {"object":"error","message":..}.
			if string(s.text()) == "error" {
				f.failed = true
			}
		default:
			s.skip()
		}
	}
}

func (f *facts) choice(s *docScan) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "delta", "message":
			f.message(s)
		case "text", "token_ids":
			f.content = s.filled() || f.content
		case "finish_reason":
			f.finish(s)
		default:
			s.skip()
		}
	}
}

// message reads a delta or message. reasoning_content is the name that vLLM
// gave to reasoning before 0.15.
func (f *facts) message(s *docScan) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call":
			f.content = s.filled() || f.content
		default:
			s.skip()
		}
	}
}

func (f *facts) finish(s *docScan) {
	if reason := s.text(); len(reason) > 0 {
		f.finished = true
		f.abort = f.abort || string(reason) == "abort"
	}
}

func (f *facts) openaiEvent(name []byte, info *EventInfo) {
	info.Error = f.failed || string(name) == "error"
	info.Generated = f.choices && (f.content || !f.abort)
	info.Delta = f.choices && f.content
	info.Finished, info.Abort = f.finished, f.abort
}

// anthropic reads an event or answer of the Messages API, or the message that
// lies within the first event.
func (f *facts) anthropic(s *docScan, within bool) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "type", "message", "delta":
			if within {
				s.skip()
			} else {
				f.anthropicMember(key, s)
			}
		case "content":
			f.blocks(s)
			f.settled = !s.bad
		case "stop_reason":
			f.stop(s)
		case "usage":
			f.readUsage(DialectAnthropic, s)
		case "error":
			f.fault(s)
		default:
			s.skip()
		}
	}
}

// anthropicMember reads the members of an event that a message does not have
// (type means another thing there).
func (f *facts) anthropicMember(key []byte, s *docScan) {
	switch string(key) {
	case "type":
		f.kind = s.text()
	case "message":
		f.anthropic(s, true)
	default:
		f.anthropicDelta(s)
	}
}

func (f *facts) anthropicDelta(s *docScan) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "text", "thinking", "partial_json":
			f.content = s.filled() || f.content
		case "stop_reason":
			f.stop(s)
		default:
			s.skip()
		}
	}
}

// blocks reads a list of content blocks, of Anthropic and of Responses. A
// block of another kind than text or thought is output by being there.
func (f *facts) blocks(s *docScan) {
	if !s.enter('[') {
		return
	}
	for s.elem() {
		f.block(s)
	}
}

func (f *facts) block(s *docScan) {
	if !s.enter('{') {
		return
	}
	var kind []byte
	for {
		key, ok := s.key()
		if !ok {
			break
		}
		switch string(key) {
		case "type":
			kind = s.text()
		case "text", "thinking", "refusal", "arguments", "input":
			f.content = s.filled() || f.content
		case "content", "summary":
			if s.peek() == '[' {
				f.blocks(s)
			} else {
				f.content = s.filled() || f.content
			}
		default:
			s.skip()
		}
	}
	switch string(kind) {
	case "", "text", "thinking", "message", "reasoning", "output_text", "reasoning_text", "summary_text", "refusal":
	default:
		f.content = true
	}
}

// stop reads an Anthropic stop_reason. The list is that of the API's
// documentation; a server may pass words of its own through.
func (f *facts) stop(s *docScan) {
	f.nullStop = s.peek() == 'n'
	reason := s.text()
	if len(reason) == 0 {
		return
	}
	f.finished = true
	switch string(reason) {
	case "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded":
	default:
		f.abort = true
	}
}

// unstopped judges the end of an Anthropic message: one without a reason was
// aborted, because vLLM (0.32) has a word of the API for stop, length and
// tool_calls only and says null for the rest. A member that may lie in a part
// left out is not missing.
func (f *facts) unstopped() {
	if !f.finished && !f.failed && (f.whole || f.nullStop) {
		f.finished, f.abort = true, true
	}
}

func (f *facts) anthropicEvent(name []byte, info *EventInfo) {
	if string(name) == "message_delta" {
		f.unstopped()
	}
	info.Error = f.failed
	info.Finished, info.Abort = f.finished, f.abort
	switch string(name) {
	case "ping":
		info.Comment = true
	case "error":
		info.Error = true
	case "message_start", "content_block_start", "content_block_stop":
		info.Generated = true
	case "content_block_delta":
		info.Generated, info.Delta = true, f.content
	case "message_delta":
		info.Generated = !f.abort
	case "message_stop":
		info.Done = true
	}
}

// responses reads an event or answer of the Responses API, or the response
// that lies within an event.
func (f *facts) responses(s *docScan, within bool) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		switch string(key) {
		case "type", "response", "delta":
			if within {
				s.skip()
			} else {
				f.responsesMember(key, s)
			}
		case "id":
			f.id = s.text()
		case "status":
			f.status = s.text()
		case "output":
			f.blocks(s)
			f.settled = !s.bad
		case "incomplete_details":
			f.incomplete(s)
		case "usage":
			f.readUsage(DialectResponses, s)
		case "error":
			f.fault(s)
		default:
			s.skip()
		}
	}
}

// responsesMember reads the members of an event that a response does not have.
func (f *facts) responsesMember(key []byte, s *docScan) {
	switch string(key) {
	case "type":
		f.kind = s.text()
	case "response":
		f.responses(s, true)
	default:
		f.content = s.filled() || f.content
	}
}

func (f *facts) incomplete(s *docScan) {
	if !s.enter('{') {
		return
	}
	for {
		key, ok := s.key()
		if !ok {
			return
		}
		if string(key) == "reason" {
			f.reason = s.text()
		} else {
			s.skip()
		}
	}
}

// responseCut reports whether the engine gave a response of that status up:
// it is incomplete or cancelled though no limit was reached (vLLM 0.32 names
// the limit in every incomplete one, and calls an abort cancelled), or it
// failed without output. One that failed behind output is an error.
func (f *facts) responseCut(status []byte) bool {
	switch string(f.reason) {
	case "", "abort", "cancelled", "error":
	default: // a limit
		return false
	}
	switch string(status) {
	case "incomplete", "cancelled":
		return true
	case "failed":
		return !f.content && f.usage.Completion <= 0
	}
	return false
}

func (f *facts) responsesEvent(name []byte, info *EventInfo) {
	kind, ok := bytes.CutPrefix(name, responsePrefix)
	if !ok {
		info.Error = string(name) == "error" || f.failed
		return
	}
	switch string(kind) {
	case "created":
		info.ResponseID = f.id
	case "queued", "in_progress":
	case "completed", "incomplete", "failed", "cancelled":
		info.Done, info.Finished = true, true
		info.Error = string(kind) == "failed" || f.failed
		status := f.status
		if string(kind) != "completed" {
			status = kind
		}
		info.Abort = f.responseCut(status)
		output := f.content || f.usage.Completion > 0
		info.Generated = output || string(status) == "completed"
		info.Delta = info.Abort && output // may be all that is heard of it
	default:
		info.Generated = true
		info.Delta = f.content && bytes.HasSuffix(kind, deltaSuffix)
	}
}
