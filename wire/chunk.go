package wire

// Bounds of the parts of chunked framing that carry no body bytes.
const (
	maxSizeDigits   = 16       // 64 bits; leading zeros count
	maxExtension    = 4 << 10  // bytes of extensions on one size line
	maxTrailerBytes = 16 << 10 // bytes of the trailer section
)

// FramingError says why a chunked body was refused. Nothing behind it on the
// connection can be read.
type FramingError struct{ Message string }

func (e *FramingError) Error() string { return e.Message }

type chunkState uint8

const (
	chunkSize       chunkState = iota // before or among the size digits
	chunkExt                          // behind ';'
	chunkSizeLF                       // behind the CR of a size line
	chunkData                         // left > 0
	chunkDataCR                       // behind the data
	chunkDataLF                       // behind the data's CR
	chunkTrailer                      // at the start of a trailer line
	chunkTrailName                    // within a trailer's name
	chunkTrailValue                   // within a trailer's value
	chunkTrailLF                      // behind the CR of a trailer
	chunkLastLF                       // behind the CR of the blank line
	chunkDone
	chunkFailed
)

// ChunkScanner finds chunk data and framing in a chunked body (RFC 9112
// section 7.1) that arrives in pieces of any size, without copying. The zero
// value stands at the start of a body. It belongs to one goroutine and
// allocates nothing.
//
// It is stricter than the RFC asks: no bare LF anywhere, no white space around
// the size, no control bytes in extensions and trailers, bounded lengths.
// Those are where parsers disagree, and where they disagree a request can be
// smuggled (LF after the size: CVE-2025-22871; LF in an extension:
// CVE-2025-55315).
type ChunkScanner struct {
	left    int64 // data bytes outstanding, or the size read so far
	digits  int
	extra   int // bytes of the extension or of the trailer section
	state   chunkState
	last    bool // the 0-size line is whole
	trailer bool
	err     *FramingError
}

// Reset goes back to the start of a body.
func (s *ChunkScanner) Reset() { *s = ChunkScanner{} }

// Next consumes a prefix of raw (at least one byte, unless the body is done or
// wrong): raw[:n] is wholly chunk data or wholly framing. A run of framing
// never goes beyond the end of a chunk: the CRLF behind the data is one run
// and the next size line another, so that a caller can act between chunks.
// The error is a *FramingError, and stays.
func (s *ChunkScanner) Next(raw []byte) (n int, data bool, err error) {
	if s.state == chunkData && len(raw) > 0 {
		n = len(raw)
		if int64(n) >= s.left {
			n = int(s.left)
			s.state = chunkDataCR
		}
		s.left -= int64(n)
		return n, true, nil
	}
	for n < len(raw) && s.state < chunkDone {
		boundary := s.step(raw[n])
		if s.state == chunkFailed {
			break
		}
		n++
		if boundary {
			return n, false, nil
		}
	}
	if s.state == chunkFailed {
		return n, false, s.err
	}
	return n, false, nil
}

// step takes one byte of framing and reports whether a run ends behind it.
func (s *ChunkScanner) step(c byte) (boundary bool) {
	switch s.state {
	case chunkSize:
		s.sizeByte(c)
	case chunkExt:
		switch s.extra++; {
		case c == '\r':
			s.state = chunkSizeLF
		case classes[c]&classField == 0:
			return s.fail(errChunkExt)
		case s.extra > maxExtension:
			return s.fail(errChunkExtLong)
		}
	case chunkSizeLF:
		return s.sizeEnd(c)
	case chunkDataCR:
		if c != '\r' {
			return s.fail(errChunkDataEnd)
		}
		s.state = chunkDataLF
	case chunkDataLF:
		if c != '\n' {
			return s.fail(errChunkDataEnd)
		}
		*s = ChunkScanner{}
		return true
	case chunkLastLF:
		if c != '\n' {
			return s.fail(errChunkTrailer)
		}
		s.state = chunkDone
		return true
	default:
		s.trailerByte(c)
	}
	return false
}

