package engine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/telemetry"
)

func TestStateWord(t *testing.T) {
	t.Parallel()
	e := New(Options{Name: "a"})
	if s := e.Status(); s.State != telemetry.StateDown || s.Reason == "" || s.Since.IsZero() {
		t.Errorf("at first %+v", s)
	}
	from, changed := e.SetState(telemetry.StateReady, "checked")
	first := e.Status()
	if from != telemetry.StateDown || !changed || first.Reason != "checked" {
		t.Errorf("from %v, changed %v, now %+v", from, changed, first)
	}
	time.Sleep(time.Millisecond)
	if from, changed = e.SetState(telemetry.StateReady, "still"); from != telemetry.StateReady || changed {
		t.Errorf("from %v, changed %v", from, changed)
	}
	if now := e.Status(); now.Since != first.Since || now.Reason != "still" || e.State() != telemetry.StateReady {
		t.Errorf("a better reason changed the age: %+v", now)
	}
	// Writers are ordered: every state that was entered is left once.
	var wg sync.WaitGroup
	var mu sync.Mutex // guards left
	left := map[telemetry.State]int{}
	for i := range 200 {
		wg.Go(func() {
			from, changed := e.SetState(telemetry.States()[i%2], "race")
			if changed {
				mu.Lock()
				left[from]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	a, b := telemetry.States()[0], telemetry.States()[1]
	if d := left[a] - left[b]; d < -1 || d > 1 {
		t.Errorf("states were left %v times", left)
	}
}

func TestModelList(t *testing.T) {
	t.Parallel()
	var none *Models
	if none.Serves([]byte("m")) || none.Name([]byte("m")) != "" || none.Object("m") != nil {
		t.Error("no list serves something")
	}
	m := NewModels([]string{"m", "n", "m"}, [][]byte{[]byte("1"), []byte("2"), []byte("3")}, []byte("raw"))
	if !m.Serves([]byte("n")) || m.Serves([]byte("o")) || m.Serves(nil) || m.Name([]byte("m")) != "m" || string(m.Object("m")) != "1" || m.Object("o") != nil {
		t.Errorf("the list %+v is not read well", m)
	}
	defer func() {
		if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "BUG:") {
			t.Errorf("panicked with %v", p)
		}
	}()
	NewModels([]string{"m"}, nil, nil)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for o := OutcomeOK; o <= OutcomeAborted; o++ {
		if got, want := o.Failure(), o != OutcomeOK && o != OutcomeNeutral; got != want {
			t.Errorf("outcome %d: failure %v", o, got)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown outcome passes")
		}
	}()
	_ = (OutcomeAborted + 1).Failure()
}

type fakeFlight struct {
	causes    []telemetry.End
	streaming bool
	blocked   bool
	progress  uint64
}

// EngineGone implements Flight.
func (f *fakeFlight) EngineGone(cause telemetry.End) { f.causes = append(f.causes, cause) }

// Streaming implements Flight.
func (f *fakeFlight) Streaming() bool { return f.streaming }

// Blocked implements Flight.
func (f *fakeFlight) Blocked() bool { return f.blocked }

// Progress implements Flight.
func (f *fakeFlight) Progress() uint64 { return f.progress }

func TestFlights(t *testing.T) {
	t.Parallel()
	e := New(Options{Name: "a"})
	waiting, one, two := &fakeFlight{progress: 99, blocked: true}, &fakeFlight{streaming: true, progress: 3}, &fakeFlight{streaming: true, progress: 4}
	e.AbortAll(telemetry.EndEngineStalled) // nobody there
	for _, f := range []*fakeFlight{waiting, one, two} {
		e.Enter(f)
	}
	for _, blocked := range []int{0, 1} {
		two.blocked = blocked > 0 // its progress stays in the sum
		if n, b, p := e.Streams(); n != 2 || b != blocked || p != 7 || e.Flights() != 3 {
			t.Errorf("%d streams, %d blocked, progress %d, %d flights", n, b, p, e.Flights())
		}
	}
	e.Leave(two)
	e.Leave(two)
	e.AbortAll(telemetry.EndEngineStalled)
	if len(waiting.causes) != 1 || len(one.causes) != 1 || len(two.causes) != 0 || one.causes[0] != telemetry.EndEngineStalled {
		t.Errorf("told: %v %v %v", waiting.causes, one.causes, two.causes)
	}
	e.Leave(waiting)
	e.Leave(one)
	if n, b, p := e.Streams(); n != 0 || b != 0 || p != 0 || e.Flights() != 0 {
		t.Errorf("%d streams, %d blocked, progress %d, %d flights", n, b, p, e.Flights())
	}
}

func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	e := New(Options{Name: "a"})
	if !e.LastFinish().IsZero() || e.BytesIn() != 0 {
		t.Error("a new engine shows signs of life")
	}
	now := time.Now()
	e.Finished(now)
	e.AddBytesIn(5)
	e.AddBytesIn(7)
	if !e.LastFinish().Equal(now) || e.BytesIn() != 12 {
		t.Errorf("finished %v, %d bytes", e.LastFinish(), e.BytesIn())
	}
	// What is compared with it would jump with the wall clock otherwise.
	if text := e.LastFinish().String(); !strings.Contains(text, "m=+") {
		t.Errorf("%s has no monotonic reading", text)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/key":
			_, _ = io.WriteString(w, r.Header.Get("Authorization")+" "+r.Header.Get("Accept-Encoding"))
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		case "/away":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Name: "a", URL: u, APIKey: "k"})
	for _, c := range []struct {
		path   string
		status int
		body   string
		fails  bool
	}{
		{"/key", 200, "Bearer k identity", false}, {"/long", 200, "xxxxxxxxxx", false}, {"/nothing", 418, "", false}, {"/cut", 200, "", true},
	} {
		status, body, err := e.Get(t.Context(), c.path, int64(max(len(c.body), 10)))
		if status != c.status || string(body) != c.body && !c.fails || (err != nil) != c.fails {
			t.Errorf("%s: %d %q, %v", c.path, status, body, err)
		}
	}
	if status, _, err := e.Get(t.Context(), "/away", 10); status != 302 || err != nil {
		t.Errorf("a redirect was followed: %d, %v", status, err)
	}
}

// secure returns a TLS listener's engine that trusts it.
func secure(t *testing.T) (*Engine, net.Listener) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	e := New(Options{Name: "a", URL: &url.URL{Scheme: "https", Host: ln.Addr().String()}, Dial: patience})
	e.pool.tls.RootCAs = x509.NewCertPool()
	e.pool.tls.RootCAs.AddCert(cert)
	t.Cleanup(e.Pool().Close)
	return e, ln
}

