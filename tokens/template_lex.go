package tokens

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pieceKind says what a piece of a template is.
type pieceKind uint8

const (
	pieceText pieceKind = iota
	pieceOutput
	pieceStatement
)

// piece is a run of literal text (trimmed already), the inside of {{ }} or the inside of {% %}. Comments leave none.
type piece struct {
	kind   pieceKind
	text   string
	tokens []lexeme
	line   int
}

// lexemeKind says what a token of an expression is.
type lexemeKind uint8

const (
	lexName lexemeKind = iota
	lexNumber
	lexString // text is the decoded string
	lexOp
)

type lexeme struct {
	kind lexemeKind
	text string
}

func (l lexeme) op(text string) bool   { return l.kind == lexOp && l.text == text }
func (l lexeme) name(text string) bool { return l.kind == lexName && l.text == text }

// templateLexer cuts a template as jinja2's lexer does with trim_blocks and lstrip_blocks, which is how transformers
// sets it up (transformers 5, utils/chat_template_utils.py). The library's own trimming looks past neighbouring tags
// for text to trim, so it is given no raw text at all.
type templateLexer struct {
	src    string
	at     int
	pieces []piece
	// fresh says that what was read last ended a line, so that blanks before a block tag are indentation.
	fresh bool
}

// lexTemplate cuts src into pieces. The error names the line.
func lexTemplate(src string) ([]piece, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // keep_trailing_newline is off
	l := templateLexer{src: src, fresh: true}
	for l.at < len(src) {
		if err := l.next(); err != nil {
			return nil, fmt.Errorf("cannot read line %d of the template: %w", l.line(l.at), err)
		}
	}
	return l.pieces, nil
}

func (l *templateLexer) line(at int) int {
	return 1 + strings.Count(l.src[:min(at, len(l.src))], "\n")
}

// next reads the text up to a tag and the tag.
func (l *templateLexer) next() error {
	start, open := l.at, len(l.src)
	for i := start; i+1 < len(l.src); i++ {
		if l.src[i] == '{' && (l.src[i+1] == '{' || l.src[i+1] == '%' || l.src[i+1] == '#') {
			open = i
			break
		}
	}
	text := l.src[start:open]
	if open == len(l.src) {
		l.text(text, start)
		l.at = open
		return nil
	}
	kind, sign := l.src[open+1], byte(0)
	inside := open + 2
	if inside < len(l.src) && (l.src[inside] == '-' || l.src[inside] == '+') {
		sign = l.src[inside]
		inside++
	}
	l.text(l.trimLeft(text, kind, sign), start)
	l.at = inside
	switch kind {
	case '#':
		return l.comment()
	case '{':
		return l.tag(pieceOutput, "}}", open)
	}
	return l.tag(pieceStatement, "%}", open)
}

func (l *templateLexer) text(text string, at int) {
	if text != "" {
		l.pieces = append(l.pieces, piece{kind: pieceText, text: text, line: l.line(at)})
	}
}

// trimLeft trims the text before a tag.
func (l *templateLexer) trimLeft(text string, kind, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, pySpace)
	}
	if sign == '+' || kind == '{' {
		return text
	}
	from := strings.LastIndexByte(text, '\n') + 1
	if (from > 0 || l.fresh) && strings.TrimLeftFunc(text[from:], pySpace) == "" {
		return text[:from]
	}
	return text
}

// closed steps behind a tag's end at l.at; newline says that one line end behind it goes.
func (l *templateLexer) closed(sign byte, newline bool) {
	from := l.at
	if sign == '-' {
		rest := strings.TrimLeftFunc(l.src[l.at:], pySpace)
		l.at = len(l.src) - len(rest)
	} else if newline && sign != '+' && l.at < len(l.src) && l.src[l.at] == '\n' {
		l.at++
	}
	l.fresh = l.at > from && l.src[l.at-1] == '\n'
}

func (l *templateLexer) comment() error {
	end := strings.Index(l.src[l.at:], "#}")
	if end < 0 {
		return fmt.Errorf("a comment has no end")
	}
	sign := byte(0)
	if end > 0 {
		sign = l.src[l.at+end-1]
	}
	l.at += end + 2
	l.closed(sign, true)
	return nil
}

