package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testCertificate makes a certificate for 127.0.0.1 that signs itself, and the
// files of it and its key.
func testCertificate(t *testing.T) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("cannot make a key: %v", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatalf("cannot make a certificate: %v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("cannot write a key: %v", err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatalf("cannot write %s: %v", file, err)
		}
	}
	cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatalf("cannot read the certificate: %v", err)
	}
	return cert, certFile, keyFile
}

// hop forwards each connection of a listener to another one, both ways, and
// ends both sides when either ends.
func hop(t *testing.T, ln net.Listener, dial func() (net.Conn, error)) string {
	t.Helper()
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := dial()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
				_ = out.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// TestTLSBothSides: a TLS port in front and https engines behind. Streams pass
// byte for byte, a client that leaves is seen, a dying engine tells.
func TestTLSBothSides(t *testing.T) {
	t.Parallel()
	cert, certFile, keyFile := testCertificate(t)
	a := newEngine(t, "a")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	front := hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.addr) })
	r := startWith(t, setup{urls: []string{"a=https://" + front}, env: []string{"SSL_CERT_FILE=" + certFile}, notReady: true,
		flags: []string{"--tls.cert", certFile, "--tls.key", keyFile, "--eject.after=1000000"}})
	r.awaitReady()
	ln, err := listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	roots := x509.NewCertPool()
	pemText, err := os.ReadFile(certFile)
	if err != nil || !roots.AppendCertsFromPEM(pemText) {
		t.Fatalf("cannot read the certificate: %v", err)
	}
	public := r.public
	r.public = hop(t, ln, func() (net.Conn, error) { return tls.Dial("tcp", public, &tls.Config{RootCAs: roots}) })

	c := r.dial(t)
	for range 3 { // one connection, kept
		c.send(request("POST", chatPath, r.id("tls"), chatBody(true)))
		if resp := c.response(patience); resp.status != 200 || string(resp.rawBody) != chunked(chatEvents(3)) {
			t.Errorf("stream: %d %.300q", resp.status, resp.body)
		}
	}
	if resp := r.post(t, chatPath, chatBody(false)); resp.status != 200 || !resp.whole() {
		t.Errorf("plain: %d %.300q", resp.status, resp.body)
	}
	a.on(func(x *exchange) { x.streamHead(); x.gone(0) })
	leaves(t, r, chatBody(true), func(c *client) { c.head(patience) }, (*client).close, a)
	a.on(func(x *exchange) { x.gone(0) })
	leaves(t, r, chatBody(false), func(*client) {}, (*client).abort, a)
	a.on(func(x *exchange) { x.streamHead(); x.events(chatEvents(3)[:3]...); x.close() })
	dialects[0].diedWell(t, r.do(t, request("POST", chatPath, r.id("tls"), chatBody(true))))
	a.on(nil)
	r.served(r.id("after"), true)
	r.oneLineEach()
	if n := r.metrics().leases(); n != 0 {
		t.Errorf("%v leases are left", n)
	}
}

// TestTLSUnknownEngine: an engine whose certificate nobody vouches for is not
// used, and the state's reason says why.
func TestTLSUnknownEngine(t *testing.T) {
	t.Parallel()
	cert, _, _ := testCertificate(t)
	a := newEngine(t, "a")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	front := hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.addr) })
	r := startWith(t, setup{urls: []string{"a=https://" + front}, notReady: true})
	resp := r.post(t, chatPath, chatBody(false))
	if resp.status != 502 && resp.status != 503 {
		t.Errorf("answered %d %.200q", resp.status, resp.body)
	}
	if xs, _ := a.seen(); len(xs) != 0 {
		t.Error("a request reached an engine that nobody vouches for")
	}
	eventually(t, patience, "the reason in /health", func() string {
		health := string(r.do(t, request("GET", "/health", r.id("health"), "", "Connection: close")).body)
		if !strings.Contains(health, "certificate") {
			return health
		}
		return ""
	})
}
