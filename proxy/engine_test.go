package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/engine"
)

// script is what an engine does with one request. Whatever it writes goes out
// as it is, so that it can break every rule. The connection is kept when it
// returns, unless it closed it.
type script func(x *exchange)

// rawEngine is an HTTP engine of which every byte is the test's.
type rawEngine struct {
	t    testing.TB
	ln   net.Listener
	addr string
	run  script
	wg   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conns    map[net.Conn]struct{}
	accepted int
	requests [][]byte // heads and bodies as received
	stopped  bool
	member   *engine.Engine // as the server sees it; set before the first request

	stopping chan struct{} // closed when the test ends
	sent     atomic.Uint64 // bytes written by scripts
}

// exchange is one request at an engine.
type exchange struct {
	e    *rawEngine
	conn *net.TCPConn
	br   *bufio.Reader

	n      int // of the request at this engine, from 0
	onConn int // of the request on this connection, from 0
	head   []byte
	req    *http.Request
	body   []byte
}

func startEngine(t testing.TB, run script) *rawEngine {
	t.Helper()
	e := &rawEngine{t: t, ln: listen(t), run: run, conns: make(map[net.Conn]struct{}), stopping: make(chan struct{})}
	e.addr = e.ln.Addr().String()
	e.wg.Go(e.accept)
	return e
}

func (e *rawEngine) accept() {
	for {
		nc, err := e.ln.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.accepted++
		stopped := e.stopped
		e.conns[nc] = struct{}{}
		e.mu.Unlock()
		if stopped {
			_ = nc.Close()
			return
		}
		e.wg.Go(func() {
			e.serve(nc.(*net.TCPConn))
			_ = nc.Close()
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.conns, nc)
		})
	}
}

func (e *rawEngine) serve(nc *net.TCPConn) {
	br := bufio.NewReaderSize(nc, 64<<10)
	for i := 0; ; i++ {
		x := &exchange{e: e, conn: nc, br: br, onConn: i}
		if !x.read() {
			return
		}
		e.run(x)
	}
}

// read takes one request off the connection, noting its exact bytes.
func (x *exchange) read() bool {
	for !bytes.HasSuffix(x.head, []byte("\r\n\r\n")) {
		line, err := x.br.ReadBytes('\n')
		if err != nil {
			return false
		}
		x.head = append(x.head, line...)
	}
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(x.head), x.br)))
	if err != nil {
		x.e.t.Errorf("the engine got no well-formed request: %v\n%s", err, x.head)
		return false
	}
	x.req = req
	switch {
	case len(req.TransferEncoding) > 0:
		// ReadRequest buffers, so the body is taken from our own reader.
		if x.body, err = readChunked(x.br); err != nil {
			return false
		}
	case req.ContentLength > 0:
		x.body = make([]byte, req.ContentLength)
		if _, err := io.ReadFull(x.br, x.body); err != nil {
			return false
		}
	}
	e := x.e
	e.mu.Lock()
	defer e.mu.Unlock()
	x.n = len(e.requests)
	e.requests = append(e.requests, append(bytes.Clone(x.head), x.body...))
	return true
}

// readChunked reads a chunked body as plainly as can be.
func readChunked(br *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return out, err
		}
		var size int
		if _, err := fmt.Sscanf(line, "%x\r\n", &size); err != nil {
			return out, fmt.Errorf("cannot read chunk size %q: %w", line, err)
		}
		chunk := make([]byte, size+2)
		if n, err := io.ReadFull(br, chunk); err != nil {
			return append(out, chunk[:min(n, size)]...), err
		}
		if string(chunk[size:]) != "\r\n" {
			return out, errors.New("a chunk does not end in CRLF")
		}
		out = append(out, chunk[:size]...)
		if size == 0 {
			return out, nil
		}
	}
}

func (e *rawEngine) stop() {
	close(e.stopping)
	_ = e.ln.Close()
	e.mu.Lock()
	e.stopped = true
	for nc := range e.conns {
		_ = nc.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// got returns the requests received so far.
func (e *rawEngine) got() [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([][]byte(nil), e.requests...)
}

func (e *rawEngine) dialled() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepted
}

// write sends s as it is.
func (x *exchange) write(s ...string) {
	n, _ := io.WriteString(x.conn, strings.Join(s, ""))
	x.e.sent.Add(uint64(n))
}

// taken waits until the server has read all that was written, so that what
// follows arrives in a read of its own.
func (x *exchange) taken() {
	eventually(x.e.t, "the server to read", func() bool { return x.e.member.BytesIn() >= x.e.sent.Load() })
}

// close ends the connection with a FIN.
func (x *exchange) close() { _ = x.conn.Close() }

// reset ends the connection with an RST.
func (x *exchange) reset() {
	_ = x.conn.SetLinger(0)
	_ = x.conn.Close()
}

// gone waits until the other side closed the connection, and fails if it does
// not.
func (x *exchange) gone() {
	_ = x.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := x.br.Read(make([]byte, 1))
	var late net.Error
	if n != 0 || errors.As(err, &late) && late.Timeout() {
		x.e.t.Errorf("the engine's connection was not closed (read %d bytes, %v)", n, err)
	}
	_ = x.conn.Close()
}

// Answers of well-behaved engines.
const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
	endOfBody  = "0\r\n\r\n"

	roleEvent  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	tokenEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	stopEvent  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n"
	abortEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"abort"}]}` + "\n\n"
	usageEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"

	answerBody = `{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
)

// chunk frames s as one chunk.
func chunk(s string) string { return string(appendChunk(nil, []byte(s))) }

// sized is an answer with a length.
func sized(status, kind, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, kind, len(body), body)
}

// answering is the script of an engine that always gives the same answer.
func answering(parts ...string) script {
	return func(x *exchange) {
		for _, p := range parts {
			x.write(p)
		}
	}
}

// streaming is a short chat stream as vLLM writes it, one event a chunk.
func streaming(x *exchange) {
	x.write(streamHead)
	for _, e := range []string{roleEvent, tokenEvent, stopEvent, doneEvent} {
		x.write(chunk(e))
	}
	x.write(endOfBody)
}

// plain is a short chat answer.
var plainAnswer = sized("200 OK", "application/json", answerBody)