// tag reads the tokens of {{ }} or {% %}.
func (l *templateLexer) tag(kind pieceKind, end string, open int) error {
	p := piece{kind: kind, line: l.line(open)}
	depth := 0
	for {
		for l.at < len(l.src) && pySpace(rune(l.src[l.at])) {
			l.at++
		}
		if l.at >= len(l.src) {
			return fmt.Errorf("a tag has no end")
		}
		rest := l.src[l.at:]
		if depth == 0 {
			sign := byte(0)
			if len(rest) > 2 && (rest[0] == '-' || rest[0] == '+') && rest[1:3] == end {
				sign = rest[0]
				rest = rest[1:]
			}
			if strings.HasPrefix(rest, end) {
				l.at = len(l.src) - len(rest) + 2
				l.closed(sign, kind == pieceStatement)
				break
			}
			rest = l.src[l.at:]
		}
		t, n, err := lexToken(rest)
		if err != nil {
			return err
		}
		if t.kind == lexOp {
			switch t.text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
		}
		p.tokens = append(p.tokens, t)
		l.at += n
	}
	if kind == pieceStatement && len(p.tokens) == 1 && p.tokens[0].name("raw") {
		return l.raw()
	}
	l.pieces = append(l.pieces, p)
	return nil
}

// raw takes the text up to {% endraw %} as it stands.
func (l *templateLexer) raw() error {
	start := l.at
	for i := start; i+1 < len(l.src); i++ {
		if l.src[i] != '{' || l.src[i+1] != '%' {
			continue
		}
		end, sign := i+2, byte(0)
		if end < len(l.src) && (l.src[end] == '-' || l.src[end] == '+') {
			sign = l.src[end]
			end++
		}
		rest, found := strings.CutPrefix(strings.TrimLeftFunc(l.src[end:], pySpace), "endraw")
		if !found {
			continue
		}
		rest = strings.TrimLeftFunc(rest, pySpace)
		closing := byte(0)
		if len(rest) > 0 && (rest[0] == '-' || rest[0] == '+') {
			closing = rest[0]
			rest = rest[1:]
		}
		if !strings.HasPrefix(rest, "%}") {
			continue
		}
		l.text(l.trimLeft(l.src[start:i], '%', sign), start)
		l.at = len(l.src) - len(rest) + 2
		l.closed(closing, true)
		return nil
	}
	return fmt.Errorf("a raw block has no end")
}

// lexToken reads one token of an expression and says how many bytes it took.
func lexToken(s string) (lexeme, int, error) {
	c := s[0]
	switch {
	case c == '\'' || c == '"':
		return lexQuoted(s)
	case c >= '0' && c <= '9':
		n := 1
		for n < len(s) && (isWord(s[n]) || s[n] == '.' && n+1 < len(s) && s[n+1] >= '0' && s[n+1] <= '9') {
			n++
		}
		if strings.Trim(s[:n], "0123456789.") != "" {
			return lexeme{}, 0, fmt.Errorf("the number %s is not supported", s[:n])
		}
		return lexeme{lexNumber, s[:n]}, n, nil
	case isWord(c):
		n := 1
		for n < len(s) && isWord(s[n]) {
			n++
		}
		return lexeme{lexName, s[:n]}, n, nil
	}
	for _, two := range [...]string{"**", "//", "==", "!=", "<=", ">="} {
		if strings.HasPrefix(s, two) {
			return lexeme{lexOp, two}, 2, nil
		}
	}
	if strings.IndexByte("+-*/%~<>=()[]{}.,:|", c) < 0 {
		return lexeme{}, 0, fmt.Errorf("the character %q is not supported", c)
	}
	return lexeme{lexOp, s[:1]}, 1, nil
}

func isWord(c byte) bool {
	return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// lexQuoted decodes a string literal as Python's unicode-escape codec does.
func lexQuoted(s string) (lexeme, int, error) {
	var out []byte
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c == s[0] {
			return lexeme{lexString, string(out)}, i + 1, nil
		}
		if c != '\\' || i+1 >= len(s) {
			out = append(out, c)
			continue
		}
		i++
		var n int
		var err error
		if out, n, err = appendEscape(out, s[i:]); err != nil {
			return lexeme{}, 0, err
		}
		i += n - 1
	}
	return lexeme{}, 0, fmt.Errorf("a string has no end")
}

// appendEscape decodes what follows a backslash; n is how many bytes that was.
func appendEscape(out []byte, s string) ([]byte, int, error) {
	if at := strings.IndexByte("ntr\\'\"abfv\n", s[0]); at >= 0 {
		if s[0] == '\n' {
			return out, 1, nil
		}
		return append(out, "\n\t\r\\'\"\a\b\f\v"[at]), 1, nil
	}
	var digits int
	switch s[0] {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case 'N', '0', '1', '2', '3', '4', '5', '6', '7':
		return nil, 0, fmt.Errorf("the escape \\%c is not supported", s[0])
	default:
		return append(out, '\\', s[0]), 1, nil
	}
	if len(s) <= digits {
		return nil, 0, fmt.Errorf("an escape is cut short")
	}
	v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(v)) {
		return nil, 0, fmt.Errorf("the escape \\%s is no character", s[:1+digits])
	}
	return utf8.AppendRune(out, rune(v)), 1 + digits, nil
}
