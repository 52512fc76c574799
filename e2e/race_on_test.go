//go:build race

package e2e

// raceEnabled says that the binary under test is to be built with -race too.
const raceEnabled = true
