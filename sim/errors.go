package sim

import (
	"errors"
	"net/http"
	"os"
	"strconv"
)

// dialect is the family of API that a path belongs to; it decides the shape
// of errors. It is this package's own so that the simulator shares no code
// with what it is used to test.
type dialect uint8

const (
	dialectOpenAI dialect = iota
	dialectResponses
	dialectAnthropic
)

// apiError is an error as vLLM reports it.
type apiError struct {
	status  int
	kind    string // "BadRequestError", "NotFoundError", "InternalServerError", or a status phrase
	message string
	param   string // "" = null
}

// badRequest is vLLM's error for a value that it refuses.
func badRequest(param, message string) *apiError {
	return &apiError{400, "BadRequestError", message, param}
}

// invalid is vLLM's error for a body that its request model refuses:
// FastAPI's validation handler reports it with the status phrase as type.
func invalid(kind, param, msg string) *apiError {
	loc := "('body',)"
	if param != "" {
		loc = "('body', '" + param + "')"
		param = "body." + param
	} else {
		param = "body"
	}
	return &apiError{400, "Bad Request", "1 validation error:\n  {'type': '" + kind + "', 'loc': " + loc + ", 'msg': '" + msg + "', 'input': {}}", param}
}

// modelNotFound is vLLM's answer to a model that is not served.
func modelNotFound(name string) *apiError {
	return &apiError{404, "NotFoundError", "The model `" + name + "` does not exist.", "model"}
}

// injectedError is the error of a fault, in the words of a broken engine.
func injectedError(status int) *apiError {
	kind := "InternalServerError"
	if status != 500 {
		kind = statusText(status)
	}
	return &apiError{status, kind, "EngineCore encountered an issue. See stack trace (above) for the root cause.", ""}
}

// appendError appends e as the JSON object of OpenAI's shape.
func appendError(dst []byte, e *apiError) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.kind)
	dst = append(dst, `,"param":`...)
	if e.param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, e.param)
	}
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(e.status), 10)
	return append(dst, "}}"...)
}

// appendAnthropicError appends e in Anthropic's shape.
func appendAnthropicError(dst []byte, e *apiError) []byte {
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = appendString(dst, e.kind)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.message)
	return append(dst, "}}"...)
}

// fail answers a request with e. Anthropic paths have their own shape, except
// that vLLM's validation errors have OpenAI's shape there too.
func (w *responder) fail(d dialect, e *apiError) {
	if w.status != 0 {
		w.failStream(d, e)
		return
	}
	if d == dialectAnthropic && e.kind != "Bad Request" {
		w.json(e.status, appendAnthropicError(nil, e))
		return
	}
	w.json(e.status, appendError(nil, e))
}

// failStream ends a stream as vLLM does when the engine fails under it: an
// error event and [DONE] in OpenAI's streams, an error event in Anthropic's;
// a Responses stream is cut without its last chunk.
func (w *responder) failStream(d dialect, e *apiError) {
	if w.status == 0 {
		w.fail(d, e)
		return
	}
	switch d {
	case dialectResponses:
		w.hangUp(false)
		return
	case dialectAnthropic:
		b := append([]byte("event: error\ndata: "), appendAnthropicError(nil, e)...)
		w.chunk(append(b, "\n\n"...))
	case dialectOpenAI:
		b := append([]byte("data: "), appendError(nil, e)...)
		w.chunk(append(b, "\n\n"...))
		w.chunk(doneEvent)
	}
	w.end()
}

// notFound and notAllowed are the answers of FastAPI's router.
func (w *responder) notFound() { w.json(http.StatusNotFound, []byte(`{"detail":"Not Found"}`)) }

func (w *responder) notAllowed(allow string) {
	w.json(http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`), field{"allow", allow})
}

// unauthorized is the answer of vLLM's key check: the error is a string here.
func (w *responder) unauthorized() {
	w.json(http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
}

func isBadRequest(err error) bool { return errors.Is(err, errBadRequest) }

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
