package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// python returns the interpreter that has the SDKs.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("the Python SDKs are not installed; `make test` installs them into .venv")
	}
	return path
}

// The engines run at their calibrated speed, so that a client has the time to leave in the middle of an answer.
const realSpeed = "1"

// Both relays must look the same to a client.
func TestOpenAIPython(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	for _, relay := range []string{"verbatim", "stream"} {
		t.Run(relay, func(t *testing.T) {
			t.Parallel()
			runChecks(t, start(t, realSpeed, "--relay="+relay), interpreter, "openai_checks.py")
		})
	}
}

func TestAnthropicPython(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	runChecks(t, start(t, realSpeed), interpreter, "anthropic_checks.py")
}

func TestOpenAINode(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	if _, err := os.Stat("node_modules/openai"); err != nil {
		t.Skip("the openai npm package is not installed; `make test` installs it")
	}
	runChecks(t, start(t, realSpeed), "node", "openai_checks.mjs")
}
