package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestTLSBothSides: a TLS port in front and https engines behind. Streams pass
// byte for byte, a client that leaves is seen, a dying engine tells.
func TestTLSBothSides(t *testing.T) {
	t.Parallel()
	cert, certFile, keyFile := rig.TestCertificate(t)
	a := rig.NewEngine(t, "a")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	front := rig.Hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.Addr) })
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=https://" + front}, Env: []string{"SSL_CERT_FILE=" + certFile}, NotReady: true,
		Flags: []string{"--tls.cert", certFile, "--tls.key", keyFile, "--eject.after=1000000"}})
	r.AwaitReady()
	ln, err := rig.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	roots := x509.NewCertPool()
	pemText, err := os.ReadFile(certFile)
	if err != nil || !roots.AppendCertsFromPEM(pemText) {
		t.Fatalf("cannot read the certificate: %v", err)
	}
	public := r.Public
	r.Public = rig.Hop(t, ln, func() (net.Conn, error) { return tls.Dial("tcp", public, &tls.Config{RootCAs: roots}) })

	c := r.Dial(t)
	for range 3 { // one connection, kept
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("tls"), rig.ChatBody(true)))
		if resp := c.Response(rig.Patience); resp.Status != 200 || string(resp.RawBody) != rig.Chunked(rig.ChatEvents(3)) {
			t.Errorf("stream: %d %.300q", resp.Status, resp.Body)
		}
	}
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 || !resp.Whole() {
		t.Errorf("plain: %d %.300q", resp.Status, resp.Body)
	}
	a.On(func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) })
	rig.Leaves(t, r, rig.ChatBody(true), func(c *rig.Client) { c.Head(rig.Patience) }, (*rig.Client).Close, a)
	a.On(func(x *rig.Exchange) { x.Gone(0) })
	rig.Leaves(t, r, rig.ChatBody(false), func(*rig.Client) {}, (*rig.Client).Abort, a)
	a.On(func(x *rig.Exchange) { x.StreamHead(); x.Events(rig.ChatEvents(3)[:3]...); x.Close() })
	rig.Dialects[0].DiedWell(t, r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("tls"), rig.ChatBody(true))))
	a.On(nil)
	r.Served(r.ID("after"), true)
	r.OneLineEach()
	if n := r.Metrics().Leases(); n != 0 {
		t.Errorf("%v leases are left", n)
	}
}

// TestTLSUnknownEngine: an engine whose certificate nobody vouches for is not
// used, and the state's reason says why.
func TestTLSUnknownEngine(t *testing.T) {
	t.Parallel()
	cert, _, _ := rig.TestCertificate(t)
	a := rig.NewEngine(t, "a")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	front := rig.Hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.Addr) })
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=https://" + front}, NotReady: true})
	resp := r.Post(t, rig.ChatPath, rig.ChatBody(false))
	if resp.Status != 502 && resp.Status != 503 {
		t.Errorf("answered %d %.200q", resp.Status, resp.Body)
	}
	if xs, _ := a.Seen(); len(xs) != 0 {
		t.Error("a request reached an engine that nobody vouches for")
	}
	rig.Eventually(t, rig.Patience, "the reason in /health", func() string {
		health := string(r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")).Body)
		if !strings.Contains(health, "certificate") {
			return health
		}
		return ""
	})
}
