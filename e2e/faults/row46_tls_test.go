package faults

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row46EngineTLS: an https engine whose certificate or protocol is no
// good gets no request, and the state's reason says what is wrong.
func TestB7Row46EngineTLS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*x509.Certificate)
		most   uint16 // TLS version of the engine
		reason string
	}{
		{"another name", func(x *x509.Certificate) { x.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 2)} }, 0, "certificate is valid for 127.0.0.2, not 127.0.0.1"},
		{"expired", func(x *x509.Certificate) { x.NotAfter = time.Now().Add(-time.Minute) }, 0, "certificate has expired"},
		{"not valid yet", func(x *x509.Certificate) {
			x.NotBefore, x.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}, 0, "not yet valid"},
		{"TLS 1.0", func(*x509.Certificate) {}, tls.VersionTLS10, "protocol version"},
		{"TLS 1.1", func(*x509.Certificate) {}, tls.VersionTLS11, "protocol version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cert, certFile, _ := rig.TestCertificate(t, c.change)
			a := rig.NewEngine(t, "a")
			config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, MaxVersion: c.most} //nolint:gosec // an engine of old
			secure, err := tls.Listen("tcp", "127.0.0.1:0", config)
			if err != nil {
				t.Fatal(err)
			}
			front := rig.Hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.Addr) })
			r := rig.StartWith(t, rig.Setup{URLs: []string{"a=https://" + front}, Env: []string{"SSL_CERT_FILE=" + certFile}, NotReady: true})
			resp := r.Post(t, rig.ChatPath, rig.ChatBody(false))
			if resp.Status != 502 && resp.Status != 503 {
				t.Errorf("answered %d %.200q", resp.Status, resp.Body)
			}
			rig.Eventually(t, rig.Patience, "the reason in /health", func() string {
				health := string(r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")).Body)
				if !strings.Contains(health, c.reason) {
					return health
				}
				return ""
			})
			if xs, _ := a.Seen(); len(xs) != 0 {
				t.Error("a request reached it")
			}
		})
	}
}
