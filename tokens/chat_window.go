package tokens

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

// longestWindow is how many items a rendering of new messages may span; beyond it a whole rendering is as good.
const longestWindow = 24

// maxWindowValues is the most JSON values in a window; of more a whole rendering is as good, too.
const maxWindowValues = 1 << 14

// shortestHistory is how many old items there must be: below it there is little to gain.
const shortestHistory = 3

// Shape returns what the last Render or RenderFrom saw in the items that it read. Keep it with what is remembered of
// a conversation and give it to RenderFrom.
func (c *Conversation) Shape() Shape { return c.shape }

// Boundary returns how many bytes at the end of the last rendering are no part of the messages but the generation
// prompt, so that what is in front of them is what a longer conversation begins with, if the template is stable.
// It renders a window of the last messages; ok is false where that is not possible.
func (c *Conversation) Boundary(t *Template) (tail int, ok bool) {
	if c.endpoint != EndpointChat || len(c.items) == 0 {
		return 0, false
	}
	with, without, ok := c.windows(t, len(c.items), len(c.items))
	if !ok || !strings.HasPrefix(with, without) {
		return 0, false
	}
	return len(with) - len(without), true
}

// RenderFrom appends what the prompt holds behind the rendering of the first n items (without generation prompt):
// the rendering of the items from n on and the generation prompt. It reads only the new items and a few before them,
// so that the cost does not grow with the conversation. seen is the Shape of the first n items.
//
// ok is false where it is not certain that the old text stays as it was: the template was not found stable for this
// shape, the window does not begin anew in the same way, or there is too little history to gain from. The caller
// renders the whole then. What must be equal to rely on the old text is the Head and the first n items.
func (c *Conversation) RenderFrom(dst []byte, t *Template, n int, seen Shape) (out []byte, ok bool) {
	if c.endpoint != EndpointChat || n < shortestHistory || n >= len(c.items) || c.raw("continue_final_message") == "true" {
		return dst, false
	}
	class := shapeClass(seen&ShapeOpen != 0, c.addsUser(n))
	with, before, ok := c.windows(t, n, len(c.items))
	if c.asked {
		seen &^= ShapeOpen // a later user message closes what was open
	}
	c.shape |= seen
	stable := t.variant(c.raw("tools") != "").stable[class] && c.shape&(ShapeMarker|ShapeOther) == 0
	if !ok || !stable || !strings.HasPrefix(with, before) {
		return dst, false
	}
	return append(dst, with[len(before):]...), true
}

// shapeClass numbers the classes that are proven apart: templates drop reasoning once a new user message comes
// (case C21 of Qwen3 and its kin), and keep it while tools are called. Reasoning before the last of the old user
// messages was dropped already.
func shapeClass(open, newUser bool) int {
	switch {
	case !open:
		return 0
	case !newUser:
		return 1
	}
	return 2
}

// addsUser reports whether an item from n on is not an assistant's or a tool's.
func (c *Conversation) addsUser(n int) bool {
	for i := n; i < len(c.items); i++ {
		if role := c.itemRole(i); role != "assistant" && role != "tool" {
			return true
		}
	}
	return false
}

// itemRole reads the role of an item without decoding the rest; of what is no message it is empty.
func (c *Conversation) itemRole(i int) (role string) { return textMember(c.Item(i), "role") }

// textMember returns the text of a member of an object that is known to be valid JSON, empty where it is no object or
// the member no text.
func textMember(raw, member string) (text string) {
	if raw == "" || raw[0] != '{' {
		return ""
	}
	r := jsonReader{s: raw}
	for at := r.space(1); at < len(raw) && raw[at] == '"'; {
		name, end := r.text(at)
		if end < 0 {
			return ""
		}
		from := r.space(r.space(end) + 1)
		if from >= len(raw) {
			return ""
		}
		if name == member {
			if text = ""; raw[from] == '"' {
				text, _ = r.text(from)
			}
		}
		if at = r.space(skipJSON(raw, from)); at < len(raw) && raw[at] == ',' {
			at = r.space(at + 1)
		}
	}
	return text
}

// windows renders a few messages up to item `to` with the generation prompt, and up to item n without. The window
// begins at an assistant's message, behind a user message of ours, so that it looks like the middle of a
// conversation.
func (c *Conversation) windows(t *Template, n, to int) (with, before string, ok bool) {
	from := n - 1
	for from > 0 && c.itemRole(from) != "assistant" {
		from--
	}
	if from < 1 {
		from = 0 // too short for a middle: from the beginning
	}
	if to-from > longestWindow {
		return "", "", false
	}
	r := chatRequest{tools: c.windowTools()}
	c.begin(maxWindowValues)
	if t.refusal != "" {
		return "", "", false
	}
	c.chat(t, &r, from)
	if c.odd != "" || r.goOn {
		return "", "", false
	}
	v := t.variant(!r.tools.IsNone())
	if v.thinking && c.shape&ShapeReasoning != 0 || c.shape&ShapeOther != 0 {
		return "", "", false
	}
	if from > 0 {
		shape, asked := c.shape, c.asked
		anchor := c.message(chatMessage("user", jinja.NewString("x")), v)
		c.shape, c.asked = shape, asked
		r.messages = append([]jinja.Value{anchor}, r.messages...)
	}
	r.vars["tools"] = r.tools
	return t.renderPair(v, r, len(r.messages)-(to-n))
}

// renderPair renders all messages with the generation prompt and the first n without.
func (t *Template) renderPair(v *variant, r chatRequest, n int) (with, before string, ok bool) {
	// A template may write into what it is given only through namespaces of its own, so that both may share it.
	r.vars["messages"] = jinja.NewList(r.messages)
	with, err := t.render(v, r.vars)
	if err != nil {
		return "", "", false
	}
	r.vars["messages"] = jinja.NewList(r.messages[:n:n])
	r.vars["add_generation_prompt"] = jinja.NewBool(false)
	before, err = t.render(v, r.vars)
	return with, before, err == nil
}

// windowTools stands for any tools: in a window they are rendered in front of what is compared, and only whether
// there are any can matter behind. What they are is not read: they were valid when the whole was rendered, and equal
// heads have equal tools.
func (c *Conversation) windowTools() jinja.Value {
	if c.raw("tools") == "" {
		return jinja.None()
	}
	return jinja.NewList([]jinja.Value{probeTool()})
}
