package tokens

// Prompt is one prompt of a completions request: ids that the client gave, or text.
type Prompt struct {
	Text string
	// IDs are the client's own; Text is empty then.
	IDs []uint32
}

// Prompts returns the prompts of a completions body in order, after Parse without a note. The list holds until the
// next Parse.
func (c *Conversation) Prompts() []Prompt { return c.prompts }

// SpecialTokens reports whether vLLM lets the tokenizer put its own special tokens around the text: for completions
// unless the request says no, and for Responses (ResponsesRequest.build_tok_params leaves the default on), but not
// for chat and messages, whose template writes them.
func (c *Conversation) SpecialTokens() bool {
	switch c.endpoint {
	case EndpointCompletions:
		return c.raw("add_special_tokens") != "false"
	case EndpointResponses:
		return true
	case EndpointChat, EndpointMessages:
	}
	return false
}

// parsePrompts reads `prompt` in its four forms: a string, ids, strings, lists of ids. Forms are not mixed, and an
// empty list is refused.
func (c *Conversation) parsePrompts() string {
	switch {
	case c.raw("prompt_embeds") != "":
		return noteEmbeds
	case c.raw("suffix") != "":
		return noteSuffix
	case c.raw("truncate_prompt_tokens") != "":
		return noteTruncate
	}
	if flag := c.raw("add_special_tokens"); flag != "" && flag != "true" && flag != "false" {
		return noteInvalid
	}
	raw := c.raw("prompt")
	if raw == "" {
		return noteInvalid
	}
	if raw[0] != '[' {
		prompt := c.decode(raw)
		if !prompt.IsString() {
			return noteInvalid
		}
		c.prompts = append(c.prompts, Prompt{Text: prompt.AsString()})
		return c.odd
	}
	return c.promptList(raw)
}

// maxPrompts is how many prompts of one request are looked at: each costs more than its text.
const maxPrompts = 4096

// promptList reads a list whose elements all are of the first one's kind. Ids are read without values in between:
// there may be a hundred thousand.
func (c *Conversation) promptList(raw string) string {
	r := jsonReader{s: raw}
	i := r.space(1)
	switch {
	case raw[i] == ']':
		return noteInvalid
	case raw[i] == '-' || raw[i] >= '0' && raw[i] <= '9':
		return c.addIDs(raw)
	}
	text := raw[i] == '"'
	for raw[i] != ']' {
		if len(c.prompts) == maxPrompts {
			return noteTooLong
		}
		end := skipJSON(raw, i)
		switch {
		case text && raw[i] == '"':
			c.prompts = append(c.prompts, Prompt{Text: c.decode(raw[i:end]).AsString()})
		case !text && raw[i] == '[':
			if note := c.addIDs(raw[i:end]); note != "" {
				return note
			}
		default:
			return noteInvalid
		}
		if i = r.space(end); raw[i] == ',' {
			i = r.space(i + 1)
		}
	}
	return c.odd
}

// maxTokenID is above any vocabulary and fits a signed 32-bit id.
const maxTokenID = 1<<31 - 1

// addIDs reads a list of whole numbers, which must not be empty.
func (c *Conversation) addIDs(raw string) string {
	ids := make([]uint32, 0, len(raw)/6+1)
	r := jsonReader{s: raw}
	for i := r.space(1); ; i = r.space(i + 1) {
		id, start := 0, i
		for ; raw[i] >= '0' && raw[i] <= '9' && id <= maxTokenID; i++ {
			id = id*10 + int(raw[i]-'0')
		}
		if i == start || id > maxTokenID {
			return noteInvalid
		}
		ids = append(ids, uint32(id))
		if i = r.space(i); raw[i] == ']' {
			c.prompts = append(c.prompts, Prompt{IDs: ids})
			return ""
		}
		if raw[i] != ',' {
			return noteInvalid
		}
	}
}
