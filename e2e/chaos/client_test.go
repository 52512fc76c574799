package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// patience is how long a client waits for anything at all; every limit of the
// proxy under test is far below.
const patience = 40 * time.Second

// outcome is what a client saw of one request.
type outcome struct {
	ID      string `json:"id"`
	Path    string `json:"path"`
	Request []byte `json:"-"` // of an SDK: the members of its body
	SDK     bool   `json:"-"`
	Stream  bool   `json:"stream"`
	Sent    bool   `json:"sent"`    // the whole request was handed to the kernel
	Status  int    `json:"status"`  // 0: no head came
	HeadID  string `json:"head_id"` // X-Request-Id of the answer
	Whole   bool   `json:"whole"`   // the answer's framing came to its end
	Success bool   `json:"success"` // and it says that all went well
	Code    string `json:"code"`    // of an error, in the stream or instead
	Text    string `json:"text"`
	Left    string `json:"left"` // how the client left before the end
	Hung    bool   `json:"hung"` // nothing came for the whole patience
	Problem string `json:"problem"`
	Nth     int    `json:"-"` // of the requests on its connection, from 0
	Took    time.Duration
}

// client sends one request after another, on one connection while that stands.
type client struct {
	address string
	nc      net.Conn
	r       *bufio.Reader
	sent    int // on this connection
}

func (c *client) close() {
	if c.nc != nil {
		_ = c.nc.Close()
	}
	c.nc = nil
}

// do sends a request and reads as much of its answer as the client wants.
func (c *client) do(a *ask) (o outcome) {
	o = outcome{ID: a.id, Path: a.path, Stream: a.stream}
	began := time.Now()
	defer func() { o.Took = time.Since(began) }()
	if c.nc == nil {
		nc, err := net.DialTimeout("tcp", c.address, 5*time.Second)
		if err != nil {
			o.Problem = "connect: " + err.Error()
			return o
		}
		c.nc, c.r, c.sent = nc, bufio.NewReader(nc), 0
	}
	o.Nth = c.sent
	c.sent++
	raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", a.path, a.id, len(a.body), a.body)
	_ = c.nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.nc, raw); err != nil {
		o.Problem = "send: " + err.Error()
		c.close()
		return o
	}
	o.Sent = true
	keep := c.read(a, &o)
	if !keep || o.Left != "" || !o.Whole {
		c.close()
	}
	return o
}

// read reads the answer; it reports whether the connection can be used again.
func (c *client) read(a *ask, o *outcome) bool {
	if a.leave != "" && (!a.stream || a.after < 4) { // during the wait for the answer, most of the time
		_ = c.nc.SetReadDeadline(time.Now().Add(time.Duration(a.after) * 30 * time.Millisecond))
		if _, err := c.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			c.leave(a, o)
			return false
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	}
	r, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodPost})
	if err != nil {
		c.problem(o, err)
		return false
	}
	defer r.Body.Close()
	o.Status, o.HeadID = r.StatusCode, r.Header.Get("X-Request-Id")
	body, err := c.body(a, o, r.Body)
	if o.Left != "" {
		o.judge(body, strings.Contains(r.Header.Get("Content-Type"), "event-stream"))
		o.Success = false
		return false
	}
	if err != nil {
		c.problem(o, err)
	}
	o.Whole = err == nil
	o.judge(body, strings.Contains(r.Header.Get("Content-Type"), "event-stream"))
	return err == nil && !r.Close
}

// body reads the body, slowly if the client is slow, until it wants to leave.
func (c *client) body(a *ask, o *outcome, r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	piece := make([]byte, 4096)
	for pauses := 0; ; {
		n, err := r.Read(piece)
		b.Write(piece[:n])
		_ = c.nc.SetReadDeadline(time.Now().Add(patience))
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return b.Bytes(), err
		}
		if a.leave != "" && a.stream && bytes.Count(b.Bytes(), []byte("\n\n")) >= a.after {
			c.leave(a, o)
			return b.Bytes(), nil
		}
		if a.slow && pauses < 10 {
			pauses++
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (c *client) leave(a *ask, o *outcome) {
	o.Left = a.leave
	switch a.leave {
	case "rst":
		reset(c.nc)
	case "half":
		if t, ok := c.nc.(*net.TCPConn); ok {
			_ = t.CloseWrite()
			_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, c.nc)
		}
	}
}

func (c *client) problem(o *outcome, err error) {
	o.Problem = err.Error()
	o.Hung = errors.Is(err, os.ErrDeadlineExceeded)
}

// judge reads what the body says.
func (o *outcome) judge(body []byte, events bool) {
	if !events {
		o.Code = errorCode(body)
		if o.Status == 200 {
			var aborted bool
			o.Text, o.Success, aborted = wholeText(o.Path, body)
			if o.Success = o.Success && o.Whole; aborted {
				o.Code = abortCode
			}
		}
		return
	}
	end := false
	for block := range bytes.SplitSeq(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\n\n")) {
		data := dataOf(block)
		if code := errorCode(data); code != "" {
			o.Code = code
			continue
		}
		text, ended, aborted := eventText(data)
		o.Text += text
		end = end || ended
		if aborted {
			o.Code = abortCode
		}
	}
	o.Success = end && o.Whole && o.Status == 200 && o.Code == ""
}

func dataOf(block []byte) []byte {
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			return bytes.TrimSpace(data)
		}
	}
	return nil
}

// errorCode returns the code of an error in any of its shapes, or its type or
// "error" if there is none; "" for what is no error.
func errorCode(b []byte) string {
	var e struct {
		Type  string
		Code  json.RawMessage
		Error json.RawMessage
	}
	if json.Unmarshal(b, &e) != nil || len(e.Error) == 0 && e.Type != "error" || string(e.Error) == "null" {
		return ""
	}
	var inner struct {
		Code json.RawMessage
		Type string
	}
	_ = json.Unmarshal(e.Error, &inner)
	for _, text := range []string{string(inner.Code), string(e.Code), inner.Type} {
		if text = strings.Trim(text, `"`); text != "" && text != "null" {
			return text
		}
	}
	return "error"
}

// abortCode stands for an engine's own word that it did not finish.
const abortCode = "abort"

// eventText is the text of one event of a stream, and whether it says that the
// answer came to its proper end, or was given up.
func eventText(data []byte) (text string, end, aborted bool) {
	var e struct {
		Type    string
		Choices []struct {
			Text   string
			Delta  struct{ Content string }
			Finish string `json:"finish_reason"`
		}
		Delta    json.RawMessage
		Response struct {
			Status  string
			Details struct{ Reason string } `json:"incomplete_details"`
		}
	}
	if json.Unmarshal(data, &e) != nil {
		return "", false, false
	}
	for _, c := range e.Choices {
		text += c.Text + c.Delta.Content
		end = end || slices.Contains(finished, c.Finish)
		aborted = aborted || c.Finish == "abort"
	}
	var delta struct {
		Text string
		Stop string `json:"stop_reason"`
	}
	switch e.Type {
	case "content_block_delta", "message_delta":
		_ = json.Unmarshal(e.Delta, &delta)
		// vLLM has no word of the API for it: null, or a word of its own.
		return delta.Text, slices.Contains(finished, delta.Stop), e.Type == "message_delta" && !slices.Contains(finished, delta.Stop)
	case "response.output_text.delta":
		_ = json.Unmarshal(e.Delta, &text)
	case "response.completed":
		end = true
	case "response.incomplete":
		end = e.Response.Details.Reason == "max_output_tokens"
		aborted = !end
	}
	return text, end, aborted
}
