package sim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// The ZeroMQ transport, ZMTP 3.1 (ZeroMQ RFC 37), as far as vLLM's ZmqEventPublisher uses it: PUB and ROUTER, the NULL
// mechanism, no security. The peers are libzmq and Ramjet's own client, with which nothing is shared, so that an error
// in one cannot hide one in the other.

// Bits of a frame's first byte.
const (
	zmtpMore    = 1
	zmtpLong    = 2 // eight bytes of length follow instead of one
	zmtpCommand = 4
)

const (
	zmtpGreetingLen = 64
	// A peer only sends handshakes, subscriptions, heartbeats and replay requests; nothing of that is longer.
	zmtpFrameLimit = 64 << 10
	zmtpPartLimit  = 16 // frames of one message
)

// zmtpHandshakeLimit bounds a handshake; the value of libzmq's ZMQ_HANDSHAKE_IVL.
const zmtpHandshakeLimit = 30 * time.Second

// appendFrame appends one frame with its head.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	return append(appendFrameHead(dst, flags, len(body)), body...)
}

// appendFrameHead appends the head of a frame whose body of n bytes follows.
func appendFrameHead(dst []byte, flags byte, n int) []byte {
	if n < 256 {
		return append(dst, flags, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|zmtpLong), uint64(n))
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, body []byte) []byte {
	dst = appendFrameHead(dst, zmtpCommand, 1+len(name)+len(body))
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	return append(dst, body...)
}

// cutCommand takes the body of a command frame apart.
func cutCommand(body []byte) (name string, rest []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, errors.New("command frame is cut short")
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// readFrame reads one frame of at most zmtpFrameLimit bytes. The length is checked before anything is allocated.
func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(zmtpMore|zmtpLong|zmtpCommand) != 0 {
		return 0, nil, fmt.Errorf("frame with reserved flags %#x", flags)
	}
	if flags&zmtpCommand != 0 && flags&zmtpMore != 0 {
		return 0, nil, errors.New("command frame that wants to go on")
	}
	var size uint64
	if flags&zmtpLong != 0 {
		var b [8]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, nil, whole(err)
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, whole(err)
		}
		size = uint64(b)
	}
	if size > zmtpFrameLimit {
		return 0, nil, fmt.Errorf("frame of %d bytes", size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, whole(err)
	}
	return flags, body, nil
}

// whole turns an end inside a frame into what it is.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zmtpGreeting is our greeting: signature, version 3.1, mechanism NULL, no server of a security mechanism.
func zmtpGreeting() []byte {
	g := make([]byte, zmtpGreetingLen)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, 1
	copy(g[12:32], "NULL")
	return g
}

// checkGreeting refuses what is no ZMTP 3 peer with the NULL mechanism. A peer of version 3.0 differs only in that it
// subscribes by messages, and those are understood from everybody.
func checkGreeting(g []byte) error {
	switch {
	case g[0] != 0xff || g[9]&1 == 0:
		return errors.New("no ZMTP greeting")
	case g[10] < 3:
		return fmt.Errorf("ZMTP version %d", g[10])
	case string(g[12:32]) != "NULL"+string(make([]byte, 16)):
		return fmt.Errorf("mechanism %q", g[12:32])
	}
	return nil
}

// appendReady appends the READY command of a socket. ROUTER, like libzmq's, gives an identity, though an empty one.
func appendReady(dst []byte, kind string) []byte {
	props := appendProperty(nil, "Socket-Type", kind)
	if kind == "ROUTER" {
		props = appendProperty(props, "Identity", "")
	}
	return appendCommand(dst, "READY", props)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
}

// readyType returns the Socket-Type of a READY command's properties, whose names do not depend on case.
func readyType(props []byte) (string, error) {
	kind := ""
	for len(props) > 0 {
		n := 1 + int(props[0])
		if len(props) < n+4 {
			return "", errors.New("READY is cut short")
		}
		size := binary.BigEndian.Uint32(props[n:])
		if uint64(len(props)-n-4) < uint64(size) {
			return "", errors.New("READY is cut short")
		}
		value := props[n+4 : n+4+int(size)]
		if equalFold(props[1:n], "socket-type") {
			kind = string(value)
		}
		props = props[n+4+int(size):]
	}
	return kind, nil
}

// equalFold compares ASCII without case; lower is in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c|0x20 != lower[i]|0x20 {
			return false
		}
	}
	return true
}

// zmtpConn is a connection after its handshake. One goroutine reads.
type zmtpConn struct {
	nc  net.Conn
	in  *bufio.Reader
	ttl time.Duration // what the peer's PING asked: without anything read for so long it counts as gone; 0 = never
}

// zmtpHandshake greets as a socket of the given kind and accepts peers of the given kinds only.
func zmtpHandshake(nc net.Conn, kind string, peers ...string) (*zmtpConn, error) {
	if err := nc.SetDeadline(time.Now().Add(zmtpHandshakeLimit)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(zmtpGreeting()); err != nil {
		return nil, err
	}
	c := &zmtpConn{nc: nc, in: bufio.NewReaderSize(nc, 4<<10)}
	// The signature comes alone first: something else than a ZeroMQ peer may never send 64 bytes.
	if sig, err := c.in.Peek(10); err != nil {
		return nil, err
	} else if sig[0] != 0xff || sig[9]&1 == 0 {
		return nil, errors.New("no ZMTP greeting")
	}
	greeting := make([]byte, zmtpGreetingLen)
	if _, err := io.ReadFull(c.in, greeting); err != nil {
		return nil, err
	}
	if err := checkGreeting(greeting); err != nil {
		return nil, err
	}
	if _, err := nc.Write(appendReady(nil, kind)); err != nil {
		return nil, err
	}
	flags, body, err := readFrame(c.in)
	if err != nil {
		return nil, err
	}
	name, props, err := cutCommand(body)
	if err != nil || flags&zmtpCommand == 0 || name != "READY" {
		return nil, errors.New("peer did not send READY")
	}
	peer, err := readyType(props)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(peers, peer) {
		return nil, fmt.Errorf("%s cannot serve a socket of type %q", kind, peer)
	}
	return c, nc.SetDeadline(time.Time{})
}

// read returns the next frame that is data or a command other than a heartbeat. pong is called with the bytes that
// answer a PING.
func (c *zmtpConn) read(pong func([]byte)) (flags byte, body []byte, err error) {
	for {
		if c.ttl > 0 {
			if err := c.nc.SetReadDeadline(time.Now().Add(c.ttl)); err != nil {
				return 0, nil, err
			}
		}
		if flags, body, err = readFrame(c.in); err != nil || flags&zmtpCommand == 0 {
			return flags, body, err
		}
		name, rest, err := cutCommand(body)
		switch {
		case err != nil:
			return 0, nil, err
		case name == "PING":
			if len(rest) < 2 || len(rest) > 2+16 { // time to live in tenths of a second, then a context of at most 16 bytes
				return 0, nil, errors.New("PING of a wrong length")
			}
			c.ttl = time.Duration(binary.BigEndian.Uint16(rest)) * 100 * time.Millisecond
			if c.ttl == 0 {
				_ = c.nc.SetReadDeadline(time.Time{}) // a closed connection shows at the next read
			}
			pong(appendCommand(nil, "PONG", rest[2:]))
		case name == "ERROR":
			return 0, nil, fmt.Errorf("peer reports an error: %q", rest)
		case name != "PONG":
			return flags, body, nil
		}
	}
}
