package faults

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// handedOver starts the binary with listening sockets of ours, as systemd does
// for a socket unit: descriptors from 3 on, the process named by LISTEN_PID.
func handedOver(t *testing.T, sockets []*net.TCPListener, engines ...*rig.Engine) *exec.Cmd {
	t.Helper()
	args := []string{"-c", `LISTEN_PID=$$ LISTEN_FDS=2 exec "$0" "$@"`, rig.Binary(t, ""), "serve",
		"--listen", sockets[0].Addr().String(), "--admin", sockets[1].Addr().String(), "--log.format=json", "--tokens.source=off"}
	for _, e := range engines {
		args = append(args, "--engine", e.Name+"="+e.URL())
	}
	cmd := exec.Command("/bin/sh", args...)
	for _, ln := range sockets {
		f, err := ln.File()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out := new(rig.Output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return cmd
}

// TestB7Row41Upgrade replaces the process three times while clients connect
// anew for each request: with sockets that a supervisor holds nobody is refused,
// whether the next process begins before or after the last one's end.
func TestB7Row41Upgrade(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sockets are handed over on Linux only")
	}
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	var sockets []*net.TCPListener
	for range 2 {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		sockets = append(sockets, ln)
	}
	ready := func(when string) {
		rig.Eventually(t, 2*rig.Patience, "ready "+when, func() string {
			if status, body := rig.HTTPGet("http://" + sockets[1].Addr().String() + "/readyz"); status != http.StatusOK {
				return fmt.Sprint(status, " ", body)
			}
			return ""
		})
	}
	present := handedOver(t, sockets, a, b)
	ready("at first")

	var stop atomic.Bool
	var served, failed atomic.Int64
	var wg sync.WaitGroup
	client := &http.Client{Timeout: 4 * rig.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + sockets[0].Addr().String() + "/v1/chat/completions"
	for i := range 4 {
		wg.Go(func() {
			for n := 0; !stop.Load() && n < 100_000; n++ {
				body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"client %d request %d"}]}`, i, n)
				resp, err := client.Post(url, "application/json", strings.NewReader(body))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					if failed.Add(1) < 5 {
						t.Errorf("client %d request %d: %v", i, n, err)
						if err == nil {
							t.Errorf("status %s", resp.Status)
						}
					}
				}
				served.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	more := func() {
		from := served.Load()
		rig.Eventually(t, 2*rig.Patience, "served", func() string { return map[bool]string{false: "stuck"}[served.Load() > from+40] })
	}
	end := func(cmd *exec.Cmd) {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the former process: %v", err)
		}
	}
	more()
	for i := range 3 {
		if before := i%2 == 0; before {
			next := handedOver(t, sockets, a, b)
			// Both answer on the admin socket, so that only the former's end shows that the next one serves.
			time.Sleep(200 * time.Millisecond)
			end(present)
			present = next
		} else {
			end(present)
			present = handedOver(t, sockets, a, b)
		}
		ready(fmt.Sprint("after change ", i))
		more()
	}
	stop.Store(true)
	wg.Wait()
	end(present)
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), served.Load())
	}
	t.Logf("%d requests on as many connections over three changes of the process", served.Load())
}
