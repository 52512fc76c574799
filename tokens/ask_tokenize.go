package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"

	"ramjet/wire"
)

// maxAnswer bounds the answer of /tokenize: ten bytes an id at the most, for two million.
const maxAnswer = 32 << 20

// errCannotAsk says that an engine answers /tokenize with an error that asking again does not change.
var errCannotAsk = errors.New("the engine does not tokenize this")

// errNoTokenize says that an engine answers no question at /tokenize. It is an errCannotAsk too.
var errNoTokenize = fmt.Errorf("there is no /tokenize for us: %w", errCannotAsk)

// askIDs posts body to an engine's /tokenize and returns the ids. The error wraps errCannotAsk where the engine
// refused the question: it is of no use to ask again.
func askIDs(ctx context.Context, a Asker, body []byte) ([]uint32, error) {
	status, answer, err := a.Post(ctx, "/tokenize", body, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for ids: %w", err)
	}
	if status != 200 {
		if status == 404 || status == 405 || status == 401 || status == 403 {
			return nil, fmt.Errorf("cannot ask for ids: %w (status %d)", errNoTokenize, status)
		}
		if status >= 400 && status < 500 && status != 429 && status != 408 {
			return nil, fmt.Errorf("cannot ask for ids: %w (status %d)", errCannotAsk, status)
		}
		return nil, fmt.Errorf("cannot ask for ids: the engine answers %d", status)
	}
	var got struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, fmt.Errorf("cannot read the engine's ids: %w", err)
	}
	if len(got.Tokens) == 0 {
		return nil, errors.New("cannot read the engine's ids: there are none")
	}
	return got.Tokens, nil
}

// appendTokenize appends the body that lets POST /tokenize make the ids of an open conversation's prompt. ok is false
// where that endpoint cannot make the same prompt. Its chat form knows no effort, no documents and no older name for
// reasoning (vLLM 0.32: it ignores them without a word), so that these take the way through the template's arguments.
// Messages and Responses are converted, which takes a template; t may be nil for the others. prefix leaves the
// generation prompt out, so that the ids are those that a longer conversation begins with.
func (c *Conversation) appendTokenize(dst []byte, model string, t *Template, prefix bool) (out []byte, ok bool) {
	base := dst
	dst = append(dst, '{')
	if model != "" {
		dst = wire.AppendQuoted(append(dst, `"model":`...), model)
		dst = append(dst, ',')
	}
	switch c.endpoint {
	case EndpointCompletions:
		if len(c.prompts) != 1 || c.prompts[0].IDs != nil {
			return base, false
		}
		dst = wire.AppendQuoted(append(dst, `"prompt":`...), c.prompts[0].Text)
		if !c.SpecialTokens() {
			dst = append(dst, `,"add_special_tokens":false`...)
		}
	case EndpointChat:
		if dst, ok = c.appendChat(dst, prefix); !ok {
			return base, false
		}
	case EndpointMessages, EndpointResponses:
		if t == nil {
			return base, false
		}
		if dst, ok = c.appendConverted(dst, t, prefix); !ok {
			return base, false
		}
	}
	return append(dst, '}'), true
}

// appendChat is appendTokenize for chat completions: what the client wrote goes as it is.
func (c *Conversation) appendChat(dst []byte, prefix bool) (out []byte, ok bool) {
	dst = append(dst, `"messages":[`...)
	for i := range c.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendReasoning(dst, c.Item(i))
	}
	dst = append(dst, ']')
	if tools := c.raw("tools"); tools != "" {
		dst = append(append(dst, `,"tools":`...), tools...)
	}
	open, generation := c.raw("continue_final_message"), c.raw("add_generation_prompt")
	if open == "true" {
		dst = append(dst, `,"continue_final_message":true,"add_generation_prompt":false`...)
	} else if prefix || generation == "false" {
		dst = append(dst, `,"add_generation_prompt":false`...)
	}
	given := c.raw("chat_template_kwargs")
	effort, documents := c.raw("reasoning_effort"), c.raw("documents")
	if given != "" && given[0] != '{' || effort != "" && effort[0] != '"' {
		return dst, false // the engine will refuse it
	}
	if given == "" && effort == "" && documents == "" {
		return dst, true
	}
	// Of two members with one name the last counts: the client's word on thinking comes after what vLLM derives of the
	// effort, and effort and documents come after the client's arguments.
	dst = append(dst, `,"chat_template_kwargs":{`...)
	first := true
	add := func(name, raw string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(append(dst, '"'), name...), `":`...), raw...)
	}
	if effort == `"none"` {
		add("enable_thinking", "false")
	} else if effort != "" {
		add("enable_thinking", "true")
	}
	if inner := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(given, "{"), "}")); inner != "" {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, inner...)
	}
	if effort != "" {
		add("reasoning_effort", effort)
	}
	if documents != "" {
		add("documents", documents)
	}
	return append(dst, '}'), true
}

