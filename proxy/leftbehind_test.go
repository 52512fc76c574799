package proxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"ramjet/telemetry"
)

// TestLeftBehind: a request that its client sent whole and left without an
// answer has one end and one line, also when the client left while the request
// before it was under way; but not where the server said, or was told, that
// nothing more is read, and not half a head.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	largeChat := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 20<<10) + `"}]}`
	done, gone, rejected := telemetry.EndDone, telemetry.EndClientGoneWaiting, telemetry.EndRejected
	for _, c := range []struct {
		name   string
		first  string
		behind string
		ends   []telemetry.End
	}{
		{"a whole one", post(chatPath, chatSBody), post(chatPath, chatBody), []telemetry.End{done, gone}},
		{"a head whose body is cut", post(chatPath, chatSBody), post(chatPath, chatBody)[:len(post(chatPath, chatBody))-3], []telemetry.End{done, gone}},
		{"Ramjet's own answer", post(chatPath, chatSBody), get("/health") + post(chatPath, chatBody), []telemetry.End{done, gone, gone}},
		{"a large body, and another", post(chatPath, chatSBody), post(chatPath, largeChat) + post(chatPath, chatBody), []telemetry.End{done, gone, gone}},
		{"half a head", post(chatPath, chatSBody), "POST /v1/chat/completions HTTP/1.1\r\nHost", []telemetry.End{done}},
		{"no request", post(chatPath, chatSBody), "\x16\x03\x01\r\n\r\n", []telemetry.End{done, rejected}},
		{"one that nobody serves, and another", post(chatPath, chatSBody), get("/nothing") + post(chatPath, chatBody), []telemetry.End{done, rejected, gone}},
		{"behind an upload", post("/v1/audio/transcriptions", "--x--\r\n", "Content-Type: multipart/form-data; boundary=x"), post(chatPath, chatBody), []telemetry.End{done, gone}},
		{"behind the last one", post(chatPath, chatSBody, "Connection: close"), post(chatPath, chatBody), []telemetry.End{done}},
		{"behind a WebSocket", get("/v1/realtime", "Connection: Upgrade", "Upgrade: websocket"), post(chatPath, chatBody), []telemetry.End{done}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{func(x *exchange) {
				x.write(streamHead, chunk(roleEvent), chunk(doneEvent)) // and no end
				x.gone()
			}})
			nc, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			cl := newClient(t, nc)
			cl.send(c.first)
			resp := cl.head("POST")
			cl.event(resp)
			cl.event(resp)
			cl.send(c.behind)
			_ = nc.(*net.TCPConn).CloseWrite()
			if b, err := io.ReadAll(cl.br); bytes.Contains(b, []byte("HTTP/")) {
				t.Errorf("another answer came where the rest of the first belongs: %q, %v", b, err)
			}
			f.checkIdle()
			eventually(t, "the connection's end", func() bool { return f.srv.connections() == 0 })
			f.ask(get("/health")) // whose line is behind all others
			f.ends(append(c.ends, done)...)
		})
	}
}
