package proxy

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramjet/engine"
)

// TestCertificateReload: a new pair is used within a second, a broken one
// leaves the old in use.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	clock := time.Now().Add(-time.Hour)
	put := func(certPEM, keyPEM []byte) {
		t.Helper()
		clock = clock.Add(time.Minute)
		for name, text := range map[string][]byte{cert: certPEM, key: keyPEM} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(name, clock, clock); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := makeCert(t, "first"), makeCert(t, "second")
	put(first.certPEM, first.keyPEM)
	config, err := LoadTLS(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, []script{streaming}, func(s *setup) { s.TLS = config })
	served := func() string {
		nc, err := tls.Dial("tcp", f.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer nc.Close()
		return nc.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := served(); got != "first" {
		t.Fatalf("serves %q", got)
	}
	put([]byte("broken"), second.keyPEM)
	time.Sleep(1100 * time.Millisecond)
	if got := served(); got != "first" {
		t.Errorf("a broken pair made it serve %q", got)
	}
	put(second.certPEM, second.keyPEM)
	eventually(t, "the second certificate", func() bool { return served() == "second" })
	if _, err := LoadTLS(cert, filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a missing key")
	}
}

// TestTLSBothSides: a TLS client and a TLS engine, plain Go path throughout.
func TestTLSBothSides(t *testing.T) {
	t.Parallel()
	f, dial := startOn(t, "tls", []script{streaming})
	c := newClient(t, dial())
	for range 3 {
		c.send(post(chatPath, chatSBody))
		c.receive().want(t, 200, wholeStream)
	}
	if n := f.engines[0].dialled(); n != 1 {
		t.Errorf("%d connections to the engine", n)
	}
}

// TestTLSHandshakeIsBounded: somebody who connects and says nothing in TLS
// does not hold a goroutine for ever, and plain HTTP gets no answer.
func TestTLSHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	f, _ := startOn(t, "tls", []script{streaming}, func(s *setup) { s.Timeouts.ClientHeader = soon })
	silent := f.dial()
	silent.closed()
	plain := f.dial()
	plain.send(get("/health"))
	_ = plain.nc.SetReadDeadline(time.Now().Add(patience))
	if b, _ := io.ReadAll(plain.nc); len(b) > 0 && b[0] == 'H' && b[9] == '2' {
		t.Errorf("plain HTTP was served: %q", b)
	}
	eventually(t, "connections to end", func() bool { return f.srv.connections() == 0 })
}

var _ engine.Flight = (*gate)(nil)
