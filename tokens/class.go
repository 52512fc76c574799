package tokens

import (
	"strings"

	"ramjet/wire"
)

// Class is what of a request decides how an engine makes a prompt of it: requests of one class go the same way through
// vLLM's code, so that what is learnt of some holds for all. The bits from classModel on number the model's name,
// because engines may load another template for an adapter. Comparable, and small enough to be a map's key.
type Class uint32

// The bits of a Class. The endpoint is in the lowest two.
const (
	classEndpoint Class = 1<<2 - 1

	ClassTools     Class = 1 << (iota + 1) // tool definitions
	ClassNoTools                           // tool_choice "none": some engines leave the definitions out then
	ClassMedia                             // an image, sound, video or file
	ClassArguments                         // chat_template_kwargs
	ClassEffort                            // reasoning effort in any dialect's form
	ClassDocuments                         // documents
	ClassOpen                              // the last message goes on, or no generation prompt
	ClassReasoning                         // reasoning in the history
	ClassRoles                             // roles or forms beside system, user, assistant and tool
	ClassPrompts                           // several prompts
	ClassIDs                               // a prompt given as ids
	ClassSpecial                           // add_special_tokens

	classModel = 16
)

var classWords = [...]struct {
	bit  Class
	word string
}{{ClassTools, "tools"}, {ClassNoTools, "tool-choice-none"}, {ClassMedia, "media"}, {ClassArguments, "template-arguments"}, {ClassEffort, "effort"},
	{ClassDocuments, "documents"}, {ClassOpen, "open"}, {ClassReasoning, "reasoning"}, {ClassRoles, "roles"}, {ClassPrompts, "prompts"}, {ClassIDs, "ids"},
	{ClassSpecial, "special-tokens"}}

var endpointWords = [...]string{"chat", "completions", "messages", "responses"}

// String returns the class for logs: the endpoint and what the request uses, joined by "+". It says nothing of the
// model.
func (c Class) String() string {
	var b strings.Builder
	b.WriteString(endpointWords[c&classEndpoint])
	for _, w := range classWords {
		if c&w.bit != 0 {
			b.WriteByte('+')
			b.WriteString(w.word)
		}
	}
	return b.String()
}

// Endpoint returns the API of the class.
func (c Class) Endpoint() Endpoint { return Endpoint(c & classEndpoint) }

// model is the number of the model's name.
func (c Class) model() int { return int(c >> classModel) }

// String returns the endpoint's word.
func (e Endpoint) String() string { return endpointWords[Class(e)&classEndpoint] }

// class reads the class of an open conversation, as far as it shows before the messages are read.
func (c *Conversation) class(peek *wire.Peeked) Class {
	class := Class(c.endpoint)
	for i := range c.members {
		raw := c.body[c.members[i].span.Start:c.members[i].span.End]
		if raw == "null" {
			continue
		}
		class |= memberClass(c.members[i].name, raw)
	}
	if peek.Media {
		class |= ClassMedia
	}
	if c.endpoint == EndpointCompletions {
		if peek.Prompts > 1 {
			class |= ClassPrompts
		}
		if len(c.prompts) > 0 && c.prompts[0].IDs != nil {
			class |= ClassIDs
		}
	}
	return class
}

// memberClass is what a member of the body adds to its class.
func memberClass(name, raw string) Class {
	switch name {
	case "tools":
		return ClassTools
	case "tool_choice":
		if raw == `"none"` || textMember(raw, "type") == "none" { // Anthropic's form
			return ClassNoTools
		}
	case "chat_template_kwargs":
		return ClassArguments
	case "reasoning_effort", "reasoning", "thinking", "output_config":
		return ClassEffort
	case "documents":
		return ClassDocuments
	case "continue_final_message":
		if raw != "false" {
			return ClassOpen
		}
	case "add_generation_prompt":
		if raw != "true" {
			return ClassOpen
		}
	case "add_special_tokens":
		return ClassSpecial
	}
	return 0
}

// withShape adds what shows in the messages.
func (c Class) withShape(s Shape) Class {
	if s&ShapeReasoning != 0 {
		c |= ClassReasoning
	}
	if s&ShapeOther != 0 {
		c |= ClassRoles
	}
	return c
}
