package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain turns into an engine of its own process when asked to (engines that
// are stopped or killed by signal cannot live inside the test process), else
// runs the tests.
func TestMain(m *testing.M) {
	if name := os.Getenv(engineProcessEnv); name != "" {
		os.Exit(runEngineProcess(name))
	}
	flag.Parse()
	widenParallelism()
	code := m.Run()
	if binaries.dir != "" {
		if err := os.RemoveAll(binaries.dir); err != nil {
			fmt.Fprintln(os.Stderr, "cannot remove the built binary:", err)
		}
	}
	os.Exit(code)
}

// widenParallelism lets more tests overlap than there are cores: they wait for
// clocks far more than they compute. An explicit -parallel is kept.
func widenParallelism() {
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if explicit {
		return
	}
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic("BUG: cannot set -test.parallel: " + err.Error())
	}
}
