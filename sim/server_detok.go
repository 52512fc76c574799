package sim

import (
	"bytes"
	"unicode/utf8"

	"ramjet/tokens"
)

// detokenizer turns the tokens of one sequence into text piece by piece. Like
// vLLM it holds back a character that is not whole yet, and as many bytes as
// a stop string might still begin with.
type detokenizer struct {
	bpe      *tokens.BPE
	stops    [][]byte
	keepStop bool
	buf      []byte // decoded text; the part from off on is not handed out
	off      int
}

func newDetokenizer(stops []string, keep bool) *detokenizer {
	d := &detokenizer{bpe: Tokenizer(), keepStop: keep}
	for _, s := range stops {
		if s != "" {
			d.stops = append(d.stops, []byte(s))
		}
	}
	return d
}

// push takes tokens and returns the text that can be shown, and the stop
// string if one came up; the text then ends with it or in front of it. last
// hands out everything. The text is valid until the next call.
func (d *detokenizer) push(ids []uint32, last bool) (text []byte, stop string) {
	d.buf = d.bpe.AppendDecode(d.buf[:copy(d.buf, d.buf[d.off:])], ids, true)
	d.off = 0
	if at, s := d.find(); s != nil {
		if d.keepStop {
			at += len(s)
		}
		d.off = len(d.buf)
		return d.buf[:at], string(s)
	}
	n := len(d.buf)
	if !last {
		for _, s := range d.stops {
			n = min(n, len(d.buf)-len(s)+1)
		}
		n = wholeRunes(d.buf[:max(n, 0)])
	}
	d.off = n
	return d.buf[:n], ""
}

// find returns the earliest stop string in the text that is held back.
func (d *detokenizer) find() (at int, stop []byte) {
	at = -1
	for _, s := range d.stops {
		if i := bytes.Index(d.buf, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}

// wholeRunes is the length of the part of p that does not end inside a character.
func wholeRunes(p []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(p)); back++ {
		c := p[len(p)-back]
		if c < utf8.RuneSelf {
			break
		}
		if utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-back:]) {
				return len(p) - back
			}
			break
		}
	}
	return len(p)
}
