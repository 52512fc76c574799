package wire

// Code is the word that stands in `code` of an error made by Ramjet. The list
// is closed: docs/ERRORS.md explains each, and a test compares the two.
type Code uint8

// The codes. Those from CodeEngineDied on occur only inside a stream whose
// head is out.
const (
	// CodeNone is the zero value: no error.
	CodeNone Code = iota
	CodeInvalidRequest
	CodeMalformedHTTP
	CodeInvalidAPIKey
	CodeModelNotFound
	CodePathNotFound
	CodeMethodNotAllowed
	CodeRequestTimeout
	CodeBodyTooLarge
	CodeUnsupportedMediaType
	CodeUnsupportedEncoding
	CodeWebsocketUnsupported
	CodeQueueFull
	CodeHeaderTooLarge
	CodeInternalError
	CodeNotImplemented
	CodeEngineUnreachable
	CodeEngineBadResponse
	CodeNoEngine
	CodeOverloaded
	CodeDraining
	CodeEngineTimeout
	CodeEngineDied
	CodeEngineStalled
	codeCount
)

// codeFacts is what is fixed for a code.
type codeFacts struct {
	word   string
	status int
	// retryAfter is in seconds, 0 for no such header.
	retryAfter int
	// noRetry: the same request can only fail again.
	noRetry bool
	// stream: may end a stream; only: occurs nowhere else.
	stream, only bool
	// message is used when an Error brings none; it says what to do.
	message string
}

var codeTable = [codeCount]codeFacts{
	CodeInvalidRequest: {word: "invalid_request", status: 400, noRetry: true,
		message: "The request cannot be understood. Correct it and send it again."},
	CodeMalformedHTTP: {word: "malformed_http", status: 400, noRetry: true,
		message: "The request is not well-formed HTTP/1.1. Use a client or proxy that follows RFC 9112."},
	CodeInvalidAPIKey: {word: "invalid_api_key", status: 401, noRetry: true,
		message: "The API key is missing or wrong. Send a valid key as `Authorization: Bearer KEY` or `x-api-key: KEY`."},
	CodeModelNotFound: {word: "model_not_found", status: 404, noRetry: true,
		message: "No engine serves this model. GET /v1/models lists the names that are served."},
	CodePathNotFound: {word: "path_not_found", status: 404, noRetry: true,
		message: "This path is not served here. Check the base URL; engine paths outside /v1 must be listed in paths.allow."},
	CodeMethodNotAllowed: {word: "method_not_allowed", status: 405, noRetry: true,
		message: "This path does not take this method. The Allow header names those that it takes."},
	CodeRequestTimeout: {word: "request_timeout", status: 408,
		message: "The request did not arrive in time. Send it again over a faster or steadier connection."},
	CodeBodyTooLarge: {word: "body_too_large", status: 413, noRetry: true,
		message: "The request body is larger than limits.body. Send less, or have the limit raised."},
	CodeUnsupportedMediaType: {word: "unsupported_media_type", status: 415, noRetry: true,
		message: "This path does not take this Content-Type. Send application/json."},
	CodeUnsupportedEncoding: {word: "unsupported_encoding", status: 415, noRetry: true,
		message: "Compressed request bodies are not read by the engines. Send the body without Content-Encoding."},
	CodeWebsocketUnsupported: {word: "websocket_unsupported", status: 426, noRetry: true,
		message: "There is no WebSocket at this path. Use a plain HTTP request; set \"stream\": true for a stream."},
	CodeQueueFull: {word: "queue_full", status: 429, retryAfter: 1,
		message: "All engines are at their limit and the queue is full. Wait as long as Retry-After says and send the request again."},
	CodeHeaderTooLarge: {word: "header_too_large", status: 431, noRetry: true,
		message: "The request head is larger than limits.header. Send fewer or shorter headers, or have the limit raised."},
	CodeInternalError: {word: "internal_error", status: 500, stream: true,
		message: "Ramjet failed on this request. Send it again; if it fails again, report the request id with the log."},
	CodeNotImplemented: {word: "not_implemented", status: 501, noRetry: true,
		message: "Ramjet does not implement this. Use another method or path."},
	CodeEngineUnreachable: {word: "engine_unreachable", status: 502, retryAfter: 1,
		message: "No engine that could serve this request accepted it. Send it again in a moment; GET /health shows the engines."},
	CodeEngineBadResponse: {word: "engine_bad_response", status: 502, stream: true,
		message: "The engine's response is not well-formed HTTP. Send the request again; the operator finds the engine in the log."},
	CodeNoEngine: {word: "no_engine", status: 503, retryAfter: 5,
		message: "No engine can take requests at present. Wait as long as Retry-After says; GET /health shows why."},
	CodeOverloaded: {word: "overloaded", status: 503, retryAfter: 1,
		message: "Too many request bytes are held at once. Wait as long as Retry-After says and send the request again."},
	CodeDraining: {word: "draining", status: 503, retryAfter: 1, stream: true,
		message: "This Ramjet is stopping. Send the request again over a new connection."},
	CodeEngineTimeout: {word: "engine_timeout", status: 504, stream: true,
		message: "The engine took longer than the configured time-out. Send a shorter request, or have the limit under timeouts raised."},
	CodeEngineDied: {word: "engine_died", status: 502, stream: true, only: true,
		message: "The engine went away in the middle of the answer. Send the request again; another engine will take it."},
	CodeEngineStalled: {word: "engine_stalled", status: 504, stream: true, only: true,
		message: "The engine stopped in the middle of the answer. Send the request again; another engine will take it."},
}

func (c Code) facts() *codeFacts {
	if c == CodeNone || c >= codeCount {
		return &codeTable[CodeInternalError]
	}
	return &codeTable[c]
}

// String returns the word as clients see it, "none" for CodeNone.
func (c Code) String() string {
	if c == CodeNone {
		return "none"
	}
	return c.facts().word
}

// Status returns the HTTP status that goes with the code. For a code that
// occurs only in streams it classifies the failure and never is in a head.
func (c Code) Status() int { return c.facts().status }

// RetryAfter returns the code's default for the Retry-After header in
// seconds, 0 for none.
func (c Code) RetryAfter() int { return c.facts().retryAfter }

// NoRetry reports that the same request can only fail again, so that the
// answer carries `x-should-retry: false` (the OpenAI and Anthropic SDKs obey).
func (c Code) NoRetry() bool { return c.facts().noRetry }

// InStream reports whether the code may end a stream whose head is out.
func (c Code) InStream() bool { return c.facts().stream }

// OnlyInStream reports whether the code never has an answer of its own.
func (c Code) OnlyInStream() bool { return c.facts().only }

// Message returns the sentence that is used when an Error brings none.
func (c Code) Message() string { return c.facts().message }

// Codes calls yield with every code in the order of the documentation.
func Codes(yield func(Code) bool) {
	for c := CodeNone + 1; c < codeCount; c++ {
		if !yield(c) {
			return
		}
	}
}