// appendReasoning appends a message with reasoning_content under its present name, unless it has that too.
func appendReasoning(dst []byte, item string) []byte {
	const older, present = "reasoning_content", "reasoning"
	if !strings.Contains(item, older) || item[0] != '{' {
		return append(dst, item...)
	}
	r := jsonReader{s: item}
	from, to := 0, 0 // of the older name with its quotes
	for at := r.space(1); at < len(item) && item[at] == '"'; {
		name, end := r.text(at)
		value := r.space(r.space(end) + 1)
		next := skipJSON(item, value)
		switch {
		case name == older:
			from, to = at, end
		case name == present && item[value:next] != "null":
			return append(dst, item...)
		}
		if at = r.space(next); at < len(item) && item[at] == ',' {
			at = r.space(at + 1)
		}
	}
	if to == 0 {
		return append(dst, item...)
	}
	dst = append(dst, item[:from]...)
	dst = append(dst, `"`+present+`"`...)
	return append(dst, item[to:]...)
}

// appendConverted is appendTokenize for the other dialects: the conversation in vLLM's own form.
func (c *Conversation) appendConverted(dst []byte, t *Template, prefix bool) (out []byte, ok bool) {
	r, note := c.request(t)
	if note != "" {
		return dst, false
	}
	style := jsonStyle{item: ",", key: ":"}
	dst = append(dst, `"messages":[`...)
	for i, m := range r.messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = style.appendJSON(dst, wireMessage(m, &style), 0)
	}
	dst = append(dst, ']')
	if !r.tools.IsNone() {
		dst = style.appendJSON(append(dst, `,"tools":`...), r.tools, 0)
	}
	vars := jinja.NewDict()
	for name, v := range r.vars {
		if name != "add_generation_prompt" && !v.IsNone() && !v.IsUndefined() {
			vars.AsDict().Set(name, v)
		}
	}
	if vars.AsDict().Len() > 0 {
		dst = style.appendJSON(append(dst, `,"chat_template_kwargs":`...), vars, 0)
	}
	if r.goOn {
		dst = append(dst, `,"continue_final_message":true`...)
	}
	if r.goOn || prefix {
		dst = append(dst, `,"add_generation_prompt":false`...)
	}
	if c.SpecialTokens() {
		dst = append(dst, `,"add_special_tokens":true`...)
	}
	return dst, !style.unprovable
}

// wireMessage is a message with the arguments of its tool calls as text, as they travel.
func wireMessage(m jinja.Value, style *jsonStyle) jinja.Value {
	calls := attribute(m, "tool_calls")
	if !calls.IsList() {
		return m
	}
	out := jinja.NewDict()
	for _, name := range m.AsDict().Keys {
		out.AsDict().Set(name, m.AsDict().Data[name])
	}
	var list []jinja.Value
	for _, call := range calls.AsList().Items {
		function := jinja.NewDict()
		inner := attribute(call, "function").AsDict()
		for _, name := range inner.Keys {
			function.AsDict().Set(name, inner.Data[name])
		}
		if arguments := attribute(call, "function.arguments"); !arguments.IsString() {
			function.AsDict().Set("arguments", jinja.NewString(string(style.appendJSON(nil, arguments, 0))))
		}
		whole := jinja.NewDict()
		for _, name := range call.AsDict().Keys {
			whole.AsDict().Set(name, call.AsDict().Data[name])
		}
		whole.AsDict().Set("function", function)
		list = append(list, whole)
	}
	out.AsDict().Set("tool_calls", jinja.NewList(list))
	return out
}
