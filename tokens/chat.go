package tokens

import (
	"strings"

	"github.com/ardanlabs/jinja"

	"ramjet/wire"
)

// Endpoint is the API that a body is for; it decides how vLLM turns the body into a prompt.
type Endpoint uint8

// The endpoints whose prompts can be known.
const (
	EndpointChat        Endpoint = iota // /v1/chat/completions
	EndpointCompletions                 // /v1/completions
	EndpointMessages                    // /v1/messages (Anthropic)
	EndpointResponses                   // /v1/responses
)

// The notes of Parse and Render: why a prompt cannot be known exactly. The list is closed together with the texts of
// the errors in template_filters.go; none of them is an error for the client.
const (
	noteInvalid   = "invalid request"     // the engine will refuse it
	noteMedia     = "media"               // images, sound, video, files
	notePart      = "content part"        // parts whose text depends on more than we know
	noteSurrogate = "surrogate"           // half a pair: no UTF-8
	noteArgument  = "reserved argument"   // chat_template_kwargs that change more than the template's variables
	noteTemplate  = "template in request" // never rendered
	noteSpecial   = "special tokens"      // add_special_tokens
	noteTruncate  = "truncation"
	noteStored    = "stored response" // the history is at the engine
	noteItem      = "response item"
	noteThinking  = "thinking member" // differs between versions of transformers
	noteTools     = "tool form"
	noteEmbeds    = "embeddings" // prompt_embeds
	noteSuffix    = "suffix"
)

// Conversation is what a request body says of its prompt. The zero value is ready; it is meant to be used again, by
// one goroutine at a time. It keeps a copy of the body until the next Parse.
type Conversation struct {
	endpoint Endpoint
	body     string
	members  []bodyMember
	names    nameSet     // of members
	items    []wire.Span // the elements of messages, or of a Responses input
	shape    Shape
	asked    bool // a user message was read
	// state of one rendering
	odd     string
	left    int // values that may still be read
	prompts []Prompt
}

type bodyMember struct {
	name string
	span wire.Span
}

// Parse takes note of what a body holds; p is what wire.Peek found in it, which also means that the body is valid
// JSON. A note other than "" says that the prompt cannot be known; Render must not be called then.
func (c *Conversation) Parse(e Endpoint, body []byte, p *wire.Peeked) (note string) {
	c.reset(e, maxValues)
	if !p.Object || p.Opaque {
		return noteInvalid
	}
	c.body = string(body)
	if !c.readMembers(p.Root.Start) {
		return noteTooLong
	}
	switch e {
	case EndpointChat:
		c.readItems("messages")
		return c.checkChat()
	case EndpointMessages:
		c.readItems("messages")
		if len(c.items) == 0 {
			return noteInvalid
		}
		return ""
	case EndpointResponses:
		c.readItems("input")
		return c.checkResponses()
	case EndpointCompletions:
		return c.parsePrompts()
	}
	return noteInvalid
}

// reset forgets all but the memory.
func (c *Conversation) reset(e Endpoint, values int) {
	members, items, prompts := c.members[:0], c.items[:0], c.prompts[:0]
	*c = Conversation{} // in place, while a literal with values is made elsewhere and copied
	c.endpoint, c.left = e, values
	c.members, c.items, c.prompts = members, items, prompts
}

// readMembers notes where the members of the root object are; of several with one name the last counts. It reports
// false for more than anybody needs.
func (c *Conversation) readMembers(start int) bool {
	r := jsonReader{s: c.body}
	for i := r.space(start + 1); i < len(c.body) && c.body[i] == '"'; {
		name, end := r.text(i)
		from := r.space(r.space(end) + 1)
		to := skipJSON(c.body, from)
		if !c.note(name, wire.Span{Start: from, End: to}) {
			return false
		}
		if i = r.space(to); i < len(c.body) && c.body[i] == ',' {
			i = r.space(i + 1)
		}
	}
	return true
}

// maxMembers is how many members a body may have: vLLM 0.32 knows some 70 of a chat. They are looked up one by one,
// which would take minutes for a body that is made of nothing else.
const maxMembers = 256

func (c *Conversation) note(name string, span wire.Span) bool {
	bit := nameBit(name)
	if c.names&bit != 0 {
		for i := range c.members {
			if c.members[i].name == name {
				c.members[i].span = span
				return true
			}
		}
	}
	if len(c.members) == maxMembers {
		return false
	}
	c.names |= bit
	c.members = append(c.members, bodyMember{name, span})
	return true
}

