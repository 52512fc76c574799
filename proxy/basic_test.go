package proxy

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/telemetry"
)

const wholeStream = roleEvent + tokenEvent + stopEvent + doneEvent

func TestStreamArrivesAsSent(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	a := f.ask(post(chatPath, chatSBody))
	a.want(t, 200, wholeStream)
	f.ends(telemetry.EndDone)
}

// TestHeadAndBodyApart: uvicorn writes the head and each piece of the body
// with calls of their own, so they arrive in reads of their own.
func TestHeadAndBodyApart(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"length":  plainAnswer,
		"chunked": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(answerBody) + endOfBody,
		"503":     sized("503 Service Unavailable", "application/json", answerBody),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			f := start(t, []script{func(x *exchange) {
				x.write(head, "\r\n\r\n")
				x.taken()
				x.write(body[:10])
				x.taken()
				x.write(body[10:])
			}})
			a := f.ask(post(chatPath, chatBody))
			status := 200
			if name == "503" {
				status = 503
			}
			a.want(t, status, answerBody)
			if got := a.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if x.n%2 == 0 {
			streaming(x)
		} else {
			x.write(plainAnswer)
		}
	}})
	c := f.dial()
	for i := range 20 {
		c.send(post(chatPath, chatBody))
		want := wholeStream
		if i%2 == 1 {
			want = answerBody
		}
		c.receive().want(t, 200, want)
	}
	f.records(20)
	if n := f.engines[0].dialled(); n != 1 {
		t.Errorf("%d connections to the engine, want 1", n)
	}
}

func TestPipelining(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(sized("200 OK", "application/json", fmt.Sprintf(`{"n":%d,"body":%q}`, x.n, x.body)))
	}})
	c := f.dial()
	var all []string
	for i := range 3 {
		all = append(all, post("/v1/embeddings", fmt.Sprintf(`{"model":"m","input":"%d"}`, i)))
	}
	c.send(all...)
	for i := range 3 {
		c.receive().want(t, 200, fmt.Sprintf(`{"n":%d,"body":"{\"model\":\"m\",\"input\":\"%d\"}"}`, i, i))
	}
}
