package telemetry

import (
	"io"
	"math"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
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
	Keys    Keys

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
	console bool
}

// NewAccessLog returns an access log on w; format is json, console, or auto
// for a choice by whether w is a terminal. If w is a *LogWriter the caller
// closes that one, else Close is due.
func NewAccessLog(w io.Writer, format string) *AccessLog {
	lw := NewLogWriter(w)
	return &AccessLog{w: lw, console: consoleFormat(lw.w, format)}
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

// writeJSON builds the line by hand: with a typed event of zerolog the line
// alone was a tenth of a short request's CPU, since it is two dozen fields of
// which most are numbers and fixed words.
func (a *AccessLog) writeJSON(r *AccessRecord) {
	line, _ := linePool.Get().(*[]byte)
	if line == nil {
		line = new([]byte)
	}
	b := append((*line)[:0], `{"time":"`...)
	b = append(appendTime(b, r.Time), '"')
	b = text(b, `,"id":`, r.ID)
	b = name(b, `,"end":`, r.End.String())
	b = number(b, `,"status":`, int64(r.Status))
	b = text(b, `,"method":`, r.Method)
	b = text(b, `,"path":`, r.Path)
	b = text(b, `,"model":`, r.Model)
	b = name(b, `,"engine":`, r.Engine)
	b = name(b, `,"reason":`, r.Reason.String())
	b = name(b, `,"keys":`, r.Keys.String())
	b = number(b, `,"prompt_tokens":`, int64(r.PromptTokens))
	b = number(b, `,"match_tokens":`, int64(r.MatchTokens))
	b = number(b, `,"cached_tokens":`, int64(r.CachedTokens))
	b = number(b, `,"output_tokens":`, int64(r.OutputTokens))
	b = seconds(b, `,"route_s":`, r.Route)
	b = seconds(b, `,"queue_s":`, r.Queue)
	b = seconds(b, `,"ttft_s":`, r.TTFT)
	b = seconds(b, `,"duration_s":`, r.Duration)
	b = number(b, `,"bytes_in":`, r.BytesIn)
	b = number(b, `,"bytes_out":`, r.BytesOut)
	b = number(b, `,"attempts":`, int64(r.Attempts))
	b = text(b, `,"session":`, r.Session)
	b = append(b, `,"engines":[`...)
	for i, e := range r.Engines {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuotedString(b, e)
	}
	b = append(b, ']')
	b = name(b, `,"error":`, r.Error)
	b = append(b, "}\n"...)
	_, _ = a.w.Write(b)
	if *line = b; cap(b) <= maxPooledLine {
		linePool.Put(line)
	}
}

// linePool holds *[]byte that lines are built in. It is process-wide because
// memory is; a line that grew beyond maxPooledLine is left to the collector.
var linePool sync.Pool

const maxPooledLine = 8 << 10

// appendTime appends t as RFC 3339 with milliseconds in UTC. AppendFormat knows
// RFC 3339 by its name, and reads any other layout anew each time, which takes
// several times as long.
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// text writes a text from outside, cut and escaped: a key first, then the
// value, null if it is empty.
func text(b []byte, key string, v []byte) []byte { return textOf(b, key, v, maxText) }

// textOf is text with a limit of its own.
func textOf(b []byte, key string, v []byte, limit int) []byte {
	b = append(b, key...)
	if len(v) == 0 {
		return append(b, "null"...)
	}
	v = cutBytes(v, limit)
	if !plainASCII(v) {
		return appendQuotedBytes(b, v)
	}
	b = append(b, '"')
	b = append(b, v...)
	return append(b, '"')
}

// plainASCII reports whether v stands for itself inside a JSON string.
func plainASCII(v []byte) bool {
	for _, c := range v {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// name writes a text of our own.
func name(b []byte, key, v string) []byte {
	b = append(b, key...)
	if v == "" {
		return append(b, "null"...)
	}
	return appendQuotedString(b, v)
}

func appendQuotedString(b []byte, v string) []byte {
	b = append(b, '"')
	for i, n := 0, min(len(v), maxText); i < n; {
		r, size := utf8.DecodeRuneInString(v[i:n])
		b = appendEscaped(b, r)
		i += size
	}
	return append(b, '"')
}

func number(b []byte, key string, v int64) []byte {
	b = append(b, key...)
	if v < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, v, 10)
}

// seconds writes a time with microseconds: finer digits are noise and cost
// bytes in every line.
func seconds(b []byte, key string, v float64) []byte {
	b = append(b, key...)
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return appendMicros(b, int64(math.Round(v*1e6)))
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
