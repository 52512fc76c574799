package e2e

import (
	"testing"

	"ramjet/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m, 10) }
