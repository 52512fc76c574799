package wire

// Dialect is the family of public API that a path belongs to. It decides the
// shape of errors and the names of stream events. The list is closed.
type Dialect uint8

const (
	// DialectOpenAI covers chat completions, completions, embeddings and
	// every path that has no shape of its own.
	DialectOpenAI Dialect = iota
	// DialectResponses is OpenAI's Responses API.
	DialectResponses
	// DialectAnthropic is Anthropic's Messages API.
	DialectAnthropic
)

// String returns the dialect's word as it stands in an Explanation.
func (d Dialect) String() string {
	switch d {
	case DialectOpenAI:
		return "openai"
	case DialectResponses:
		return "responses"
	case DialectAnthropic:
		return "anthropic"
	}
	return "unknown"
}
