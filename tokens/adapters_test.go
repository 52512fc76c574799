package tokens

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ramjet/radix"
)

// TestAdaptersComeAndGo: one prompt asked of thousands of adapters, in turn and again: the keys are each adapter's own,
// and what is remembered is the prompt's ids once and the keys of a few roots.
func TestAdaptersComeAndGo(t *testing.T) {
	t.Parallel()
	const ever = 5000
	m := NewModel(ModelOptions{Source: testSource(t)})
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("the ship sails on by night ", 80) + `"}]}`
	var p Prepared
	prepare(t, m, &p, EndpointChat, "m", body)
	prepare(t, m, &p, EndpointChat, "m", body) // from the cache, so that there are nodes to keep keys
	if !p.Exact || len(p.First()) < 16 {
		t.Fatalf("exact %v, %d ids", p.Exact, len(p.First()))
	}
	seen := map[uint64]bool{}
	var keys []uint64
	var full int
	for i := range ever + 3 {
		name := fmt.Sprint("adapter ", i%ever)
		root := p.Root("", name)
		keys = p.AppendKeys(keys[:0], root, 16)
		if want := radix.AppendKeys(nil, radix.Root("", name, ""), p.First(), 16); !slices.Equal(keys, want) {
			t.Fatalf("%s: %d keys that are not the prompt's %d", name, len(keys), len(want))
		}
		if i < ever && seen[keys[0]] {
			t.Fatalf("%s shares a block with another adapter", name)
		}
		seen[keys[0]] = true
		c := p.source.cache
		c.mu.Lock()
		bytes := c.bytes
		c.mu.Unlock()
		if i%500 == 0 {
			c.check(t)
		}
		if i == maxKeyRuns {
			full = bytes
		}
		if i > maxKeyRuns && bytes > full {
			t.Fatalf("after %d adapters the cache has %d bytes, %d with %d of them", i+1, bytes, full, maxKeyRuns)
		}
	}
	if full == 0 || p.scr.node == nil {
		t.Error("nothing was remembered")
	}
}
