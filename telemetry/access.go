package telemetry

import (
	"io"
	"time"
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
