package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// sdkPython is the environment that `make test` installs.
const sdkPython = "../../.venv/bin/python"

// sdkClients are the real SDKs as clients of Ramjet, in a process of their own;
// nil: there are none.
type sdkClients struct {
	testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startSDKs waits until they are loaded, which takes seconds.
func (w *world) startSDKs() *sdkClients {
	w.Helper()
	if !w.sdks {
		return nil
	}
	python, err := filepath.Abs(sdkPython)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		w.Logf("no SDKs among the clients: %s is missing (make test installs it)", sdkPython)
		return nil
	}
	c := &sdkClients{TB: w.TB, cmd: exec.Command(python, "sdk_clients.py", "http://"+w.r.public, strconv.FormatUint(w.seed, 10))}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err != nil {
		w.Fatalf("cannot make a pipe: %v", err)
	}
	c.cmd.Stderr = os.Stderr
	if err := c.cmd.Start(); err != nil {
		w.Fatalf("cannot start the SDKs: %v", err)
	}
	c.out = bufio.NewReader(out)
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		w.Errorf("the SDKs said %q: %v", line, err)
	}
	return c
}

// run lets them send until ctx ends, and tells each outcome.
func (c *sdkClients) run(ctx context.Context, told func(outcome)) {
	if c == nil {
		return
	}
	_, _ = io.WriteString(c.in, "go\n")
	stop := context.AfterFunc(ctx, func() { _ = c.in.Close() }) // their sign to end
	defer stop()
	for {
		b, err := c.out.ReadBytes('\n')
		if err != nil {
			break
		}
		o := outcome{SDK: true, Sent: true}
		var more struct{ Request json.RawMessage }
		if err := json.Unmarshal(b, &o); err != nil {
			c.Errorf("the SDKs said %q: %v", b, err)
			continue
		}
		_ = json.Unmarshal(b, &more)
		o.Request = more.Request
		told(o)
	}
	if err := c.cmd.Wait(); err != nil {
		c.Errorf("the SDKs ended with %v", err)
	}
}
