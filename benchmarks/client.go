package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// client is one connection of the load generator with its buffers, owned by one goroutine.
type client struct {
	clock   clock
	target  string
	conn    *net.TCPConn
	in      []byte
	r, w    int // bytes read and not used: in[r:w]
	out     []byte
	scratch []byte
	body    []byte
	check   verifier
	// readAt is the monotonic time of the newest read, in nanoseconds.
	readAt int64
}

func newClient(clk clock, target string) *client {
	return &client{clock: clk, target: target, in: make([]byte, 4096)}
}

// dial opens the connection if there is none.
func (c *client) dial() error {
	if c.conn != nil {
		return nil
	}
	conn, err := net.DialTimeout("tcp", c.target, 5*time.Second)
	if err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		panic("BUG: a tcp dial gave another kind of connection")
	}
	c.conn, c.r, c.w = tcp, 0, 0
	return tcp.SetNoDelay(true)
}

// close ends the connection; the next request opens a new one.
func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// do sends the request of ask and verifies the whole answer. seen is called for every event, after c.readAt was set.
// limit bounds the whole exchange. After an error the connection is closed.
func (c *client) do(ask Ask, closing bool, limit time.Duration, seen func(i int, sent, received int64)) error {
	err := c.exchange(ask, closing, limit, seen)
	if err != nil || closing {
		c.close()
	}
	return err
}

func (c *client) exchange(ask Ask, closing bool, limit time.Duration, seen func(i int, sent, received int64)) error {
	if err := c.dial(); err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	c.out, c.scratch = ask.appendRequest(c.out[:0], c.scratch, c.target, closing)
	if _, err := c.conn.Write(c.out); err != nil {
		return fmt.Errorf("cannot send: %w", err)
	}
	head, err := c.head()
	if err != nil {
		return err
	}
	if head.status != 200 {
		return fmt.Errorf("status %d: %.120q", head.status, c.in[c.r:c.w])
	}
	if ask.Stream {
		c.check.seen = seen
		c.check.reset(ask)
		if err := c.payload(head, c.check.feed); err != nil {
			return err
		}
		err = c.check.finish()
	} else {
		c.body = c.body[:0]
		if err := c.payload(head, func(p []byte) error { c.body = append(c.body, p...); return nil }); err != nil {
			return err
		}
		if c.scratch = ask.appendShort(c.scratch[:0]); !bytes.Equal(c.body, c.scratch) {
			err = fmt.Errorf("short answer to seed %d differs: got %.200q", ask.Seed, c.body)
		}
	}
	if err == nil && c.r != c.w {
		err = fmt.Errorf("%d bytes after the answer to seed %d: %.60q", c.w-c.r, ask.Seed, c.in[c.r:c.w])
	}
	if head.closing {
		c.close()
	}
	return err
}

// post sends body as a chat request and returns the answer's body, valid until the next call. It must be whole: a JSON
// object with usage, or a stream up to [DONE]. After an error the connection is closed.
func (c *client) post(body []byte, limit time.Duration) (answer []byte, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.dial(); err != nil {
		return nil, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	c.out = append(c.out[:0], "POST "+chatPath+" HTTP/1.1\r\nHost: "...)
	c.out = append(c.out, c.target...)
	c.out = append(c.out, "\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, fmt.Errorf("cannot send: %w", err)
	}
	head, err := c.head()
	if err != nil {
		return nil, err
	}
	c.body = c.body[:0]
	if err := c.payload(head, func(p []byte) error { c.body = append(c.body, p...); return nil }); err != nil {
		return nil, err
	}
	if head.closing {
		c.close()
	}
	whole := bytes.Contains(c.body, []byte(`"completion_tokens"`)) || bytes.HasSuffix(bytes.TrimSpace(c.body), []byte("data: [DONE]"))
	if head.status != 200 || !whole {
		return nil, fmt.Errorf("status %d, not a whole answer: %.200q", head.status, c.body)
	}
	return c.body, nil
}

func (c *client) head() (answerHead, error) {
	for {
		head, used, err := parseAnswerHead(c.in[c.r:c.w])
		if err != nil {
			return head, err
		}
		if used > 0 {
			c.r += used
			return head, nil
		}
		if err := c.read(); err != nil {
			return head, fmt.Errorf("cannot read the head: %w", err)
		}
	}
}

// payload gives the body to feed without its framing.
func (c *client) payload(head answerHead, feed func([]byte) error) error {
	if !head.chunked && head.length < 0 {
		return errors.New("cannot read the answer: neither chunked nor of known length")
	}
	var chunks chunkDecoder
	left := head.length
	var plain []byte
	for {
		if head.chunked {
			var used int
			var err error
			plain, used, err = chunks.decode(c.scratch[:0], c.in[c.r:c.w])
			c.scratch = plain
			if err != nil {
				return err
			}
			c.r += used
			if err := feed(plain); err != nil {
				return err
			}
			if chunks.ended() {
				return nil
			}
		} else {
			n := min(left, c.w-c.r)
			if err := feed(c.in[c.r : c.r+n]); err != nil {
				return err
			}
			c.r += n
			if left -= n; left == 0 {
				return nil
			}
		}
		if err := c.read(); err != nil {
			return fmt.Errorf("cannot read the body: %w", err)
		}
	}
}

// read takes what has arrived.
func (c *client) read() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.in) {
		c.w = copy(c.in, c.in[c.r:])
		c.r = 0
		if c.w == len(c.in) {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
	}
	n, err := c.conn.Read(c.in[c.w:])
	c.readAt = c.clock.now()
	c.w += n
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
