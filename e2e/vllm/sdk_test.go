package vllm

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// clients: what the official SDKs make of real vLLM's answers when Ramjet passes them on. They come with the
// installation, because vLLM itself depends on them.
func (c *crowd) clients() { runClients(c.t, c.r) }

func runClients(t *testing.T, r *ramjet) {
	t.Helper()
	cmd := exec.Command(filepath.Join(installed(t), "venv", "bin", "python"), "sdk_checks.py", r.public)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("sdk_checks.py: %v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
}
