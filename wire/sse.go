package wire

import "bytes"

const byteOrderMark = "\xef\xbb\xbf"

// EventScanner cuts the decoded bytes of an event stream (WHATWG HTML section
// 9.2) into blocks, each up to and including the blank line that dispatches
// it. Every byte belongs to exactly one block, and blocks come in order, so
// that a relay can pass them on, hold them back or drop them.
//
// Lines end in LF, CRLF or CR. A block whose blank line is a CR at the end of
// a read is complete there and then, since no further byte need come; an LF
// that follows is a block of its own, as are further blank lines and a byte
// order mark at offset 0. Such empty blocks classify as comments.
//
// The zero value stands at the start of a stream. A scanner belongs to one
// goroutine and allocates nothing: an unfinished block is kept in a pooled
// buffer, which Release gives back.
type EventScanner struct {
	side    Abridger // the unfinished block, or the one just returned
	pending int      // bytes of the unfinished block
	inLine  bool     // within a line that is not empty
	afterCR bool     // the last byte was a CR: an LF belongs to it
	spent   bool     // side holds a block that was returned
	bom     uint8    // bytes of a byte order mark seen; 3 when that is decided
}

// Next consumes b[:n], all of b if no block ends in it. With complete, event
// is one whole block: b's own bytes if it lies wholly in b, else a copy that
// is valid until the next call. A block above AbridgeLimit comes as its first
// and last AbridgeEnd bytes, joined, with abbreviated set.
func (s *EventScanner) Next(b []byte) (n int, event []byte, complete, abbreviated bool) {
	if s.spent {
		s.side.Release()
		s.spent = false
	}
	i := 0
	if s.afterCR && len(b) > 0 {
		s.afterCR = false
		if b[0] == '\n' {
			if s.pending == 0 {
				return 1, b[:1], true, false
			}
			i = 1
		}
	}
	if s.bom < 3 {
		if i = s.mark(b); s.bom == 3 && i == 3-s.pending {
			return s.finish(b, i)
		}
	}
	for i < len(b) {
		if !s.inLine && (b[i] == '\n' || b[i] == '\r') {
			return s.finish(b, s.endLine(b, i))
		}
		end := lineEnd(b, i)
		if s.inLine = end < 0; s.inLine {
			break
		}
		i = s.endLine(b, end)
	}
	s.side.Add(b)
	s.pending += len(b)
	return len(b), nil, false, false
}

// mark looks for a byte order mark at the start of the stream and returns how
// many bytes of b belong to it or were taken for it. Fewer than three bytes in
// all are the start of an ordinary line.
func (s *EventScanner) mark(b []byte) (i int) {
	for i < len(b) && s.bom < 3 {
		if b[i] != byteOrderMark[s.bom] {
			s.inLine = s.bom > 0
			s.bom = 3
			return 0
		}
		s.bom++
		i++
	}
	return i
}

// endLine returns the offset behind the line end at b[i].
func (s *EventScanner) endLine(b []byte, i int) int {
	if b[i] == '\n' {
		return i + 1
	}
	switch {
	case i+1 == len(b):
		s.afterCR = true
	case b[i+1] == '\n':
		return i + 2
	}
	return i + 1
}

func (s *EventScanner) finish(b []byte, n int) (int, []byte, bool, bool) {
	if s.pending == 0 && n <= AbridgeLimit {
		return n, b[:n], true, false
	}
	s.side.Add(b[:n])
	s.pending, s.inLine, s.spent = 0, false, true
	event, abbreviated := s.side.Bytes()
	return n, event, true, abbreviated
}

// lineEnd returns the offset of the first LF or CR at or behind i, or -1. It
// looks in windows that grow, so that a buffer full of short lines of either
// kind is not searched to its end for the other kind at every line.
func lineEnd(b []byte, i int) int {
	for width := 256; i < len(b); width *= 4 {
		w := b[i:min(len(b), i+width)]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return i + cr
		}
		if lf >= 0 {
			return i + lf
		}
		i += len(w)
	}
	return -1
}

// Pending is the number of bytes of the unfinished block; 0 means that the
// stream stands between two events, where another may be put in.
func (s *EventScanner) Pending() int { return s.pending }

// Unfinished returns the bytes of the unfinished block (its ends only, if it
// is above AbridgeLimit), valid until the next call.
func (s *EventScanner) Unfinished() (b []byte, abbreviated bool) {
	if s.spent {
		return nil, false
	}
	return s.side.Bytes()
}

// Release gives the side buffer back and returns to the start of a stream.
func (s *EventScanner) Release() {
	s.side.Release()
	*s = EventScanner{}
}
