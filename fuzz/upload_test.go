package fuzz

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/probe"
	"ramjet/proxy"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// arrived is an upload as an engine got it.
type arrived struct {
	kind, path string
	body       []byte
}

// uploadWay is a proxy in front of one engine that keeps what arrives there.
func uploadWay(tb testing.TB) (address string, got chan arrived) {
	tb.Helper()
	got = make(chan arrived, 4)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			got <- arrived{kind: r.Header.Get("Content-Type"), path: r.URL.Path, body: body}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}],"text":"ok"}`)
	}))
	tb.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		tb.Fatal(err)
	}
	metrics := telemetry.NewMetrics("1", "go")
	e := engine.New(engine.Options{Name: "a", URL: at, Profile: "mtp", Metrics: metrics.Engine("a")})
	tb.Cleanup(e.Close)
	po := probe.Defaults()
	po.Metrics = metrics
	monitor := probe.New(po, []*engine.Engine{e})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { monitor.Run(ctx); close(ended) }()
	tb.Cleanup(func() { cancel(); <-ended })
	server, err := proxy.New(proxy.Options{
		Router:   route.New(lease.NewBook(func() {}), radix.NewIndex(), radix.NewMemory(), route.Settings{Policy: route.PolicyLatency, Profile: route.ProfileRule}, &route.Set{Members: []route.Member{{Engine: e, Account: lease.NewAccount("mtp")}}}),
		Outcomes: monitor, Metrics: metrics, Log: telemetry.NewLog(io.Discard, telemetry.LevelError, "json"),
		Settings: proxy.Settings{Limits: proxy.Limits{Body: 1 << 20, BodyMemory: 8 << 20, Header: 32 << 10}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	for limit := time.Now().Add(5 * time.Second); ; {
		if ok, _ := monitor.AnyEngine(); ok {
			return ln.Addr().String(), got
		}
		if time.Now().After(limit) {
			tb.Fatal("the engine does not become ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// FuzzUpload: Ramjet reads nothing of a multipart body and of its Content-Type
// only the media type, so that an upload either arrives byte for byte, once,
// with the type that the client gave, or is refused and never arrives.
func FuzzUpload(f *testing.F) {
	for _, kind := range []string{"multipart/form-data; boundary=x", "multipart/form-data", "multipart/form-data; boundary=\"a\\\"b\"", "multipart/form-data;boundary=" + "0123456789", "Multipart/Form-Data; BOUNDARY=x; charset=\xff", "application/json", ""} {
		f.Add(kind, []byte("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\r\nContent-Length: 9\"\r\n\r\nabc\r\n--x--\r\n"), false)
		f.Add(kind, []byte("--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--x\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"), true)
	}
	address, got := uploadWay(f)
	f.Fuzz(func(t *testing.T, kind string, body []byte, chunked bool) {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\n", kind)
		if chunked {
			fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n")
			for rest := body; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/2)
				fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
				rest = rest[n:]
			}
			b.WriteString("0\r\n\r\n")
		} else {
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		}
		_, _ = nc.Write(b.Bytes()) // refused before it is all out, perhaps
		r, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatalf("no answer to %q: %v", kind, err)
		}
		defer r.Body.Close()
		answer, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("the answer %d %q ends with %v", r.StatusCode, answer, err)
		}
		judgeUpload(t, kind, body, r.StatusCode, got)
	})
}

func judgeUpload(t *testing.T, kind string, body []byte, status int, got chan arrived) {
	t.Helper()
	var a arrived
	select {
	case a = <-got:
	default:
		if status < 400 {
			t.Fatalf("status %d, and nothing arrived", status)
		}
		return
	}
	switch {
	case status != 200:
		t.Fatalf("%q: status %d, and it arrived all the same", kind, status)
	case a.path != "/v1/audio/transcriptions" || !bytes.Equal(a.body, body):
		t.Fatalf("%s got %q, sent %q", a.path, a.body, body)
	case !bytes.Equal(bytes.Trim([]byte(kind), " \t"), []byte(a.kind)) && !bytes.ContainsAny([]byte(kind), "\r\n"):
		t.Fatalf("Content-Type %q arrived as %q", kind, a.kind)
	case len(got) > 0:
		t.Fatalf("%q arrived twice", body)
	}
}
