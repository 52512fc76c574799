package kvevents

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// SocketKind is what our end of a connection is.
type SocketKind string

// The two kinds that this client speaks.
const (
	Sub    SocketKind = "SUB"    // subscribes to a PUB or XPUB
	Dealer SocketKind = "DEALER" // asks a ROUTER, which may answer many times
)

// peers are the kinds that may stand at the other end (RFC 28 and RFC 29).
var peers = map[SocketKind][]string{
	Sub:    {"PUB", "XPUB"},
	Dealer: {"ROUTER", "DEALER", "REP"},
}

const (
	greetingSize  = 64 // bytes
	mechanismNULL = "NULL"
	propertyType  = "Socket-Type"
	commandReady  = "READY"
	commandError  = "ERROR"
	commandPing   = "PING"
	commandPong   = "PONG"
)

// appendGreeting appends the greeting of ZMTP 3.1 with the NULL mechanism, which has no server.
func appendGreeting(dst []byte) []byte {
	dst = append(dst, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1)
	dst = append(dst, mechanismNULL...)
	return append(dst, make([]byte, greetingSize-12-len(mechanismNULL))...)
}

// readGreeting reads a peer's greeting and returns the minor version of ZMTP 3 that it speaks. It gives up as early as
// the bytes allow: an older peer, or one of another protocol, waits for us and sends no 64 bytes.
func readGreeting(r io.Reader) (minor byte, err error) {
	var g [greetingSize]byte
	if _, err := io.ReadFull(r, g[:1]); err != nil {
		return 0, err
	}
	if g[0] != 0xff {
		return 0, fmt.Errorf("%w: it begins with %#02x; is this another protocol's port?", errProtocol, g[0])
	}
	if _, err := io.ReadFull(r, g[1:11]); err != nil {
		return 0, unexpected(err, true)
	}
	switch {
	case g[9] != 0x7f:
		return 0, fmt.Errorf("%w 3: the peer speaks ZMTP 1.0 (libzmq before 3), which has no heartbeats", errProtocol)
	case g[10] < 3:
		return 0, fmt.Errorf("%w 3: the peer speaks revision %d of ZMTP (libzmq 3), which has no heartbeats", errProtocol, g[10])
	}
	if _, err := io.ReadFull(r, g[11:]); err != nil {
		return 0, unexpected(err, true)
	}
	if mechanism := string(bytes.TrimRight(g[12:32], "\x00")); mechanism != mechanismNULL {
		return 0, fmt.Errorf("the peer wants security mechanism %.20q, and only NULL is known", mechanism)
	}
	if g[10] > 3 {
		// "A peer MUST accept higher protocol versions" (RFC 37 section "Version Negotiation").
		return 1, nil
	}
	return g[11], nil
}

// appendReady appends the READY command of a kind.
func appendReady(dst []byte, kind SocketKind) []byte {
	data := appendProperty(nil, propertyType, string(kind))
	if kind == Dealer {
		data = appendProperty(data, "Identity", "")
	}
	return appendCommand(dst, commandReady, data)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// property finds a property in the data of a READY; names ignore case.
func property(data []byte, name string) (string, error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return "", fmt.Errorf("%w: a broken READY", errProtocol)
		}
		size := binary.BigEndian.Uint32(data[n:])
		if uint64(size) > uint64(len(data)-n-4) {
			return "", fmt.Errorf("%w: a broken READY", errProtocol)
		}
		value := data[n+4 : n+4+int(size)]
		if strings.EqualFold(string(data[1:n]), name) {
			return string(value), nil
		}
		data = data[n+4+int(size):]
	}
	return "", nil
}

// handshake greets, says what we are and demands a peer that fits. The caller has set a deadline on conn and reads on
// from r.
func handshake(conn net.Conn, kind SocketKind, maxMessage int) (r *Reader, minor byte, err error) {
	if _, err := conn.Write(appendGreeting(nil)); err != nil {
		return nil, 0, fmt.Errorf("cannot greet: %w", err)
	}
	r = NewReader(conn, maxMessage)
	if minor, err = readGreeting(r.r); err != nil {
		return nil, 0, fmt.Errorf("cannot read the greeting: %w", err)
	}
	// Only now: libzmq hangs up on a READY of a socket that does not fit, before it has said what it is itself.
	if _, err := conn.Write(appendReady(nil, kind)); err != nil {
		return nil, 0, fmt.Errorf("cannot say READY: %w", err)
	}
	var m Message
	if err := r.Next(&m); err != nil {
		return nil, 0, fmt.Errorf("cannot read READY of what may be no socket for a %s (are the events and replay endpoints swapped?): %w", kind, unexpected(err, true))
	}
	if !m.Command {
		return nil, 0, fmt.Errorf("%w: a message before READY", errProtocol)
	}
	name, data, err := splitCommand(m.Frames[0])
	switch {
	case err != nil:
		return nil, 0, err
	case name == commandError:
		return nil, 0, fmt.Errorf("the peer refuses: %.255q", errorReason(data))
	case name != commandReady:
		return nil, 0, fmt.Errorf("%w: %.20q before READY", errProtocol, name)
	}
	peer, err := property(data, propertyType)
	if err != nil {
		return nil, 0, err
	}
	if !slices.Contains(peers[kind], peer) {
		return nil, 0, fmt.Errorf("the peer is a %.20q socket, and a %s needs one of %s: are the events and replay endpoints swapped?", peer, kind, strings.Join(peers[kind], ", "))
	}
	return r, minor, nil
}

// errorReason is the text of an ERROR command.
func errorReason(data []byte) []byte {
	if len(data) > 0 && len(data) >= 1+int(data[0]) {
		return data[1 : 1+int(data[0])]
	}
	return nil
}

// appendSubscribe appends a subscription: a command since ZMTP 3.1, a message before.
func appendSubscribe(dst []byte, topic string, minor byte) []byte {
	if minor == 0 {
		return appendMessage(dst, append([]byte{1}, topic...))
	}
	return appendCommand(dst, "SUBSCRIBE", []byte(topic))
}
