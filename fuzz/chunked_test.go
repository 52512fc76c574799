package fuzz

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"

	"ramjet/wire"
)

const (
	httpText  = `[\t\x20-\x7e\x80-\x{ff}]`
	httpToken = `[!#$%&'*+\-.^_` + "`" + `|~0-9A-Za-z]`
)

var (
	sizeLine     = regexp.MustCompile(`^([0-9A-Fa-f]{1,16})((?:;` + httpText + `*)?)\r\n`)
	sizePart     = regexp.MustCompile(`^([0-9A-Fa-f]{0,16}|([0-9A-Fa-f]{1,16})((?:;` + httpText + `*)?)\r?)$`)
	trailerLine  = regexp.MustCompile(`^` + httpToken + `+:` + httpText + `*\r\n`)
	trailerPart  = regexp.MustCompile(`^(` + httpToken + `*|` + httpToken + `+:` + httpText + `*\r?|\r)$`)
	greatestSize = new(big.Int).Lsh(big.NewInt(1), 62)
)

type chunkedResult struct {
	data     string
	done     bool
	bad      bool
	trailers bool
	rest     string // behind the end
}

// twinChunked decodes a body by regular expressions over the grammar of RFC
// 9112 section 7.1, with the bounds that wire states.
func twinChunked(raw []byte) (r chunkedResult) {
	text := latin(raw)
	data := []rune{}
	finish := func(bad bool) chunkedResult {
		b := make([]byte, len(data))
		for i, c := range data {
			b[i] = byte(c)
		}
		r.data, r.bad = string(b), bad
		return r
	}
	for {
		m := sizeLine.FindStringSubmatch(text)
		if m == nil {
			p := sizePart.FindStringSubmatch(text)
			if p == nil {
				return finish(true)
			}
			digits := strings.TrimRight(p[1], "\r")
			digits, ext, _ := strings.Cut(digits, ";")
			return finish(tooBig(digits) || len([]rune(ext)) > 4096)
		}
		if tooBig(m[1]) || len([]rune(m[2])) > 4097 {
			return finish(true)
		}
		size, _ := new(big.Int).SetString(m[1], 16)
		text = text[len(m[0]):]
		if size.Sign() == 0 {
			break
		}
		body := []rune(text)
		if size.Cmp(big.NewInt(int64(len(body)))) >= 0 {
			data = append(data, body...)
			return finish(false)
		}
		n := int(size.Int64())
		data = append(data, body[:n]...)
		text = string(body[n:])
		if !strings.HasPrefix(text, "\r\n") {
			return finish(text != "\r")
		}
		text = text[2:]
	}
	section := 0
	for !strings.HasPrefix(text, "\r\n") {
		line := trailerLine.FindString(text)
		whole := line != ""
		if !whole {
			line = text
			if !trailerPart.MatchString(text) {
				return finish(true)
			}
		}
		r.trailers = r.trailers || line != "" && line != "\r"
		if section += len([]rune(line)); section > 16384 || !whole {
			return finish(section > 16384)
		}
		text = text[len(line):]
	}
	if section+1 > 16384 {
		return finish(true)
	}
	r.done = true
	r.rest = text[2:]
	return finish(false)
}

func tooBig(digits string) bool {
	size, ok := new(big.Int).SetString("0"+digits, 16)
	return !ok || size.Cmp(greatestSize) > 0
}

// scanChunked runs the scanner over the body in pieces and checks on the way
// what holds for each run.
func scanChunked(t *testing.T, raw, plan []byte) (r chunkedResult) {
	t.Helper()
	var s wire.ChunkScanner
	var data, seen, end []byte
	consumed := 0
	cuts(raw, plan, func(piece []byte) bool {
		for len(piece) > 0 && !s.Done() {
			left := s.Remaining()
			n, isData, err := s.Next(piece)
			seen = append(seen, piece[:n]...)
			consumed += n
			if err != nil {
				var framing *wire.FramingError
				if !errors.As(err, &framing) || isData {
					t.Fatalf("%#v", err)
				}
				r.bad = true
				return false
			}
			if n == 0 || isData != (left > 0) || isData && s.Remaining() != left-int64(n) {
				t.Fatalf("n = %d, data %v, %d left before, %d after", n, isData, left, s.Remaining())
			}
			if isData {
				data = append(data, piece[:n]...)
			}
			if s.InLastChunk() {
				end = append(end, piece[:n]...)
			} else {
				end = end[:0]
			}
			checkCompletion(t, &s, seen, data)
			piece = piece[n:]
		}
		return !s.Done()
	})
	r.data, r.done, r.trailers = string(data), s.Done(), s.HasTrailers()
	if r.done {
		r.rest = latin(raw[consumed:])
		if end[0] != '0' {
			t.Fatalf("the end framing is said to be %q", end)
		}
	}
	return r
}

// checkCompletion: where a completion is offered, a chunk put behind it must
// read as just that.
func checkCompletion(t *testing.T, s *wire.ChunkScanner, seen, data []byte) {
	t.Helper()
	suffix, ok := s.Completion()
	if !ok || len(seen) > 2000 {
		return
	}
	whole := append(append(bytes.Clone(seen), suffix...), "2\r\nXY\r\n0\r\n\r\n"...)
	if r := twinChunked(whole); !r.done || r.data != string(data)+"XY" {
		t.Fatalf("%q + %q does not continue: %+v", seen, suffix, r)
	}
}

func FuzzChunked(f *testing.F) {
	for _, s := range []string{
		"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n", "2\r\n\xe2\x82\r\n1\r\n\xac\r\n5;x=y\r\n12345\r\n0\r\n\r\nHTTP/1.1 200 OK", "A;n=\"v\"\r\n0123456789\r\n00;e\r\nT: v\r\nU:\r\n\r\n",
		"3\nabc\n0\n\n", "3;a\nb\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "+3\r\nabc\r\n", "3 \r\nabc\r\n", "\r\n", "3\r\nabcd", "0\r\n\n", "0\r\nA\r\n\r\n", "0\r\nA: b\r\n c\r\n\r\n",
		"ffffffffffffffff\r\n", "4000000000000000\r\nx", "00000000000000003\r\nabc", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", "0a\r\n0123456789\r\n0\r\n\r\n",
	} {
		for _, plan := range []string{"", "\x01", "\x02\x01", "\x05"} {
			f.Add([]byte(s), []byte(plan))
		}
	}
	f.Fuzz(func(t *testing.T, raw, plan []byte) {
		if len(raw) > 1<<16 {
			return
		}
		got, want := scanChunked(t, raw, plan), twinChunked(raw)
		if got.bad {
			got.done, got.trailers, want.trailers = false, false, false
		}
		if got != want {
			t.Fatalf("scanner %+v\ntwin    %+v", got, want)
		}
		// Whatever passes here must read the same in the standard library.
		if got.done && !got.trailers && len(raw) < 4096 {
			data, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(raw)))
			if err == nil && string(data) != got.data {
				t.Fatalf("scanner %q, standard library %q", got.data, data)
			}
		}
	})
}