func (s *ChunkScanner) sizeByte(c byte) {
	switch {
	case classes[c]&classHex != 0:
		v := int64(c & 0x0f)
		if c > '9' {
			v += 9
		}
		s.digits++
		if s.digits > maxSizeDigits || s.left > maxLength>>4 {
			s.fail(errChunkSizeBig)
			return
		}
		s.left = s.left<<4 | v
		if s.left > maxLength {
			s.fail(errChunkSizeBig)
		}
	case s.digits == 0:
		s.fail(errChunkSize)
	case c == '\r':
		s.state = chunkSizeLF
	case c == ';':
		s.state = chunkExt
	default:
		s.fail(errChunkSize)
	}
}

// sizeEnd takes the byte behind the CR of a size line.
func (s *ChunkScanner) sizeEnd(c byte) (boundary bool) {
	if c != '\n' {
		return s.fail(errChunkSize)
	}
	s.extra = 0
	if s.left > 0 {
		s.state = chunkData
		return true
	}
	s.last = true
	s.state = chunkTrailer
	return false
}

// trailerByte takes one byte of the trailer section: field lines as in a head.
func (s *ChunkScanner) trailerByte(c byte) {
	if s.extra++; s.extra > maxTrailerBytes {
		s.fail(errChunkTrailerLong)
		return
	}
	switch s.state {
	case chunkTrailer:
		if c == '\r' {
			s.state = chunkLastLF
			return
		}
		s.trailer = true
		s.state = chunkTrailName
		if classes[c]&classToken == 0 {
			s.fail(errChunkTrailer)
		}
	case chunkTrailName:
		switch {
		case c == ':':
			s.state = chunkTrailValue
		case classes[c]&classToken == 0:
			s.fail(errChunkTrailer)
		}
	case chunkTrailValue:
		switch {
		case c == '\r':
			s.state = chunkTrailLF
		case classes[c]&classField == 0:
			s.fail(errChunkTrailer)
		}
	case chunkTrailLF:
		s.state = chunkTrailer
		if c != '\n' {
			s.fail(errChunkTrailer)
		}
	}
}

var (
	errChunkSize        = &FramingError{"a chunk size line is not hexadecimal digits and CRLF"}
	errChunkSizeBig     = &FramingError{"a chunk size is too large"}
	errChunkExt         = &FramingError{"a chunk extension holds a control byte"}
	errChunkExtLong     = &FramingError{"a chunk extension is longer than 4 KiB"}
	errChunkDataEnd     = &FramingError{"chunk data is not followed by CRLF"}
	errChunkTrailer     = &FramingError{"the trailer section is malformed"}
	errChunkTrailerLong = &FramingError{"the trailer section is longer than 16 KiB"}
)

func (s *ChunkScanner) fail(e *FramingError) bool {
	s.state, s.err = chunkFailed, e
	return false
}

// Done reports whether the final CRLF, behind the last chunk and the trailers,
// was consumed. Next consumes nothing after it.
func (s *ChunkScanner) Done() bool { return s.state == chunkDone }

// Remaining is the number of data bytes outstanding in the present chunk, 0
// when not within chunk data.
func (s *ChunkScanner) Remaining() int64 {
	if s.state == chunkData {
		return s.left
	}
	return 0
}

// InLastChunk reports whether everything consumed since the last chunk
// boundary is the end of the body: a size line of nothing but zeros so far
// (one more digit may yet prove it a padded ordinary size, "0a"), the line
// whole, the trailers, or all of it.
func (s *ChunkScanner) InLastChunk() bool {
	switch s.state {
	case chunkSize, chunkExt, chunkSizeLF:
		return s.digits > 0 && s.left == 0
	}
	return s.last
}

// HasTrailers reports whether a trailer field was seen.
func (s *ChunkScanner) HasTrailers() bool { return s.trailer }

// Completion returns the bytes that must follow what was consumed so far so
// that a new chunk may begin; ok is false within chunk data, within a size
// line, and from the last chunk on.
func (s *ChunkScanner) Completion() (suffix string, ok bool) {
	switch s.state {
	case chunkSize:
		return "", s.digits == 0
	case chunkDataCR:
		return "\r\n", true
	case chunkDataLF:
		return "\n", true
	}
	return "", false
}
