package radix

import "testing"

// chainOf is a chain of n keys that others share as far as their seeds do.
func chainOf(n int, seed uint64) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = 1 + uint64(i)*1000003 + seed //nolint:gosec // no key of anything
	}
	return keys
}

// asked is one request: what the memory claims, what the engine says, and that
// it computed the prompt.
func asked(m *Memory, keys []uint64, held int) (claimed int) {
	var got [MaxEngines]int32
	m.Match(keys, &got)
	claimed = int(got[0])
	last := uint64(0)
	if claimed > 0 {
		last = keys[claimed-1]
	}
	m.Learn(0, keys, 16)
	m.Told(0, keys[0], last, claimed, held)
	return claimed
}

// TestDeniedClaims: what an engine denies again and again is no longer claimed,
// and what it denied once still is.
func TestDeniedClaims(t *testing.T) {
	t.Parallel()
	one, long, other := chainOf(60, 0), chainOf(200, 0), chainOf(60, 7)
	type ask struct {
		keys       []uint64
		held, want int
	}
	repeat := func(n int, a ask) (list []ask) {
		for range n {
			list = append(list, a)
		}
		return list
	}
	for _, c := range []struct {
		name string
		asks []ask
	}{
		{"it caches nothing", append([]ask{{one, 0, 0}, {one, 0, 60}, {one, 0, 60}}, repeat(57, ask{one, 0, 0})...)},
		{"it evicted once", []ask{{one, 0, 0}, {one, 0, 60}, {one, 60, 60}, {one, 0, 60}, {one, 60, 60}, {one, 60, 60}}},
		{"it caches again", []ask{{one, 0, 0}, {one, 0, 60}, {one, 0, 60}, {one, 60, 0}, {one, 60, 60}, {one, 60, 60}}},
		{"its blocks are larger", []ask{{one, 0, 0}, {one, 49, 60}, {one, 49, 60}, {one, 49, 49}, {one, 49, 49}}},
		{"and a longer prompt has more of them", []ask{{one, 0, 0}, {one, 49, 60}, {one, 49, 60}, {one, 49, 49}, {long, 49, 49}, {long, 196, 200}, {long, 196, 200}, {long, 196, 196}}},
		{"a longer prompt is denied too", []ask{{one, 0, 0}, {one, 0, 60}, {one, 0, 60}, {long, 0, 0}, {long, 0, 200}, {long, 0, 0}}},
		{"another prompt is not", []ask{{one, 0, 0}, {one, 0, 60}, {one, 0, 60}, {other, 0, 0}, {other, 60, 60}, {one, 0, 0}}},
	} {
		m := NewMemory()
		for i, a := range c.asks {
			if got := asked(m, a.keys, a.held); got != a.want {
				t.Fatalf("%s: request %d claims %d keys, want %d", c.name, i, got, a.want)
			}
		}
	}
}

// TestDoubtsEnd: a doubt lasts for so many prompts, not for ever, and not beyond
// the engine's process.
func TestDoubtsEnd(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	one, other := chainOf(60, 0), chainOf(30, 11)
	for range 4 {
		asked(m, one, 0)
	}
	for i := range doubtLife - 10 {
		m.Learn(0, other, 16)
		if i%100 == 0 {
			if got := asked(m, one, 0); got != 0 {
				t.Fatalf("claims %d keys after %d other prompts", got, i)
			}
		}
	}
	for range 20 {
		m.Learn(0, other, 16)
	}
	wrong := 0
	for range 10 {
		if asked(m, one, 0) != 0 {
			wrong++
		}
	}
	if wrong != doubtAfter {
		t.Errorf("%d wrong claims when the doubt is over, want %d", wrong, doubtAfter)
	}
	m.Drop(0)
	m.Told(0, one[0], one[59], 60, 0)
	m.Learn(0, one, 16)
	if got := asked(m, one, 60); got != 60 {
		t.Errorf("another process is doubted: %d keys, want 60", got)
	}
}

// TestDoubtsAreBounded: however many prompts are denied.
func TestDoubtsAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.SetCapacity(0, 1)
	m.Learn(0, chainOf(1, 1), 16)
	before := m.Bytes()
	for seed := range uint64(10_000) {
		for range 3 {
			m.Told(0, seed*977, seed*977+5, 9, int(seed%9))
		}
	}
	if grown := m.Bytes() - before; grown > 8<<10 {
		t.Errorf("doubts take %d bytes, want at most 8 KiB", grown)
	}
}
