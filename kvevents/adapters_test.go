package kvevents

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/radix"
)

// TestAdaptersComeAndGo: one engine loads more adapters in turn than any bound on the names of them, each with the same
// prompt. A prompt matches under its own adapter only and for as long as its blocks are there, and names, blocks and
// bytes do not add up.
func TestAdaptersComeAndGo(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		const loaded, ever = 8, maxRoots + 1000
		x := radix.NewIndex()
		e := &fakeEngine{topic: "kv"}
		r := follow(t, e, func(o *Options) { o.Residency = x.Engine(0) })
		pass()
		ids := span(1, 64)
		match := func(adapter int) int {
			var tokens [radix.MaxEngines]int32
			x.Match(radix.AppendKeys(nil, radix.Root("", fmt.Sprint("adapter ", adapter), ""), ids, 16), 16, &tokens)
			return int(tokens[0])
		}
		hashes := func(adapter int) (all []uint64) {
			for b := range 4 {
				all = append(all, uint64(adapter*4+b+1))
			}
			return all
		}
		most := int64(0)
		for i := range ever {
			name := fmt.Sprint("adapter ", i)
			extra := list(list(name), list(name), list(name), list(name))
			events := []any{storedMap(hashes(i), nil, ids, 16, "lora_id", i+1, "lora_name", name, "extra_keys", extra)}
			if i >= loaded {
				events = append(events, removedMap(hashes(i-loaded)...))
			}
			e.publish(batchOf(float64(time.Now().UnixNano())/1e9, events...))
			if i%500 != 499 {
				continue
			}
			synctest.Wait()
			most = max(most, x.Bytes())
			if i == 499 {
				most *= 2 // what one round of them takes is the bound for all that follow
				continue
			}
			if b, n := x.Bytes(), x.Engine(0).Blocks(); b > most || n != 4*loaded {
				t.Fatalf("after %d adapters: %d bytes, %d blocks; want at most %d and %d", i+1, b, n, most, 4*loaded)
			}
			for k := i - 2*loaded + 1; k <= i; k++ {
				if got, held := match(k), k > i-loaded; held != (got == 64) || !held && got != 0 {
					t.Errorf("adapter %d matches %d tokens, held %v", k, got, held)
				}
			}
		}
		if match(ever) != 0 {
			t.Error("an adapter that was never loaded matches")
		}
		pass()
		r.is(exact, "")
		if n := len(r.apply.roots); n > maxRoots || n < loaded {
			t.Errorf("%d names are remembered, at most %d may be", n, maxRoots)
		}
	})
}
