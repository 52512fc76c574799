package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Get asks the engine for path on a connection apart from its requests', so
// that a check never waits for or spoils one of those, and returns at most
// limit bytes of the body. It never uses a proxy of the environment, never
// follows a redirect, and tries both address families. The error wraps the
// system's, so that errors.Is finds ECONNREFUSED, and the context's once that
// has ended. Safe for concurrent use.
func (e *Engine) Get(ctx context.Context, path string, limit int64) (status int, body []byte, err error) {
	return e.ask(ctx, http.MethodGet, path, nil, nil, limit)
}

// GetInto is Get with the body in the room of into, which grows as needed.
func (e *Engine) GetInto(ctx context.Context, path string, into []byte, limit int64) (status int, body []byte, err error) {
	return e.ask(ctx, http.MethodGet, path, nil, into[:0], limit)
}

// Post is Get with a JSON body, which is only read. It is for questions that change nothing, since it may be sent twice.
func (e *Engine) Post(ctx context.Context, path string, body []byte, limit int64) (status int, answer []byte, err error) {
	return e.ask(ctx, http.MethodPost, path, body, nil, limit)
}

// question is one exchange. Whoever asks also writes and reads: handing over
// to goroutines of a connection, as net/http's transport does, and allocating
// as much as it does cost an idle Ramjet more than the questions themselves.
type question struct {
	head []byte
	send []byte
	into []byte

	c     *Conn
	r     *bufio.Reader // of the question itself
	limit int64         // of the answer's body
	left  int64         // how much may still be read
}

// questions is shared by all engines: few of them are asked at once.
var questions = sync.Pool{New: func() any {
	q := &question{}
	q.r = bufio.NewReaderSize(q, sizeQuestion)
	return q
}}

const (
	// sizeQuestion holds the head of every answer that vLLM gives to a check,
	// and its body too where that is short.
	sizeQuestion = 4 << 10
	// maxAnswerHead bounds the heads that come before an answer's body.
	maxAnswerHead = 64 << 10
)

func (e *Engine) ask(ctx context.Context, method, path string, send, into []byte, limit int64) (int, []byte, error) {
	q, _ := questions.Get().(*question)
	defer q.release()
	q.head, q.send, q.into, q.limit = e.appendQuestion(q.head[:0], method, path, send), send, into, limit
	if c := e.checks.Reuse(time.Now()); c != nil {
		status, answer, err := q.exchange(ctx, c)
		if err == nil || status != 0 || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return status, answer, e.unanswered(ctx, path, err)
		}
		// That the engine closed a kept connection says nothing of the engine: a fresh one will.
	}
	c, err := e.checks.Dial(ctx)
	if err != nil {
		return 0, nil, e.unanswered(ctx, path, err)
	}
	status, answer, err := q.exchange(ctx, c)
	return status, answer, e.unanswered(ctx, path, err)
}

func (e *Engine) appendQuestion(b []byte, method, path string, send []byte) []byte {
	b = append(append(append(append(b, method...), ' '), path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, e.Address()...), "\r\nAccept-Encoding: identity\r\n"...)
	if key := e.Settings().APIKey; key != "" {
		b = append(append(append(b, "Authorization: Bearer "...), key...), "\r\n"...)
	}
	if method == http.MethodPost {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(send)), 10), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

func (e *Engine) unanswered(ctx context.Context, path string, err error) error {
	if err == nil {
		return nil
	}
	// The context ends an exchange by its connection, whose error tells nothing of that.
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return fmt.Errorf("cannot ask %s for %s: %w", e.Name, path, err)
}

// exchange asks on c, which goes back to its pool or is closed. The status is
// 0 if no head of an answer came.
func (q *question) exchange(ctx context.Context, c *Conn) (status int, answer []byte, err error) {
	q.c = c
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	status, answer, keep, err := q.run(ctx)
	if stop() && keep && c.SetDeadline(time.Time{}) == nil {
		c.pool.Put(c, time.Now())
	} else {
		_ = c.Close()
	}
	q.c = nil
	return status, answer, err
}

func (q *question) run(ctx context.Context) (status int, answer []byte, keep bool, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := q.c.SetDeadline(deadline); err != nil {
			return 0, nil, false, fmt.Errorf("cannot limit the time: %w", err)
		}
	}
	if err := q.write(); err != nil {
		return 0, nil, false, fmt.Errorf("cannot send it: %w", err)
	}
	q.r.Reset(q)
	resp, err := q.readHead() //nolint:bodyclose // that would read all of an answer longer than the limit: its connection is closed
	if err != nil {
		return 0, nil, false, fmt.Errorf("cannot read the answer's head: %w", brief(err))
	}
	body := io.LimitedReader{R: resp.Body, N: q.limit}
	answer, err = readAll(q.into, &body)
	if err != nil {
		return resp.StatusCode, nil, false, fmt.Errorf("cannot read the answer: %w", err)
	}
	// What is left of a longer answer would be taken for the next one's.
	keep = body.N > 0 && !resp.Close && q.r.Buffered() == 0
	return resp.StatusCode, answer, keep, nil
}

func (q *question) write() error {
	if _, err := q.c.Socket.Write(q.head); err != nil {
		return err
	}
	if len(q.send) == 0 {
		return nil
	}
	_, err := q.c.Socket.Write(q.send)
	return err
}

// longestText is how much of an engine's own words an error repeats.
const longestText = 200

// brief cuts an error that repeats what the engine sent, which may be a whole
// page. Those of the system are never that long, so nothing is lost of what
// errors.Is looks for.
func brief(err error) error {
	if text := err.Error(); len(text) > longestText {
		return errors.New(strings.ToValidUTF8(text[:longestText], "") + "..")
	}
	return err
}

// readHead reads the head of an answer, past those that only announce it.
func (q *question) readHead() (*http.Response, error) {
	q.left = maxAnswerHead
	for {
		resp, err := http.ReadResponse(q.r, nil)
		if err != nil && q.left <= 0 {
			err = fmt.Errorf("it is longer than %d bytes", maxAnswerHead)
		}
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= http.StatusOK {
			q.left = math.MaxInt64 // the body has its own limit
			return resp, nil
		}
	}
}

// Read implements io.Reader for r.
func (q *question) Read(p []byte) (int, error) {
	if q.left <= 0 {
		return 0, io.EOF
	}
	n, err := q.c.Socket.Read(p[:min(int64(len(p)), q.left)])
	q.left -= int64(n)
	return n, err
}

// release gives q back without what belongs to the one who asked.
func (q *question) release() {
	q.send, q.into = nil, nil
	q.r.Reset(q)
	questions.Put(q)
}

// readAll is io.ReadAll into b, which may have room.
func readAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
