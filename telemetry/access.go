package telemetry

import (
	"io"
	"math"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// Formats of a log.
const (
	FormatAuto    = "auto"    // console on a terminal, JSON otherwise
	FormatJSON    = "json"    // one JSON object a line
	FormatConsole = "console" // one coloured line
)

// Unknown is the value of a number or a time in seconds that is not known; it
// is written as null, never as 0.
const Unknown = -1

// maxText bounds in bytes every text of a client inside a log line.
const maxText = 256

// AccessRecord is one finished request, whatever became of it. Byte slices are
// read during Write only. Texts that came from a client may hold anything:
// they are escaped and cut to 256 bytes. An empty text is written as null.
type AccessRecord struct {
	Time   time.Time // when the request's head was complete
	ID     []byte    // X-Request-Id
	End    End
	Status int // what the client got; 499 if it left before
	Method []byte
	Path   []byte
	Model  []byte // as asked for

	Engine  string   // the engine whose answer went out, "" if none did
	Engines []string // all engines tried, in order
	Reason  Reason
	Keys    string // exact, approximate or none

	PromptTokens int // these four: Unknown if not known
	MatchTokens  int
	CachedTokens int
	OutputTokens int

	Route    float64 // these four in seconds; Unknown if it did not come to that
	Queue    float64
	TTFT     float64
	Duration float64

	BytesIn  int64 // body bytes received from the client
	BytesOut int64 // body bytes sent to the client
	Attempts int   // engines tried
	Session  []byte
	Error    string // what went wrong, for people; "" if nothing did
}

// AccessLog writes one line for each request, as JSON or for a terminal. It is
// safe for concurrent use, never blocks on the log's reader and allocates
// nothing per line.
type AccessLog struct {
	w       *LogWriter
	json    zerolog.Logger
	console bool
}

// NewAccessLog returns an access log on w; format is json, console, or auto
// for a choice by whether w is a terminal. If w is a *LogWriter the caller
// closes that one, else Close is due.
func NewAccessLog(w io.Writer, format string) *AccessLog {
	lw := NewLogWriter(w)
	return &AccessLog{w: lw, json: zerolog.New(lw), console: consoleFormat(lw.w, format)}
}

// Dropped returns the number of lines dropped so far.
func (a *AccessLog) Dropped() uint64 { return a.w.Dropped() }

// Close writes what is pending.
func (a *AccessLog) Close() error { return a.w.Close() }

// Write logs one record. A nil log writes nothing.
func (a *AccessLog) Write(r *AccessRecord) {
	if a == nil {
		return
	}
	if a.console {
		a.writeConsole(r)
		return
	}
	a.writeJSON(r)
}

func (a *AccessLog) writeJSON(r *AccessRecord) {
	var stamp [32]byte
	e := a.json.Log()
	e.Bytes("time", appendTime(stamp[:0], r.Time))
	text(e, "id", r.ID)
	name(e, "end", r.End.String())
	number(e, "status", int64(r.Status))
	text(e, "method", r.Method)
	text(e, "path", r.Path)
	text(e, "model", r.Model)
	name(e, "engine", r.Engine)
	name(e, "reason", r.Reason.String())
	name(e, "keys", r.Keys)
	number(e, "prompt_tokens", int64(r.PromptTokens))
	number(e, "match_tokens", int64(r.MatchTokens))
	number(e, "cached_tokens", int64(r.CachedTokens))
	number(e, "output_tokens", int64(r.OutputTokens))
	seconds(e, "route_s", r.Route)
	seconds(e, "queue_s", r.Queue)
	seconds(e, "ttft_s", r.TTFT)
	seconds(e, "duration_s", r.Duration)
	number(e, "bytes_in", r.BytesIn)
	number(e, "bytes_out", r.BytesOut)
	number(e, "attempts", int64(r.Attempts))
	text(e, "session", r.Session)
	e.Strs("engines", r.Engines)
	if r.Error == "" {
		e.RawJSON("error", null)
	} else {
		text(e, "error", []byte(r.Error))
	}
	e.Send()
}

var null = []byte("null")

// appendTime appends t as RFC 3339 with milliseconds in UTC.
func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
}

// text writes a text from outside. What zerolog would let through though it
// can break a line in some reader (U+2028, U+0085) or turn it round is escaped
// here.
func text(e *zerolog.Event, key string, v []byte) {
	if len(v) == 0 {
		e.RawJSON(key, null)
		return
	}
	v = cutBytes(v, maxText)
	if harmless(v) {
		e.Bytes(key, v)
		return
	}
	e.RawJSON(key, appendQuotedBytes(make([]byte, 0, len(v)+64), v))
}

func name(e *zerolog.Event, key, v string) {
	if v == "" {
		e.RawJSON(key, null)
		return
	}
	e.Str(key, v)
}

func number(e *zerolog.Event, key string, v int64) {
	if v < 0 {
		e.RawJSON(key, null)
		return
	}
	e.Int64(key, v)
}

// seconds writes a time with microseconds: finer digits are noise and cost
// bytes in every line.
func seconds(e *zerolog.Event, key string, v float64) {
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		e.RawJSON(key, null)
		return
	}
	var b [24]byte
	e.RawJSON(key, appendMicros(b[:0], int64(math.Round(v*1e6))))
}

// appendMicros appends a count of microseconds as seconds without trailing
// zeros. Shortest-float printing costs several times as much, four times a
// line.
func appendMicros(b []byte, micros int64) []byte {
	b = strconv.AppendInt(b, micros/1e6, 10)
	rest := micros % 1e6
	if rest == 0 {
		return b
	}
	b = append(b, '.')
	for scale := int64(1e5); rest > 0; scale /= 10 {
		b = append(b, byte('0'+rest/scale))
		rest %= scale
	}
	return b
}
