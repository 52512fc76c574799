package e2e

import (
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestInheritedSocketUnnamed: a socket that a supervisor hands over, and that
// neither listen nor admin.listen names, is named in the log.
func TestInheritedSocketUnnamed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sockets are handed over on Linux only")
	}
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=3 exec "$0" "$@"`, rig.Binary(t, ""), "serve",
		"--log.format=json", "--tokens.source=off", "--engine=a=http://127.0.0.1:9")
	var addresses []string
	for range 3 {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		f, err := ln.File()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		addresses = append(addresses, ln.Addr().String())
	}
	cmd.Args = append(cmd.Args, "--listen="+addresses[0], "--admin="+addresses[1])
	out := new(rig.Output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	rig.Eventually(t, 2*rig.Patience, "the log", func() string {
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "an inherited socket is closed") && strings.Contains(line, addresses[2]) {
				return ""
			}
		}
		return "does not name " + addresses[2] + ": " + out.String()
	})
	if strings.Count(out.String(), "an inherited socket is closed") != 1 {
		t.Errorf("others are named too: %s", out)
	}
}
