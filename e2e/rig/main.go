package rig

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Main is what TestMain of a package of whole-process tests calls. It turns into
// an engine of its own process when asked to (engines that are stopped or killed
// by signal cannot live inside the test process), else runs the tests and removes
// the binaries that they built. As many tests overlap as overlap says, unless
// -parallel does.
func Main(m *testing.M, overlap int) {
	if name := os.Getenv(engineProcessEnv); name != "" {
		os.Exit(runEngineProcess(name))
	}
	flag.Parse()
	widenParallelism(overlap)
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
func widenParallelism(overlap int) {
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if explicit {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(overlap)); err != nil {
		panic("BUG: cannot set -test.parallel: " + err.Error())
	}
}
