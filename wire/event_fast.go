package wire

import "bytes"

// The events that a stream consists of are recognised by their spelling, key
// by key in the order in which vLLM 0.32 writes them. Whatever is spelt
// otherwise takes the full reading, which costs ten times as much, so a
// stranger's order of keys is slower but never wrong.

// cursor compares a text with what is expected next.
type cursor struct{ rest []byte }

// lit passes s, if it comes next.
func (c *cursor) lit(s string) bool {
	if len(c.rest) < len(s) || string(c.rest[:len(s)]) != s {
		return false
	}
	c.rest = c.rest[len(s):]
	return true
}

// digits passes a number without sign or fraction.
func (c *cursor) digits() {
	for len(c.rest) > 0 && c.rest[0] >= '0' && c.rest[0] <= '9' {
		c.rest = c.rest[1:]
	}
}

// quoted passes the rest of a string and its closing quote.
func (c *cursor) quoted() bool {
	for at := 0; ; {
		n := bytes.IndexByte(c.rest[at:], '"')
		if n < 0 {
			return false
		}
		at += n + 1
		if !escaped(c.rest[:at-1]) {
			c.rest = c.rest[at:]
			return true
		}
	}
}

// singleData reports whether b is one data line with an object, LF and LF.
func singleData(b []byte) bool {
	n := len(b)
	return n > len("data: {}\n") && n <= AbridgeLimit && string(b[n-3:]) == "}\n\n" &&
		bytes.IndexByte(b, '\n') == n-2 && bytes.IndexByte(b, '\r') < 0
}

// plainDelta recognises a chat or completions event of one choice with some
// text and nothing else to say.
func plainDelta(event []byte, info *EventInfo) bool {
	c := cursor{event}
	if !c.lit(`data: {"id":"`) || !singleData(event) ||
		!c.quoted() || !c.lit(`,"object":"`) || !c.quoted() || !c.lit(`,"created":`) {
		return false
	}
	c.digits()
	if !c.lit(`,"model":"`) || !c.quoted() || !c.fingerprint() || !c.lit(`,"choices":[{"index":`) {
		return false
	}
	c.digits()
	chat := c.lit(`,"delta":{"`)
	switch {
	case chat && (c.lit(`content":"`) || c.lit(`reasoning":"`) || c.lit(`reasoning_content":"`)):
	case !chat && c.lit(`,"text":"`):
	default:
		return false
	}
	if c.rest[0] == '"' || !c.quoted() || !c.plainTail(chat) {
		return false
	}
	info.Generated, info.Delta = true, true
	return true
}

// fingerprint passes the member that some servers, and vLLM in some releases,
// put between model and choices of every event.
func (c *cursor) fingerprint() bool {
	if !c.lit(`,"system_fingerprint":`) || c.lit("null") {
		return true
	}
	return c.lit(`"`) && c.quoted()
}

// plainTail judges what follows the text of a choice to the end of the event.
func (c *cursor) plainTail(chat bool) bool {
	switch string(c.rest) {
	case `},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n",
		`},"logprobs":null,"finish_reason":null}]}` + "\n\n":
		return chat // as vLLM writes them without further options
	}
	if chat && !c.lit("}") {
		return false
	}
	c.nulls()
	if !c.lit("}]") {
		return false
	}
	c.nulls()
	return string(c.rest) == "}\n\n"
}

// nulls passes members that say nothing.
func (c *cursor) nulls() {
	for {
		switch {
		case c.lit(`,"logprobs":null`):
		case c.lit(`,"finish_reason":null`):
		case c.lit(`,"stop_reason":null`):
		case c.lit(`,"token_ids":null`):
		case c.lit(`,"prompt_logprobs":null`):
		case c.lit(`,"prompt_token_ids":null`):
		case c.lit(`,"usage":null`):
		default:
			return
		}
	}
}

// namedDelta recognises the delta events of the dialects that name their
// events. The name says what the event is; the data only whether it is empty.
func namedDelta(d Dialect, event []byte, info *EventInfo) bool {
	end := bytes.IndexByte(event, '\n')
	if end < 0 || !singleData(event[end+1:]) || bytes.IndexByte(event[:end], '\r') >= 0 {
		return false
	}
	name := cursor{event[:end]}
	c := cursor{event[end+1:]}
	if !c.lit(`data: {"`) || !name.lit("event: ") {
		return false
	}
	if d == DialectAnthropic {
		if string(name.rest) != "content_block_delta" || !c.anthropicText() {
			return false
		}
	} else if !name.lit("response.") || !bytes.HasSuffix(name.rest, deltaSuffix) || !c.responseText() {
		return false
	}
	if len(c.rest) == 0 || c.rest[0] == '"' {
		return false
	}
	info.Generated, info.Delta = true, true
	return true
}

func (c *cursor) anthropicText() bool {
	if !c.lit(`type":"content_block_delta","`) {
		return false
	}
	if c.lit(`index":`) { // in this order at Anthropic, behind delta at vLLM
		c.digits()
		if !c.lit(`,"`) {
			return false
		}
	}
	return c.lit(`delta":{"type":"`) &&
		(c.lit(`text_delta","text":"`) || c.lit(`thinking_delta","thinking":"`) || c.lit(`input_json_delta","partial_json":"`))
}

func (c *cursor) responseText() bool {
	if c.lit(`content_index":`) {
		c.digits()
		if !c.lit(`,"`) {
			return false
		}
	}
	return c.lit(`delta":"`)
}

var deltaSuffix = []byte(".delta")
