package telemetry

import (
	"math"
	"strconv"
	"sync"
	"time"
)

// writeJSON builds the line by hand: with a typed event of zerolog the line
// alone was a tenth of a short request's CPU, since it is two dozen fields of
// which most are numbers and fixed words.
func (a *AccessLog) writeJSON(r *AccessRecord) {
	l, _ := linePool.Get().(*line)
	if l == nil {
		l = new(line)
	}
	b := append(l.b[:0], `{"time":"`...)
	b = append(l.stamp(b, r.Time), '"')
	b = text(b, `,"id":"`, r.ID)
	b = fixed(b, `,"end":"`, r.End.String())
	b = number(b, `,"status":`, int64(r.Status))
	b = text(b, `,"method":"`, r.Method)
	b = text(b, `,"path":"`, r.Path)
	b = text(b, `,"model":"`, r.Model)
	b = text(b, `,"engine":"`, r.Engine)
	b = fixed(b, `,"reason":"`, r.Reason.String())
	b = fixed(b, `,"keys":"`, r.Keys.String())
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
	b = text(b, `,"session":"`, r.Session)
	b = append(b, `,"engines":[`...)
	for i, e := range r.Engines {
		if i > 0 {
			b = append(b, ',')
		}
		b = text(b, `"`, e)
	}
	b = text(b, `],"error":"`, r.Error)
	b = append(b, "}\n"...)
	_, _ = a.w.Write(b)
	if l.b = b; cap(b) <= maxPooledLine {
		linePool.Put(l)
	}
}

// line is memory to build lines in.
type line struct {
	b      []byte
	second int64  // since 1970, of clock
	clock  []byte // that second as text, without Z; empty at first
}

// stamp is appendTime, which most lines share but for the milliseconds.
func (l *line) stamp(b []byte, t time.Time) []byte {
	if second := t.Unix(); second != l.second || len(l.clock) == 0 {
		l.second, l.clock = second, appendSecond(l.clock[:0], t)
	}
	return appendFraction(append(b, l.clock...), t)
}

// linePool holds *line. It is process-wide because memory is; a line that grew
// beyond maxPooledLine is left to the collector.
var linePool sync.Pool

const maxPooledLine = 8 << 10

// appendTime appends t as RFC 3339 with milliseconds in UTC.
func appendTime(b []byte, t time.Time) []byte { return appendFraction(appendSecond(b, t), t) }

// appendSecond appends t without fraction and zone. AppendFormat knows RFC 3339
// by its name, and reads any other layout anew each time, which takes several
// times as long.
func appendSecond(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return b[:len(b)-1]
}

func appendFraction(b []byte, t time.Time) []byte {
	ms := uint(t.Nanosecond()) / 1e6 //nolint:gosec // 0 to 999,999,999
	return append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// text writes a text from outside, cut and escaped: a key and the opening quote
// first, then the value, null if it is empty.
func text[T string | []byte](b []byte, key string, v T) []byte { return textOf(b, key, v, maxText) }

// textOf is text with a limit of its own.
func textOf[T string | []byte](b []byte, key string, v T, limit int) []byte {
	b = append(b, key...)
	if len(v) == 0 {
		return append(b[:len(b)-1], "null"...)
	}
	if !plainASCII(v) || len(v) > limit {
		return appendQuoted(b[:len(b)-1], cutBytes([]byte(v), limit))
	}
	b = append(b, v...)
	return append(b, '"')
}

// fixed is text for one of our own words, which stand for themselves.
func fixed(b []byte, key, v string) []byte {
	b = append(b, key...)
	if v == "" {
		return append(b[:len(b)-1], "null"...)
	}
	b = append(b, v...)
	return append(b, '"')
}

// plainASCII reports whether v stands for itself inside a JSON string.
func plainASCII[T string | []byte](v T) bool {
	for i := range len(v) {
		if !plainBytes[v[i]] {
			return false
		}
	}
	return true
}

var plainBytes = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

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
	digits := [...]byte{'.', 0, 0, 0, 0, 0, 0}
	for i := len(digits) - 1; i > 0; i-- {
		digits[i] = byte('0' + rest%10)
		rest /= 10
	}
	n := len(digits)
	for digits[n-1] == '0' {
		n--
	}
	return append(b, digits[:n]...)
}
