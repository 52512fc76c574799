package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// answerHead is the part of a response head that decides where the body ends.
type answerHead struct {
	status  int
	chunked bool
	length  int // -1 when the head does not say
	closing bool
}

// parseAnswerHead reads a response head from the front of b and says how many bytes it used; 0 means that the head is
// not complete.
func parseAnswerHead(b []byte) (head answerHead, used int, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return head, 0, nil
	}
	line, rest, _ := bytes.Cut(b[:end], []byte("\r\n"))
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || len(line) < 12 {
		return head, 0, fmt.Errorf("cannot read the answer: status line %.60q", line)
	}
	head.length = -1
	if head.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return head, 0, fmt.Errorf("cannot read the answer: status line %.60q", line)
	}
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(field, []byte(":"))
		if !ok {
			return head, 0, fmt.Errorf("cannot read the answer: header %.60q", field)
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if head.length, err = strconv.Atoi(string(value)); err != nil || head.length < 0 {
				return head, 0, fmt.Errorf("cannot read the answer: content-length %.60q", value)
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			head.chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("connection")):
			head.closing = bytes.EqualFold(value, []byte("close"))
		}
	}
	return head, end + 4, nil
}

var errChunk = errors.New("cannot read the answer: broken chunk framing")

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExtension
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailerStart
	chunkTrailer
	chunkTrailerLF
	chunkEndLF
	chunkDone
)

// chunkDecoder takes the framing off a chunked body (RFC 9112 section 7.1), in pieces of any size. The zero value is at
// the start of a body.
type chunkDecoder struct {
	state  chunkState
	left   int
	digits int
}

// decode appends the payload in src to dst and says how many bytes of src it used: fewer than all only when the body
// has ended.
func (d *chunkDecoder) decode(dst, src []byte) (payload []byte, used int, err error) {
	i := 0
	for i < len(src) && d.state != chunkDone {
		if d.state == chunkData {
			n := min(d.left, len(src)-i)
			dst = append(dst, src[i:i+n]...)
			i += n
			if d.left -= n; d.left == 0 {
				d.state = chunkDataCR
			}
			continue
		}
		if err := d.step(src[i]); err != nil {
			return dst, i, err
		}
		i++
	}
	return dst, i, nil
}

// ended says whether the last chunk and its trailer have been read.
func (d *chunkDecoder) ended() bool { return d.state == chunkDone }

// step takes one byte of framing.
func (d *chunkDecoder) step(c byte) error {
	switch d.state {
	case chunkSize:
		return d.size(c)
	case chunkExtension:
		if c == '\r' {
			d.state = chunkSizeLF
		}
		return nil
	case chunkSizeLF:
		if d.left > 0 {
			return d.expect(c, '\n', chunkData)
		}
		return d.expect(c, '\n', chunkTrailerStart)
	case chunkDataCR:
		return d.expect(c, '\r', chunkDataLF)
	case chunkDataLF:
		return d.expect(c, '\n', chunkSize)
	case chunkTrailerStart:
		if c == '\r' {
			d.state = chunkEndLF
		} else {
			d.state = chunkTrailer
		}
		return nil
	case chunkTrailer:
		if c == '\r' {
			d.state = chunkTrailerLF
		}
		return nil
	case chunkTrailerLF:
		return d.expect(c, '\n', chunkTrailerStart)
	case chunkEndLF:
		return d.expect(c, '\n', chunkDone)
	case chunkData, chunkDone:
	}
	panic("BUG: chunkDecoder.step in a state without framing")
}

func (d *chunkDecoder) expect(c, want byte, next chunkState) error {
	if c != want {
		return errChunk
	}
	d.state, d.digits = next, 0
	return nil
}

func (d *chunkDecoder) size(c byte) error {
	v := -1
	switch {
	case c >= '0' && c <= '9':
		v = int(c - '0')
	case c >= 'a' && c <= 'f':
		v = int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		v = int(c-'A') + 10
	}
	switch {
	case v >= 0:
		if d.digits == 0 {
			d.left = 0
		}
		if d.digits++; d.digits > 7 {
			return errChunk
		}
		d.left = d.left<<4 | v
	case d.digits == 0:
		return errChunk
	case c == '\r':
		d.state = chunkSizeLF
	case c == ';':
		d.state = chunkExtension
	default:
		return errChunk
	}
	return nil
}
