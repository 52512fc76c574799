package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row45Redirect: an engine that redirects is not followed, whatever
// asks it: a client's request, a health check, a look at its models, its
// tokenizer or its event sources. Where it points to is never reached.
func TestB7Row45Redirect(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var reached atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	there := "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://" + ln.Addr().String() + "/latest/meta-data\r\nContent-Length: 0\r\n\r\n"
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	for _, path := range []string{"/v1/models", "/version", "/metrics", "/kv_event_sources", "/load"} {
		a.Get(path, there)
	}
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: append([]string{"--route.policy=round-robin", "--tokens.source=auto"}, rig.QuickHealth...)})
	a.On(func(x *rig.Exchange) { x.Write(there); x.Finish() })
	b.On(func(x *rig.Exchange) { x.Write(there); x.Finish() })
	for i := range 4 {
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID(fmt.Sprint("redirect-", i)), rig.ChatBody(i%2 == 0)))
		if resp.Status == 200 || strings.Contains(string(resp.Body), "meta-data") {
			t.Errorf("answered %d %.200q", resp.Status, resp.Body)
		}
	}
	a.Get("/health", there)
	rig.Eventually(t, 2*rig.Patience, "a redirect is no health", func() string {
		return map[bool]string{false: r.EngineState("a")}[r.EngineState("a") != "ready"]
	})
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections to where the engine points", n)
	}
	a.On(nil)
	b.On(nil)
}

// TestB7Row45Config: addresses that lead to what is none of our business are
// refused at check and at start. config/ has every way to write one.
func TestB7Row45Config(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://169.254.169.254":           "leads to a link-local address",
		"http://[::ffff:169.254.169.254]/": "leads to a link-local address",
		"http://metadata.google.internal":  "leads to a cloud metadata service",
		"file:///etc/passwd":               "is neither http nor https",
		"http://user:hunter2@127.0.0.1:1":  "",
	} {
		file := filepath.Join(t.TempDir(), "ramjet.yaml")
		text := "engines:\n  - {name: a, url: \"" + url + "\"}\n  - {name: b, url: \"http://127.0.0.1:2\"}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"check", "serve"} {
			out, err := exec.Command(rig.Binary(t, ""), command, "--config", file).CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), file+":2:") || strings.Contains(string(out), "hunter2") {
				t.Errorf("%s %s: %v: %s", command, url, err, out)
			}
		}
	}
}
