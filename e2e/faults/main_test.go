package faults

import (
	"testing"

	"ramjet/e2e/rig"
)

// Ten rows at once starve each other on two cores: a load of a request each 20
// ms no longer is one.
func TestMain(m *testing.M) { rig.Main(m, 6) }
