package telemetry

import (
	"bytes"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Colours of a terminal, by what they mean here.
const (
	colourOff    = "\x1b[0m"
	colourDim    = "\x1b[2m"
	colourGood   = "\x1b[32m"
	colourWarn   = "\x1b[33m"
	colourBad    = "\x1b[31m"
	colourAccent = "\x1b[36m"
)

// consoleFormat decides between the two forms.
func consoleFormat(w io.Writer, format string) bool {
	switch format {
	case FormatConsole:
		return true
	case FormatJSON:
		return false
	}
	if l, ok := w.(*LogWriter); ok {
		w = l.w
	}
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// writeConsole writes the record's fields in the order in which a person reads
// them: when, how it ended, what was asked, who answered, how long it took.
func (a *AccessLog) writeConsole(r *AccessRecord) {
	p := lineBuffers.Get().(*[]byte)
	b := (*p)[:0]
	b = append(b, colourDim...)
	b = r.Time.AppendFormat(b, time.TimeOnly+".000")
	b = append(b, colourOff+" "...)
	b = append(b, statusColour(r.Status, r.End)...)
	b = appendNumber(b, int64(r.Status))
	b = append(b, ' ')
	b = append(b, r.End.String()...)
	b = append(b, colourOff+" "...)
	b = appendPlain(b, r.Method, maxText)
	b = append(b, ' ')
	b = appendPlain(b, r.Path, maxText)
	b = consoleWord(b, "engine", r.Engine)
	b = consoleWord(b, "reason", r.Reason.String())
	b = consoleText(b, "model", r.Model)
	b = consoleWord(b, "keys", r.Keys.String())
	b = consoleNumber(b, "prompt_tokens", int64(r.PromptTokens))
	b = consoleNumber(b, "match_tokens", int64(r.MatchTokens))
	b = consoleNumber(b, "cached_tokens", int64(r.CachedTokens))
	b = consoleNumber(b, "output_tokens", int64(r.OutputTokens))
	b = consoleSeconds(b, "route_s", r.Route)
	b = consoleSeconds(b, "queue_s", r.Queue)
	b = consoleSeconds(b, "ttft_s", r.TTFT)
	b = consoleSeconds(b, "duration_s", r.Duration)
	b = consoleNumber(b, "bytes_in", r.BytesIn)
	b = consoleNumber(b, "bytes_out", r.BytesOut)
	b = consoleNumber(b, "attempts", int64(r.Attempts))
	b = consoleText(b, "session", r.Session)
	b = consoleText(b, "id", r.ID)
	b = consoleError(b, r.Error)
	b = append(b, '\n')
	_, _ = a.w.Write(b)
	*p = b
	lineBuffers.Put(p)
}

func statusColour(status int, end End) string {
	switch {
	case end == EndDone && status < 400:
		return colourGood
	case status == 499, status >= 400 && status < 500:
		return colourWarn
	}
	return colourBad
}

func consoleKey(b []byte, key string) []byte {
	b = append(b, " "+colourAccent...)
	b = append(b, key...)
	return append(b, "="+colourOff...)
}

func consoleWord(b []byte, key, v string) []byte {
	if v == "" {
		return b
	}
	return append(consoleKey(b, key), v...)
}

func consoleText(b []byte, key string, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return appendPlain(consoleKey(b, key), v, maxText)
}

func consoleError(b []byte, v string) []byte {
	if v == "" {
		return b
	}
	return appendQuoted(consoleKey(b, "error"), []byte(cut(v, maxText)))
}

func consoleNumber(b []byte, key string, v int64) []byte {
	return appendNumber(consoleKey(b, key), v)
}

func consoleSeconds(b []byte, key string, v float64) []byte {
	b = consoleKey(b, key)
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, '-')
	}
	return strconv.AppendFloat(b, math.Round(v*1e6)/1e6, 'f', -1, 64)
}

// appendNumber writes an unknown number as a dash.
func appendNumber(b []byte, v int64) []byte {
	if v < 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, v, 10)
}

// appendPlain writes a client's text, cut to a limit, as it is if every
// character of it is harmless on a terminal and holds no blank, else quoted and
// escaped.
func appendPlain(b, v []byte, limit int) []byte {
	if len(v) == 0 {
		return append(b, '-')
	}
	v = cutBytes(v, limit)
	if bytes.ContainsAny(v, ` "\`) || !harmless(v) {
		return appendQuoted(b, v)
	}
	return append(b, v...)
}

// harmless reports whether v is UTF-8 without a character that could end a
// line, move a cursor or reorder text.
func harmless(v []byte) bool {
	for i := 0; i < len(v); {
		r, n := utf8.DecodeRune(v[i:])
		if r == utf8.RuneError || unsafeRune(r) {
			return false
		}
		i += n
	}
	return true
}

func appendQuoted(b, v []byte) []byte {
	b = append(b, '"')
	for i := 0; i < len(v); {
		r, n := utf8.DecodeRune(v[i:])
		b = appendEscaped(b, r)
		i += n
	}
	return append(b, '"')
}

func appendEscaped(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case unsafeRune(r) && r <= 0xffff:
		return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	case unsafeRune(r):
		return append(b, '?')
	}
	return utf8.AppendRune(b, r)
}

// cutBytes returns at most n bytes of v without splitting a character.
func cutBytes(v []byte, n int) []byte {
	if len(v) <= n {
		return v
	}
	for n > 0 && !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n]
}
