package kvevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Flags of a ZMTP frame (RFC 37 section "Framing").
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

const (
	// maxFrames bounds the frames of one message: replies of a replay have four (vLLM 0.26), and a peer that never
	// ends its message would fill the memory.
	maxFrames = 16
	// maxCommand bounds a command in bytes: the longest is READY with an identity of 255 bytes.
	maxCommand = 4 << 10
	// growStep is the most that is allocated on a peer's word alone; beyond it a buffer grows with what has arrived.
	growStep = 64 << 10
	// keepBuffer bounds in bytes the buffer that a message keeps for its next use.
	keepBuffer = 1 << 20
)

// DefaultMaxMessage bounds one message in bytes. A prefill step of 262,144 tokens with 16 groups that repeat the token
// ids stays below 22 MB.
const DefaultMaxMessage = 64 << 20

// errProtocol is inside every error about bytes that no ZMTP peer sends.
var errProtocol = errors.New("not ZMTP")

// Message is one ZeroMQ message, or one command. Its frames lie in one buffer, which the next read into it overwrites.
type Message struct {
	Frames  [][]byte
	Command bool // a command of the connection, with one frame

	buf  []byte
	ends []int
}

// Bytes returns the sum of the frames' lengths.
func (m *Message) Bytes() int { return len(m.buf) }

func (m *Message) reset() {
	if cap(m.buf) > keepBuffer {
		m.buf = nil
	}
	m.buf, m.ends, m.Frames, m.Command = m.buf[:0], m.ends[:0], m.Frames[:0], false
}

// cut makes the frames from their ends.
func (m *Message) cut() {
	from := 0
	for _, end := range m.ends {
		m.Frames = append(m.Frames, m.buf[from:end:end])
		from = end
	}
}

// Reader reads ZMTP frames of a connection after its greeting. What it allocates is bounded by what has arrived.
type Reader struct {
	r   *bufio.Reader
	max int // bytes of one message
}

// NewReader returns a reader of r that refuses messages of more than maxMessage bytes; 0 means DefaultMaxMessage.
func NewReader(r io.Reader, maxMessage int) *Reader {
	if maxMessage <= 0 {
		maxMessage = DefaultMaxMessage
	}
	return &Reader{r: bufio.NewReaderSize(r, growStep), max: maxMessage}
}

// Next reads one whole message or command into m. It returns io.EOF only between messages.
func (r *Reader) Next(m *Message) error {
	m.reset()
	for {
		flags, err := r.r.ReadByte()
		if err != nil {
			return unexpected(err, len(m.ends) > 0)
		}
		if flags&^(flagMore|flagLong|flagCommand) != 0 {
			return fmt.Errorf("%w: frame flags %#02x", errProtocol, flags)
		}
		command := flags&flagCommand != 0
		if command && (len(m.ends) > 0 || flags&flagMore != 0) {
			return fmt.Errorf("%w: a command inside a message", errProtocol)
		}
		size, err := r.size(flags)
		if err != nil {
			return unexpected(err, true)
		}
		switch {
		case command && size > maxCommand:
			return fmt.Errorf("%w: a command of %d bytes", errProtocol, size)
		case size > uint64(r.max-len(m.buf)):
			return fmt.Errorf("%w: a message of more than %d bytes", errProtocol, r.max)
		case len(m.ends) == maxFrames:
			return fmt.Errorf("%w: a message of more than %d frames", errProtocol, maxFrames)
		}
		if err := r.body(m, int(size)); err != nil {
			return unexpected(err, true)
		}
		m.ends = append(m.ends, len(m.buf))
		if flags&flagMore == 0 {
			m.Command = command
			m.cut()
			return nil
		}
	}
}

func (r *Reader) size(flags byte) (uint64, error) {
	if flags&flagLong == 0 {
		n, err := r.r.ReadByte()
		return uint64(n), err
	}
	b, err := r.r.Peek(8)
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint64(b)
	_, err = r.r.Discard(8)
	return n, err
}

// body appends size bytes to the message.
func (r *Reader) body(m *Message, size int) error {
	for size > 0 {
		step := min(size, max(growStep, len(m.buf)))
		from := len(m.buf)
		if cap(m.buf)-from < step {
			grown := make([]byte, from, from+step)
			copy(grown, m.buf)
			m.buf = grown
		}
		m.buf = m.buf[:from+step]
		if _, err := io.ReadFull(r.r, m.buf[from:]); err != nil {
			return err
		}
		size -= step
	}
	return nil
}

// unexpected turns an end of the stream inside a message into what it is.
func unexpected(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends one frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends the frames of one message.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(data))
	body = append(body, byte(len(name)))
	body = append(body, name...)
	return appendFrame(dst, flagCommand, append(body, data...))
}

// splitCommand returns a command's name and data.
func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) || body[0] == 0 {
		return "", nil, fmt.Errorf("%w: a command without a name", errProtocol)
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}
