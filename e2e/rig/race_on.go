//go:build race

package rig

// RaceEnabled says that the binary under test is to be built with -race too.
const RaceEnabled = true
