package rig

import (
	"bytes"
	"fmt"
	"strings"
)

// ChunkEach frames s in chunks of n bytes.
func ChunkEach(s string, n int) string {
	var b strings.Builder
	for len(s) > 0 {
		k := min(n, len(s))
		fmt.Fprint(&b, Chunk(s[:k]))
		s = s[k:]
	}
	return b.String()
}

// Dechunked is what a strict reader makes of the bytes of a chunked body so far
// (RFC 9112 section 7.1). A chunk of which only a part is there counts with
// that part, so that a test sees a token as soon as it arrives.
type Dechunked struct {
	Body  []byte
	read  int  // bytes of raw that belong to this body
	done  bool // the last chunk and the end of the trailer section were seen
	sizes []int
}

// Dechunk decodes raw strictly: hexadecimal sizes, CRLF everywhere, no
// extensions, no trailers that are not fields. An error means that the sender
// broke the framing.
func Dechunk(raw []byte) (d Dechunked, err error) {
	for {
		line, ok, err := crlfLine(raw[d.read:])
		if err != nil || !ok {
			return d, err
		}
		size, err := chunkSize(line)
		if err != nil {
			return d, err
		}
		start := d.read + len(line) + 2
		if size == 0 {
			return d.trailers(raw, start)
		}
		d.sizes = append(d.sizes, size)
		if len(raw) < start+size+2 {
			part := raw[start:min(len(raw), start+size)]
			d.Body = append(d.Body, part...)
			d.read = start + len(part)
			if rest := raw[d.read:]; len(rest) > 0 && rest[0] != '\r' {
				return d, fmt.Errorf("chunk of %d bytes not followed by CRLF", size)
			}
			d.read = len(raw)
			return d, nil
		}
		d.Body = append(d.Body, raw[start:start+size]...)
		d.read = start + size + 2
		if !bytes.Equal(raw[d.read-2:d.read], []byte("\r\n")) {
			return d, fmt.Errorf("chunk of %d bytes not followed by CRLF", size)
		}
	}
}

func (d Dechunked) trailers(raw []byte, at int) (Dechunked, error) {
	for {
		line, ok, err := crlfLine(raw[at:])
		if err != nil || !ok {
			d.read = len(raw)
			return d, err
		}
		at += len(line) + 2
		if len(line) == 0 {
			d.read, d.done = at, true
			return d, nil
		}
		if _, err := parseField(line); err != nil {
			return d, fmt.Errorf("trailer: %w", err)
		}
	}
}

// crlfLine returns the bytes before the first CRLF; ok is false while it is
// still to come.
func crlfLine(b []byte) (line []byte, ok bool, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, false, nil
	}
	if i == 0 || b[i-1] != '\r' {
		return nil, false, fmt.Errorf("line ends without CR: %q", b[:i+1])
	}
	if bytes.IndexByte(b[:i-1], '\r') >= 0 {
		return nil, false, fmt.Errorf("bare CR in a line: %q", b[:i+1])
	}
	return b[:i-1], true, nil
}

func chunkSize(line []byte) (int, error) {
	if len(line) == 0 || len(line) > 8 {
		return 0, fmt.Errorf("chunk size %q", line)
	}
	n := 0
	for _, c := range line {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | int(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | int(c-'a'+10)
		case 'A' <= c && c <= 'F':
			n = n<<4 | int(c-'A'+10)
		default:
			return 0, fmt.Errorf("chunk size %q", line)
		}
	}
	return n, nil
}

// Chunk frames s as one chunk, LastChunk ends a chunked body.
func Chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// LastChunk ends a chunked body without trailers.
const LastChunk = "0\r\n\r\n"
