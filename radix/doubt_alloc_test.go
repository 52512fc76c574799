//go:build !race

package radix

import "testing"

// TestDoubtsAllocateNothing once there are some.
func TestDoubtsAllocateNothing(t *testing.T) {
	m := NewMemory()
	keys := chainOf(600, 0)
	var held [MaxEngines]int32
	for range 3 {
		asked(m, keys, 0)
	}
	if n := testing.AllocsPerRun(100, func() {
		m.Match(keys, &held)
		m.Told(0, keys[0], keys[599], 600, 0)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
