package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Timing holds the times of a connection; zero fields take the defaults.
type Timing struct {
	// Dial bounds connecting; 2 s. A SYN that is dropped would otherwise be waited for by the kernel's own retries.
	Dial time.Duration
	// Handshake bounds greeting and READY; 5 s. A stopped process accepts and never greets.
	Handshake time.Duration
	// Heartbeat is the time between two PINGs; 5 s.
	Heartbeat time.Duration
	// Silence ends a connection on which nothing came for so long in spite of PINGs; 15 s. A shorter limit throws away
	// what TCP would still deliver after a short outage.
	Silence time.Duration
	// BackoffMin and BackoffMax bound the wait before connecting again; 50 ms and 2 s. It doubles with each failure and
	// starts anew only after a message or a connection that lived for Silence: a peer that accepts and closes would be
	// dialled for ever otherwise.
	BackoffMin, BackoffMax time.Duration
}

func (t Timing) withDefaults() Timing {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&t.Dial, 2*time.Second)
	or(&t.Handshake, 5*time.Second)
	or(&t.Heartbeat, 5*time.Second)
	or(&t.Silence, 15*time.Second)
	or(&t.BackoffMin, 50*time.Millisecond)
	or(&t.BackoffMax, 2*time.Second)
	return t
}

// errSilent ends a connection whose peer is gone without a word.
var errSilent = errors.New("no sign of life")

// link is one ZMTP connection after its handshake. Its reader never writes: a peer that is blocked until we read must
// not block us in turn, so PONGs go through the writer.
type link struct {
	conn   net.Conn
	r      *Reader
	timing Timing
	beats  bool // the peer knows PING, which came with ZMTP 3.1

	out  chan []byte // to the writer; a PONG that does not fit is dropped, the peer asks again
	done chan struct{}
	wg   sync.WaitGroup
	once sync.Once
}

// open makes a link of a connection: the handshake, and hello, which may depend on the peer's minor version. Close the
// link when done with it; conn is closed when open fails.
func open(ctx context.Context, conn net.Conn, kind SocketKind, timing Timing, maxMessage int, hello func(minor byte) []byte) (*link, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	fail := func(err error) (*link, error) {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(timing.Handshake)); err != nil {
		return fail(err)
	}
	silent := &silenceConn{Conn: conn}
	r, minor, err := handshake(silent, kind, maxMessage)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no greeting within %s: %w", timing.Handshake, err)
		}
		return fail(err)
	}
	if b := hello(minor); len(b) > 0 {
		if _, err := conn.Write(b); err != nil {
			return fail(err)
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fail(err)
	}
	l := &link{conn: conn, r: r, timing: timing, beats: minor > 0, out: make(chan []byte, 4), done: make(chan struct{})}
	if l.beats {
		silent.limit = timing.Silence
	}
	l.wg.Go(l.write)
	return l, nil
}

// close ends the connection and waits for its writer.
func (l *link) close() {
	l.once.Do(func() { close(l.done) })
	_ = l.conn.Close()
	l.wg.Wait()
}

// next reads the next message into m and answers commands on the way.
func (l *link) next(m *Message) error {
	for {
		if err := l.r.Next(m); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("%w for %s", errSilent, l.timing.Silence)
			}
			return err
		}
		if !m.Command {
			return nil
		}
		name, data, err := splitCommand(m.Frames[0])
		if err != nil {
			return err
		}
		switch name {
		case commandPing:
			if len(data) < 2 {
				return fmt.Errorf("%w: a PING without a TTL", errProtocol)
			}
			// The context comes back in the PONG; it has at most 16 bytes (RFC 37).
			select {
			case l.out <- appendCommand(nil, commandPong, data[2:min(len(data), 18)]):
			default:
			}
		case commandError:
			return fmt.Errorf("the peer refuses: %.255q", errorReason(data))
		}
	}
}

// write sends PINGs and what is put into out, until the link closes.
func (l *link) write() {
	var beat <-chan time.Time
	if l.beats {
		t := time.NewTicker(l.timing.Heartbeat)
		defer t.Stop()
		beat = t.C
	}
	// The TTL, in tenths of a second, lets the peer drop us as we would drop it.
	ping := appendCommand(nil, commandPing, binary.BigEndian.AppendUint16(nil, uint16(min(l.timing.Silence/(100*time.Millisecond), 65535))))
	for {
		b := ping
		select {
		case <-l.done:
			return
		case <-beat:
		case b = <-l.out:
		}
		_ = l.conn.SetWriteDeadline(time.Now().Add(l.timing.Silence))
		if _, err := l.conn.Write(b); err != nil {
			// The reader finds the connection closed and tells.
			_ = l.conn.Close()
			return
		}
	}
}

// silenceConn sets a fresh limit before every read, so that only the time spent waiting for the peer counts and not the
// time in which we did not read.
type silenceConn struct {
	net.Conn
	limit time.Duration // 0: the deadline stays as it is
}

func (c *silenceConn) Read(b []byte) (int, error) {
	if c.limit > 0 {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}