// TestTLSEngine: bytes go by the connection's own methods, and the pool knows
// a closed connection all the same.
func TestTLSEngine(t *testing.T) {
	t.Parallel()
	e, ln := secure(t)
	served := make(chan net.Conn, 10)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 100)
				for {
					n, err := nc.Read(buf)
					if err != nil {
						return
					}
					_, _ = nc.Write(buf[:n])
					if string(buf[:n]) == "bye" {
						_ = nc.Close()
					}
				}
			}()
			served <- nc
		}
	}()
	c := dial(t, e)
	if c.Socket.Raw() != nil {
		t.Error("raw access to a TLS connection")
	}
	echo := func(s string) {
		t.Helper()
		buf := make([]byte, 100)
		if _, err := c.Socket.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Socket.Read(buf); string(buf[:n]) != s || err != nil {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
	}
	echo("hello")
	e.Pool().Put(c, time.Now())
	if e.Pool().Reuse(time.Now()) != c {
		t.Fatal("a live TLS connection was not used again")
	}
	echo("again")
	echo("bye")
	if _, err := c.Socket.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	_ = c.Close()
	other := dial(t, e)
	e.Pool().Put(other, time.Now())
	<-served
	_ = (<-served).Close()
	eventually(t, "the closed connection to be seen", func() bool { return !other.quiet() })
	if e.Pool().Reuse(time.Now()) != nil || e.Pool().Open() != 0 {
		t.Errorf("a closed TLS connection was given out; %d open", e.Pool().Open())
	}
}

func TestTLSEngineIsVerified(t *testing.T) {
	t.Parallel()
	e, ln := secure(t)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = nc.Read(make([]byte, 1))
			_ = nc.Close()
		}
	}()
	e.pool.tls.RootCAs = x509.NewCertPool()
	var unknown x509.UnknownAuthorityError
	if _, err := e.Pool().Dial(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("got %v", err)
	}
	if e.Pool().Open() != 0 {
		t.Errorf("%d open", e.Pool().Open())
	}
}

// TestTLSHandshakeIsBounded by the dial limit.
func TestTLSHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t, func(o *Options) { o.URL.Scheme, o.Dial = "https", 50*time.Millisecond })
	began := time.Now()
	if _, err := e.Pool().Dial(t.Context()); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
