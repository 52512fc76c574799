package wire

import "strconv"

// Error is a failure that Ramjet itself reports to a client. It is immutable
// once built and may be shared.
type Error struct {
	// Code is the word of the closed list.
	Code Code
	// Status is the HTTP status, 0 for the code's own.
	Status int
	// Message is for the user and says what to do; empty for the code's own.
	// It must not quote a prompt or a credential.
	Message string
	// Param is the member or header at fault, empty for none.
	Param string
	// RetryAfter is in seconds, 0 for the code's own.
	RetryAfter int
	// NoRetry adds `x-should-retry: false` where the code does not already.
	NoRetry bool
	// Allow is the value of the Allow header (405).
	Allow string
}

// Error returns the code's word and the message.
func (e *Error) Error() string { return e.Code.String() + ": " + e.message() }

// HTTPStatus returns the status of the answer.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.Status()
}

// Retry returns what the answer says about trying again: the seconds of its
// Retry-After header (0: none), or that there is no point (then after is 0).
func (e *Error) Retry() (after int, never bool) {
	if e.NoRetry || e.RetryAfter == 0 && e.Code.NoRetry() {
		return 0, true
	}
	if e.RetryAfter != 0 {
		return e.RetryAfter, false
	}
	return e.Code.RetryAfter(), false
}

func (e *Error) message() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Code.Message()
}

// Type returns the word in `type`, which depends on the status. Anthropic
// calls a server's own failure api_error and has a word for overload; OpenAI
// calls both server_error.
func (e *Error) Type(d Dialect) string {
	status := e.HTTPStatus()
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 404:
		return "not_found_error"
	case status == 429:
		return "rate_limit_error"
	case status < 500:
		return "invalid_request_error"
	case d != DialectAnthropic:
		return "server_error"
	case status == 503 || status == 529:
		return "overloaded_error"
	}
	return "api_error"
}

// AppendErrorBody appends the JSON body of an error answer in the dialect's
// shape. requestID is what stands in X-Request-Id; only Anthropic's shape has
// a place for it.
func AppendErrorBody(dst []byte, d Dialect, e *Error, requestID string) []byte {
	if d != DialectAnthropic {
		dst = append(dst, `{"error":`...)
		dst = appendOpenAIError(dst, d, e)
		return append(dst, '}')
	}
	dst = appendAnthropicError(dst, e)
	dst = append(dst, `,"request_id":`...)
	dst = appendQuotedOrNull(dst, requestID)
	return append(dst, '}')
}

// AppendErrorEvent appends the event that ends a stream whose head is out.
// sequenceNumber is used by the Responses dialect only: one more than that of
// the last event that was passed on.
func AppendErrorEvent(dst []byte, d Dialect, e *Error, sequenceNumber int) []byte {
	switch d {
	case DialectResponses:
		dst = append(dst, "event: error\ndata: {\"type\":\"error\",\"code\":"...)
		dst = AppendQuoted(dst, e.Code.String())
		dst = append(dst, `,"message":`...)
		dst = AppendQuoted(dst, e.message())
		dst = append(dst, `,"param":`...)
		dst = appendQuotedOrNull(dst, e.Param)
		dst = append(dst, `,"sequence_number":`...)
		dst = strconv.AppendInt(dst, int64(sequenceNumber), 10)
	case DialectAnthropic:
		dst = append(dst, "event: error\ndata: "...)
		dst = appendAnthropicError(dst, e)
	default:
		dst = append(dst, `data: {"error":`...)
		dst = appendOpenAIError(dst, d, e)
	}
	return append(dst, "}\n\n"...)
}

func appendOpenAIError(dst []byte, d Dialect, e *Error) []byte {
	dst = append(dst, `{"message":`...)
	dst = AppendQuoted(dst, e.message())
	dst = append(dst, `,"type":`...)
	dst = AppendQuoted(dst, e.Type(d))
	dst = append(dst, `,"param":`...)
	dst = appendQuotedOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = AppendQuoted(dst, e.Code.String())
	return append(dst, '}')
}

// appendAnthropicError leaves the outer object open.
func appendAnthropicError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = AppendQuoted(dst, e.Type(DialectAnthropic))
	dst = append(dst, `,"message":`...)
	dst = AppendQuoted(dst, e.message())
	dst = append(dst, `,"code":`...)
	dst = AppendQuoted(dst, e.Code.String())
	return append(dst, '}')
}

func appendQuotedOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendQuoted(dst, s)
}
