package sim

import (
	"fmt"
	"slices"
	"testing"
)

// TestOffload: what the GPU lost comes from the CPU tier and counts as cached, until it is gone there too.
func TestOffload(t *testing.T) {
	t.Parallel()
	var batches []string
	w := newKVWriter(sinkEvents(func(events []kvEvent) {
		text := ""
		for _, e := range events {
			text += fmt.Sprintf("%d %s %d blocks %d tokens of %d; ", e.kind, *e.medium, len(e.hashes), len(e.tokenIDs), e.blockSize)
		}
		batches = append(batches, text)
	}), 1, false)
	c := NewCore(CoreOptions{KVBlocks: 20, OffloadBlocks: 8, Observer: w})
	a, b := promptOf(1, 100), promptOf(2, 40)
	var cached []int
	ask := func(prompt []uint32) {
		s, _ := serve(t, c, Job{Prompt: prompt, MaxTokens: 1})
		cached = append(cached, s.Cached())
	}
	ask(a)
	c.Evict(4) // a's tail
	ask(a)     // two blocks hit, four loaded
	ask(b)     // 8 blocks offloaded in all
	ask(promptOf(3, 40))
	c.Evict(20)
	ask(a) // the tier has lost a's first two blocks, so nothing can be used
	ask(b) // and the six of a that came back have taken its place
	if !slices.Equal(cached, []int{0, 96, 0, 0, 0, 0}) {
		t.Errorf("cached %v", cached)
	}
	want := []string{
		"0 GPU 6 blocks 96 tokens of 16; 0 CPU 6 blocks 0 tokens of 0; ",
		"1 GPU 1 blocks 0 tokens of 0; 1 GPU 1 blocks 0 tokens of 0; 1 GPU 1 blocks 0 tokens of 0; 1 GPU 1 blocks 0 tokens of 0; 0 GPU 4 blocks 64 tokens of 16; ",
		"0 GPU 2 blocks 32 tokens of 16; 0 CPU 2 blocks 0 tokens of 0; ",
		"0 GPU 2 blocks 32 tokens of 16; 1 CPU 1 blocks 0 tokens of 0; 1 CPU 1 blocks 0 tokens of 0; 0 CPU 2 blocks 0 tokens of 0; ",
	}
	if len(batches) < 4 || !slices.Equal(batches[:4], want) {
		t.Errorf("batches\n%q, wanted\n%q", batches, want)
	}
	if s := c.Stats(); s.LoadedTokens < 64 || s.CachedTokens != 32 {
		t.Errorf("%+v", s)
	}
}
