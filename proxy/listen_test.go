package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/telemetry"
)

// TestRequestsOfEachShape come one behind the other on one connection: those
// that come whole are read in another place than the rest, and each place has
// to leave the connection as the other one expects it.
func TestRequestsOfEachShape(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if bytes.Contains(x.body, []byte(`"stream":true`)) {
			streaming(x)
		} else {
			x.write(plainAnswer)
		}
	}})
	c := f.dial()
	long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 20<<10) + `"}]}`
	whole, streamed := post(chatPath, chatBody), post(chatPath, chatSBody)
	chunked := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chatBody), chatBody)
	shapes := map[string][]string{ // what is sent, with a pause behind each piece
		"whole":          {whole},
		"streamed":       {streamed},
		"two at once":    {whole + streamed},
		"long":           {post(chatPath, long)},
		"chunked":        {chunked},
		"head cut":       {whole[:20], whole[20:]},
		"body cut":       {whole[:len(whole)-5], whole[len(whole)-5:]},
		"one and a half": {whole + whole[:30], whole[30:]},
		"our own":        {get("/health")},
		"refused":        {post("/nothing", "{}")},
	}
	want := map[string]int{"two at once": 2, "one and a half": 2}
	requests := 0
	for round := range 3 {
		for name, pieces := range shapes {
			for i, p := range pieces {
				if i > 0 {
					time.Sleep(2 * time.Millisecond)
				}
				c.send(p)
			}
			for range max(want[name], 1) {
				requests++
				a := c.receive()
				status := 200
				if name == "refused" {
					status = 404
				}
				if a.StatusCode != status || a.err != nil {
					t.Fatalf("round %d, %s: %d %q, %v", round, name, a.StatusCode, a.body, a.err)
				}
			}
		}
	}
	f.records(requests)
}

// TestEndWithTheRequest: a client's last request and the end of its sending
// may come in one wake-up, of which the poller tells once. The connection ends
// all the same.
func TestEndWithTheRequest(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(plainAnswer) }})
	for i := range 100 {
		nc, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			f.ask(get("/health")) // the server may or may not wait for nc by now
		}
		cork(t, nc.(*net.TCPConn))
		_, _ = io.WriteString(nc, get("/health"))
		_ = nc.(*net.TCPConn).CloseWrite() // pushes both out as one
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, nc); err != nil {
			t.Fatalf("connection %d did not end: %v", i, err)
		}
		_ = nc.Close()
	}
	eventually(t, "the connections' end", func() bool { return f.srv.connections() <= 1 })
}

// TestEndBetweenRequests: a client that ends its side while nothing is under
// way is not kept.
func TestEndBetweenRequests(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(plainAnswer) }})
	for range 20 {
		c := f.dial()
		c.send(post(chatPath, chatBody))
		c.receive().want(t, 200, answerBody)
		_ = c.nc.(*net.TCPConn).CloseWrite()
		c.closed()
	}
	eventually(t, "the connections' end", func() bool { return f.srv.connections() == 0 })
	f.ends(slices.Repeat([]telemetry.End{telemetry.EndDone}, 20)...)
}
