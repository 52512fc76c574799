package faults

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row27UnsolicitedBytesTLS: a whole answer that nobody asked for, behind
// the one that was, on the connection to an https engine. Whether it comes in
// the same write, at once behind it or while the connection is idle, it must
// not become the answer to the next request.
func TestB7Row27UnsolicitedBytesTLS(t *testing.T) {
	t.Parallel()
	cert, certFile, _ := rig.TestCertificate(t)
	a := rig.NewEngine(t, "a")
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	front := rig.Hop(t, secure, func() (net.Conn, error) { return net.Dial("tcp", a.Addr) })
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=https://" + front}, Env: []string{"SSL_CERT_FILE=" + certFile}, NotReady: true,
		Flags: []string{"--eject.after=1000000"}})
	r.AwaitReady()
	good, forged := rig.JSONResponse(200, rig.ChatAnswer("mine")), rig.JSONResponse(200, `{"choices":"FORGED"}`)
	for name, play := range map[string]rig.Script{
		"in the same write": func(x *rig.Exchange) { x.Write(good + forged) },
		"at once behind it": func(x *rig.Exchange) { x.Write(good); x.Write(forged) },
		"while it is idle":  func(x *rig.Exchange) { x.Write(good); x.Pause(10 * time.Millisecond); x.Write(forged) },
		"a part of one":     func(x *rig.Exchange) { x.Write(good + forged[:40]) },
	} {
		sent := make(chan struct{}, 20)
		a.On(func(x *rig.Exchange) { play(x); sent <- struct{}{} })
		for range 10 {
			if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 || !strings.Contains(string(resp.Body), "mine") {
				t.Errorf("%s: answered %d %.200q", name, resp.Status, resp.Body)
			}
			select {
			case <-sent:
			case <-time.After(rig.Patience):
				t.Fatalf("%s: the engine did not send it", name)
			}
			time.Sleep(300 * time.Millisecond) // through the front, into the pool
		}
	}
	a.On(nil)
	r.OneLineEach()
	if n := r.Metrics().Leases(); n != 0 {
		t.Errorf("%v leases are left", n)
	}
}
