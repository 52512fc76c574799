package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// responder writes the answer to one request in uvicorn's form. The head of a
// stream is a write of its own, sent before anything is generated, and every
// event is one chunk in one write: a client can then see each event in one
// segment, as it does with vLLM (0.32: "each SSE event is one HTTP chunk").
// It belongs to the goroutine that serves the connection.
type responder struct {
	c       *conn
	req     *request
	buf     []byte // reused for heads and chunks
	status  int    // 0 until a head is out
	chunked bool
	done    bool // the answer is complete
	dead    bool // the connection cannot carry another answer
	discard bool // nobody reads: a background response
}

// statusText gives the reason phrase of a status line.
func statusText(status int) string {
	if t := http.StatusText(status); t != "" {
		return t
	}
	return "Unknown"
}

// appendHead appends a response head up to and without the blank line: date
// and server first, then the route's own fields, then connection: close if
// the client asked for it. That is uvicorn's order.
func (w *responder) appendHead(dst []byte, status int, fields []field) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, statusText(status)...)
	dst = append(dst, "\r\ndate: "...)
	dst = time.Now().UTC().AppendFormat(dst, http.TimeFormat)
	dst = append(dst, "\r\nserver: uvicorn\r\n"...)
	for _, f := range fields {
		dst = append(dst, f.name...)
		dst = append(dst, ": "...)
		dst = append(dst, f.value...)
		dst = append(dst, "\r\n"...)
	}
	if w.req != nil && w.req.has("connection", "close") {
		dst = append(dst, "connection: close\r\n"...)
	}
	return dst
}

// reply sends a whole answer of known length: head and body are two writes,
// as uvicorn makes them.
func (w *responder) reply(status int, contentType string, body []byte, extra ...field) {
	if w.status != 0 {
		return
	}
	fields := append([]field{{"content-length", strconv.Itoa(len(body))}, {"content-type", contentType}}, extra...)
	w.status, w.done = status, true
	w.buf = append(w.appendHead(w.buf[:0], status, fields), "\r\n"...)
	w.write(w.buf)
	if len(body) > 0 && w.req.method != "HEAD" {
		w.write(body)
	}
}

// json sends a JSON answer.
func (w *responder) json(status int, body []byte, extra ...field) {
	w.reply(status, "application/json", body, extra...)
}

// startStream sends the 200 head of an event stream.
func (w *responder) startStream(extra ...field) {
	fields := append([]field{{"content-type", "text/event-stream; charset=utf-8"}}, extra...)
	w.status, w.chunked = 200, true
	w.buf = append(w.appendHead(w.buf[:0], 200, fields), "transfer-encoding: chunked\r\n\r\n"...)
	w.write(w.buf)
}

// chunk sends p as one chunk in one write.
func (w *responder) chunk(p []byte) {
	b := strconv.AppendInt(w.buf[:0], int64(len(p)), 16)
	b = append(b, "\r\n"...)
	b = append(b, p...)
	w.buf = append(b, "\r\n"...)
	w.write(w.buf)
}

// end sends the last chunk of a stream.
func (w *responder) end() {
	if !w.done {
		w.done = true
		w.write([]byte("0\r\n\r\n"))
	}
}

// write sends bytes as they are. A failed write marks the connection dead;
// the departure itself is seen by the watcher.
func (w *responder) write(p []byte) {
	if w.dead || w.discard {
		return
	}
	if _, err := w.c.nc.Write(p); err != nil {
		w.dead = true
	}
}

// hangUp closes the connection, with a reset instead of an orderly end if
// asked. Nothing can be written afterwards.
func (w *responder) hangUp(reset bool) {
	w.dead, w.done = true, true
	if !w.discard {
		w.c.close(reset)
	}
}

// conn is one accepted connection and the loop that serves it.
type conn struct {
	s       *Server
	nc      net.Conn
	in      input
	control bool // the control listener: only /sim/ paths

	// mu guards busy, which Server reads to find idle connections.
	mu   sync.Mutex
	busy bool
}

func (c *conn) setBusy(b bool) {
	c.mu.Lock()
	c.busy = b
	c.mu.Unlock()
}

func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.busy
}

// close ends the connection; reset sends RST instead of FIN.
func (c *conn) close(reset bool) {
	if t, ok := c.nc.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	_ = c.nc.Close()
}

// serve answers requests until either side ends the connection. As with
// uvicorn, only the wait for the first byte after an answer is limited: a
// fresh connection, half a head and half a body may take for ever.
func (c *conn) serve(ctx context.Context) {
	defer c.close(false)
	for first := true; ; first = false {
		if !first && len(c.in.buf) == 0 {
			_ = c.nc.SetReadDeadline(time.Now().Add(c.s.o.KeepAlive))
			if c.in.fill() != nil {
				return
			}
			_ = c.nc.SetReadDeadline(time.Time{})
		}
		r, err := c.in.head()
		if err == nil {
			c.setBusy(true)
			err = c.readBody(r)
		}
		if err != nil {
			if isBadRequest(err) {
				c.refuse()
			}
			return
		}
		w := &responder{c: c, req: r}
		alive := c.answer(ctx, w)
		c.setBusy(false)
		if !alive {
			return
		}
	}
}

// readBody reads the body of r, after 100 Continue where the client waits for
// that. A body behind an Upgrade that uvicorn does not speak is lost, which is
// what happens to every h2c client of vLLM.
func (c *conn) readBody(r *request) error {
	if r.has("connection", "upgrade") && r.method != "GET" {
		_, length, err := r.framing()
		r.close = true
		_, _ = c.in.exactly(nil, min(length, int64(len(c.in.buf))))
		return err
	}
	if r.has("expect", "100-continue") && len(c.in.buf) == 0 {
		if _, err := c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
	}
	return c.in.body(r)
}

// refuse sends uvicorn's answer to bytes that are no HTTP.
func (c *conn) refuse() {
	w := &responder{c: c, req: &request{fields: []field{{"connection", "close"}}}}
	w.reply(400, "text/plain; charset=utf-8", []byte("Invalid HTTP request received."))
}

// answer runs the route while watching for the client's departure, and
// reports whether the connection can serve another request.
func (c *conn) answer(ctx context.Context, w *responder) bool {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := c.watch(cancel)
	c.s.route(ctx, w)
	gone := stop()
	return !gone && !w.dead && w.done && !w.req.close
}

// readAhead is how much uvicorn reads before the present request is answered,
// in bytes; beyond it reading pauses and a departure goes unseen.
const readAhead = 64 << 10

// watch reads ahead while a request is being answered. The end of the
// client's stream, a half-close included, is a departure: uvicorn closes its
// transport then, and vLLM aborts the request. The returned function ends the
// watch and reports whether the client left.
func (c *conn) watch(cancel context.CancelCauseFunc) (stop func() bool) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	gone := false
	go func() {
		defer close(done)
		for len(c.in.buf) < readAhead {
			err := c.in.fill()
			if err == nil {
				continue
			}
			select {
			case <-stopped:
				if isTimeout(err) {
					return
				}
			default:
			}
			gone = true
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
				cancel(nil) // closed on this side, by a fault or the server's end
			} else {
				cancel(errLeft)
			}
			_ = c.nc.Close()
			return
		}
	}()
	return func() bool {
		close(stopped)
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.nc.SetReadDeadline(time.Time{})
		return gone
	}
}