// nameSet has a bit for each name in it, which other names share: it tells for most names that they are not there.
type nameSet uint64

func nameBit(name string) nameSet {
	if name == "" {
		return 1
	}
	return 1 << ((uint(name[0]) + 7*uint(name[len(name)-1]) + 13*uint(len(name))) & 63)
}

// raw returns the text of a member, empty when absent or null.
func (c *Conversation) raw(name string) string {
	if c.names&nameBit(name) == 0 {
		return ""
	}
	for i := range c.members {
		if c.members[i].name == name {
			if s := c.body[c.members[i].span.Start:c.members[i].span.End]; s != "null" {
				return s
			}
			return ""
		}
	}
	return ""
}

// readItems notes where the elements of a list are.
func (c *Conversation) readItems(name string) {
	for i := range c.members {
		if c.members[i].name != name || c.body[c.members[i].span.Start] != '[' {
			continue
		}
		r := jsonReader{s: c.body}
		for at := r.space(c.members[i].span.Start + 1); at < len(c.body) && c.body[at] != ']'; {
			end := skipJSON(c.body, at)
			c.items = append(c.items, wire.Span{Start: at, End: end})
			if at = r.space(end); at < len(c.body) && c.body[at] == ',' {
				at = r.space(at + 1)
			}
		}
	}
}

// Items is the number of messages, or of input items, in the body.
func (c *Conversation) Items() int { return len(c.items) }

// Item returns the raw text of item i: an alias of the body's copy. Equal items under an equal head give equal text
// in the prompt, as far as RenderFrom answers.
func (c *Conversation) Item(i int) string { return c.body[c.items[i].Start:c.items[i].End] }

// headMembers are the members beside the items that can change the prompt.
var headMembers = [...]string{"tools", "system", "instructions", "chat_template_kwargs", "documents", "reasoning_effort", "reasoning", "thinking",
	"output_config", "add_generation_prompt", "continue_final_message", "previous_response_id", "truncation"}

// AppendHead appends what identifies everything but the items: two conversations of one endpoint with equal heads
// differ by their items only. The bytes are for hashing.
func (c *Conversation) AppendHead(dst []byte) []byte {
	dst = append(dst, byte(c.endpoint))
	for i, name := range headMembers {
		if raw := c.raw(name); raw != "" {
			dst = append(dst, byte(i))
			dst = append(dst, raw...)
			dst = append(dst, 0)
		}
	}
	return dst
}

// checkChat finds what keeps a chat request from being known, before anything is decoded.
func (c *Conversation) checkChat() string {
	switch {
	case len(c.items) == 0:
		return noteInvalid
	case c.raw("chat_template") != "":
		return noteTemplate
	case c.raw("add_special_tokens") != "" && c.raw("add_special_tokens") != "false":
		return noteSpecial
	case c.raw("truncate_prompt_tokens") != "":
		return noteTruncate
	}
	return ""
}

// decode reads one raw value.
func (c *Conversation) decode(raw string) jinja.Value {
	r := jsonReader{s: raw, left: c.left}
	v, end := r.value(r.space(0))
	if end < 0 && r.odd == "" {
		r.odd = noteInvalid
	}
	if c.left = r.left; r.odd != "" {
		c.fail(r.odd)
	}
	return v
}

// member decodes a member of the root; undefined when absent or null.
func (c *Conversation) member(name string) jinja.Value {
	raw := c.raw(name)
	if raw == "" {
		return jinja.Undefined()
	}
	return c.decode(raw)
}

// fail notes why a prompt cannot be known; the first reason stays.
func (c *Conversation) fail(note string) {
	if c.odd == "" {
		c.odd = note
	}
}

// Render appends the prompt's text as vLLM 0.32 would make it with this template. A note other than "" says why it
// cannot be known; dst is returned as it was then.
func (c *Conversation) Render(dst []byte, t *Template) (out []byte, note string) {
	r, note := c.request(t)
	if note != "" {
		return dst, note
	}
	text, note := c.finish(t, r)
	if note != "" {
		return dst, note
	}
	return append(dst, text...), ""
}

// chatRequest is what vLLM gives a template: a conversation in its own form and the other variables.
type chatRequest struct {
	messages []jinja.Value
	tools    jinja.Value // None without
	vars     values
	goOn     bool // continue_final_message
}

// maxValues is the most JSON values of one body that are read: each takes half a kilobyte and a microsecond to render,
// at worst. A conversation of maxItems messages in parts has half of it.
const maxValues = 1 << 16

// begin begins a rendering that may read so many values.
func (c *Conversation) begin(values int) {
	c.odd, c.shape, c.asked, c.left = "", 0, false, values
}

