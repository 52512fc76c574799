package wire

import (
	"bytes"
	"math"
	"strconv"
)

// Span is a half-open range of bytes in a body, quotes and brackets
// included. The zero Span means that there is nothing.
type Span struct{ Start, End int }

// Empty reports whether there is nothing.
func (s Span) Empty() bool { return s.End == 0 }

// Of returns the bytes of the span: an alias into body, nil when empty.
func (s Span) Of(body []byte) []byte {
	if s.Empty() {
		return nil
	}
	return body[s.Start:s.End]
}

// Flag is a boolean member that may be absent.
type Flag uint8

// The values of a Flag. FlagAbsent also stands for null and for values that
// the engine will refuse.
const (
	FlagAbsent Flag = iota
	FlagFalse
	FlagTrue
)

// isNull reports whether a raw value is the word null.
func isNull(raw []byte) bool { return len(raw) == 4 && raw[0] == 'n' }

// readBool reads a raw JSON value as pydantic 2 reads a bool in lax mode,
// which is how vLLM declares its flags: the words true and false, the
// numbers 0 and 1, and a few strings in any case.
func readBool(raw, scratch []byte) Flag {
	if len(raw) == 0 {
		return FlagAbsent
	}
	switch raw[0] {
	case 't':
		return FlagTrue
	case 'f':
		return FlagFalse
	case '"':
		return readBoolText(raw[1:len(raw)-1], scratch)
	}
	if v, ok := readNumber(raw); ok && (v == 0 || v == 1) {
		return FlagFalse + Flag(v)
	}
	return FlagAbsent
}

// readBoolText compares as Python's lower() does for these words; a longer
// text cannot be one of them.
func readBoolText(text, scratch []byte) Flag {
	const longest = len(`\u0066`) * len("false")
	if len(text) > longest {
		return FlagAbsent
	}
	if bytes.IndexByte(text, '\\') >= 0 {
		text = appendUnescaped(scratch, text)
	}
	var low [longest]byte
	n := copy(low[:], text)
	for i, c := range low[:n] {
		if c-'A' < 26 {
			low[i] = c | 0x20
		}
	}
	switch string(low[:n]) {
	case "1", "true", "t", "on", "yes", "y":
		return FlagTrue
	case "0", "false", "f", "off", "no", "n":
		return FlagFalse
	}
	return FlagAbsent
}

// readNumber reads a raw JSON number; ok is false for every other value and
// for what Python reads as infinite. A short whole number allocates nothing.
func readNumber(raw []byte) (v float64, ok bool) {
	if len(raw) == 0 || raw[0] != '-' && !isDigit(raw[0]) {
		return 0, false
	}
	if len(raw) <= maxExactDigits && isWhole(raw) {
		n := 0
		for _, c := range raw {
			n = n*10 + int(c-'0')
		}
		return float64(n), true
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	return v, err == nil
}

// maxExactDigits is how many decimal digits any float64 holds exactly.
const maxExactDigits = 15

// isWhole reports whether a raw number is digits alone.
func isWhole(raw []byte) bool {
	for _, c := range raw {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// readCount reads a raw value as a positive whole number, in whatever form
// (256, 256.0, 2.56e2). Strings are not taken for numbers. What exceeds
// 2^31-1 is cut to it, so that sums of a few cannot overflow.
func readCount(raw []byte) (n int64, ok bool) {
	if len(raw) > maxExactDigits && isWhole(raw) {
		return math.MaxInt32, true
	}
	v, ok := readNumber(raw)
	if !ok || v < 1 || v != math.Trunc(v) {
		return 0, false
	}
	return int64(min(v, math.MaxInt32)), true
}
