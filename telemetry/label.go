package telemetry

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLabel bounds a label's value in bytes: names come from configuration and
// from engines, and a scrape repeats each in every series.
const maxLabel = 256

// label returns name="value" with the value escaped for the Prometheus text
// format, which knows three escapes only (backslash, quote, line feed). Other
// control characters and the Unicode line separators are legal there, but
// tools that split a page at any line break lose it at U+2028, so they are
// spelled out as \u2028 (an escaped backslash and four digits). Invalid UTF-8
// becomes U+FFFD, since the format demands UTF-8.
func label(name, value string) string {
	var b strings.Builder
	b.Grow(len(name) + len(value) + 3)
	b.WriteString(name)
	b.WriteString(`="`)
	for _, r := range cut(value, maxLabel) {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '"':
			b.WriteString(`\"`)
		case r == '\n':
			b.WriteString(`\n`)
		case unsafeRune(r):
			b.WriteString(`\\u`)
			hex := strconv.FormatInt(int64(r), 16)
			b.WriteString("0000"[min(len(hex), 4):])
			b.WriteString(hex)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// series returns family{labels}, the name under which a handle is registered.
func series(family string, labels ...string) string {
	return family + "{" + strings.Join(labels, ",") + "}"
}

// unsafeRune reports whether r could end a line, move a cursor or reorder
// text: controls, line and paragraph separators, and the bidirectional and
// other format characters.
func unsafeRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r < 0x20 || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// cut returns at most n bytes of s without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