// request turns the body into what the template is given.
func (c *Conversation) request(t *Template) (r chatRequest, note string) {
	c.begin(maxValues)
	if t.refusal != "" {
		return r, t.refusal
	}
	switch c.endpoint {
	case EndpointChat:
		r.tools = c.chatTools(c.member("tools"))
		c.chat(t, &r, 0)
	case EndpointMessages:
		c.anthropic(t, &r)
	case EndpointResponses:
		c.responses(t, &r)
	default:
		c.fail(noteInvalid)
	}
	return r, c.odd
}

// finish applies the last steps of vLLM and renders.
func (c *Conversation) finish(t *Template, r chatRequest) (string, string) {
	v := t.variant(!r.tools.IsNone())
	if v.thinking && c.shape&ShapeReasoning != 0 {
		return "", noteThinking
	}
	if !v.developer {
		r.messages = withoutDeveloper(r.messages)
	}
	var last string
	if r.goOn {
		var ok bool
		if last, ok = leaveOpen(r.messages, v); !ok {
			return "", noteInvalid
		}
	}
	r.vars["messages"], r.vars["tools"] = jinja.NewList(r.messages), r.tools
	text, err := t.render(v, r.vars)
	if err != nil {
		return "", noteOf(err)
	}
	if r.goOn {
		if text, err = cutOpen(text, last); err != nil {
			return "", noteOf(err)
		}
	}
	return text, ""
}

// openTag is what transformers puts behind a message that is to go on, to find its end in the rendering
// (utils/chat_template_utils.py).
const openTag = "CONTINUE_FINAL_MESSAGE_TAG "

// leaveOpen marks the end of the last message; last is its text as it was.
func leaveOpen(messages []jinja.Value, v *variant) (last string, ok bool) {
	if len(messages) == 0 || !strings.Contains(v.source, "content") {
		return "", false
	}
	d := messages[len(messages)-1].AsDict()
	content, _ := d.Get("content")
	if content.IsString() {
		last = content.AsString()
		d.Set("content", jinja.NewString(last+openTag))
		return last, true
	}
	if !content.IsList() {
		return "", false
	}
	for i := content.AsList().Len() - 1; i >= 0; i-- {
		part := content.AsList().Get(i).AsDict()
		if text, found := part.Get("text"); found && text.IsString() {
			part.Set("text", jinja.NewString(text.AsString()+openTag))
			return text.AsString(), true
		}
	}
	return "", false
}

// cutOpen ends the rendering where the last message ends.
func cutOpen(text, last string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(openTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(last, pySpace)) {
		return "", errFailed
	}
	if strings.HasPrefix(text[at:], openTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], pySpace), nil
}

// withoutDeveloper is what vLLM does for a template that does not know the role: developer messages become system
// messages, and all system messages become one in front.
func withoutDeveloper(messages []jinja.Value) []jinja.Value {
	found := false
	for _, m := range messages {
		role, _ := m.AsDict().Get("role")
		found = found || role.IsString() && role.AsString() == "developer"
	}
	if !found {
		return messages
	}
	var system []string
	var rest []jinja.Value
	merge := false
	for i, m := range messages {
		role, _ := m.AsDict().Get("role")
		if role.AsString() != "system" && role.AsString() != "developer" {
			rest = append(rest, m)
			continue
		}
		merge = merge || i > 0 || len(system) > 0
		content, _ := m.AsDict().Get("content")
		if text := joinedText(content); text != "" {
			system = append(system, text)
		}
	}
	if !merge {
		only := messages[0].AsDict()
		head := jinja.NewDict()
		for _, name := range only.Keys {
			if name != "tools" {
				head.AsDict().Set(name, only.Data[name])
			}
		}
		head.AsDict().Set("role", jinja.NewString("system"))
		return append([]jinja.Value{head}, rest...)
	}
	head := jinja.NewDict()
	head.AsDict().Set("role", jinja.NewString("system"))
	head.AsDict().Set("content", jinja.NewString(strings.Join(system, "\n\n")))
	return append([]jinja.Value{head}, rest...)
}

// joinedText is the text of a content in either form.
func joinedText(content jinja.Value) string {
	if content.IsString() {
		return content.AsString()
	}
	var texts []string
	if content.IsList() {
		for _, part := range content.AsList().Items {
			if text, ok := part.AsDict().Get("text"); ok && text.IsString() {
				texts = append(texts, text.AsString())
			}
		}
	}
	return strings.Join(texts, "\n")
}
