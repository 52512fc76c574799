package tokens

import "ramjet/wire"

// open is Parse without a copy and in one pass: c is an alias of body from then on, which must be let go of before
// body changes. Half a megabyte is read in half the time, and a long conversation's body is what there is most of.
func (c *Conversation) open(e Endpoint, body []byte, p *wire.Peeked) (note string) {
	c.reset(e, maxValues)
	if !p.Object || p.Opaque {
		return noteInvalid
	}
	c.body = aliasOf(body)
	list := "messages"
	switch e {
	case EndpointResponses:
		list = "input"
	case EndpointCompletions:
		list = ""
	case EndpointChat, EndpointMessages:
	}
	if !c.openMembers(p, body, list) || len(c.items) > maxItems {
		return noteTooLong
	}
	switch e {
	case EndpointChat:
		return c.checkChat()
	case EndpointMessages:
		if len(c.items) == 0 {
			return noteInvalid
		}
		return ""
	case EndpointResponses:
		return c.checkResponses()
	case EndpointCompletions:
		return c.parsePrompts()
	}
	return noteInvalid
}

// openLong is open for a body whose prompt is not looked at: what else it says matters all the same, as the cache salt
// does.
func (c *Conversation) openLong(e Endpoint, body []byte, p *wire.Peeked) (note string) {
	c.reset(e, 0)
	if p.Object && !p.Opaque {
		c.body = aliasOf(body)
		c.openMembers(p, body, "")
	}
	return noteTooLong
}

// openMembers notes where the members of the root object are, and where the elements of the one named list are. It
// reports false for more members than anybody needs.
func (c *Conversation) openMembers(p *wire.Peeked, body []byte, list string) bool {
	members, ok := p.Members()
	if !ok {
		return c.readAll(p, body, list)
	}
	for i := range members {
		at, plain := members[i].Name()
		name, value := c.body[at.Start:at.End], members[i].Value()
		if !plain {
			r := jsonReader{s: c.body}
			name, _ = r.text(at.Start - 1)
		}
		if name == list && list != "" {
			c.items = c.items[:0] // the last of several counts
			if c.body[value.Start] == '[' {
				c.openItems(p, body, value.Start)
			}
		}
		if !c.note(name, value) {
			return false
		}
	}
	return true
}

// readAll is openMembers for a body with more members than Peek lists.
func (c *Conversation) readAll(p *wire.Peeked, body []byte, list string) bool {
	r := jsonReader{s: c.body}
	for i := r.space(p.Root.Start + 1); i < len(c.body) && c.body[i] == '"'; {
		name, end := r.text(i)
		from := r.space(r.space(end) + 1)
		var to int
		if name == list && list != "" {
			c.items = c.items[:0] // the last of several counts
		}
		if name == list && list != "" && c.body[from] == '[' {
			to = c.openItems(p, body, from)
		} else {
			to = skipJSON(c.body, from)
		}
		if !c.note(name, wire.Span{Start: from, End: to}) {
			return false
		}
		if i = r.space(to); i < len(c.body) && c.body[i] == ',' {
			i = r.space(i + 1)
		}
	}
	return true
}

// openItems notes where the elements of the list at i are, and returns what is behind it. Where Peek stepped through
// them last, it knows.
func (c *Conversation) openItems(p *wire.Peeked, body []byte, i int) int {
	for _, list := range [...]wire.Span{p.Messages, p.Input} {
		if list.Start == i {
			if items, ok := p.AppendElements(c.items, body, list); ok {
				c.items = items
				return list.End
			}
		}
	}
	r := jsonReader{s: c.body}
	start := i
	for i = r.space(i + 1); i < len(c.body) && c.body[i] != ']'; {
		if len(c.items) > maxItems {
			return skipJSON(c.body, start) // nobody will look at them
		}
		end := skipJSON(c.body, i)
		c.items = append(c.items, wire.Span{Start: i, End: end})
		if i = r.space(end); i < len(c.body) && c.body[i] == ',' {
			i = r.space(i + 1)
		}
	}
	return min(i+1, len(c.body))
}

// release lets go of the body.
func (c *Conversation) release() {
	clear(c.prompts[:cap(c.prompts)])
	clear(c.members[:cap(c.members)]) // names are aliases too
	c.body = ""
}
