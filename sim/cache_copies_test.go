package sim

import (
	"slices"
	"testing"
)

// toldOf is an observer that notes the hashes whose removal it is told of.
type toldOf struct{ hashes []uint64 }

func (r *toldOf) Stored(StoredBlocks)        {}
func (r *toldOf) Removed(_ int, hash uint64) { r.hashes = append(r.hashes, hash) }
func (r *toldOf) Cleared()                   {}
func (r *toldOf) Offloaded(_, _ []uint64)    {}
func (r *toldOf) StepEnd()                   {}
func (r *toldOf) Restarted()                 {}

// TestLastCopyAlone: with a fault of that name a block that has another copy goes without a word, and the last is told
// of; without one every copy is.
func TestLastCopyAlone(t *testing.T) {
	t.Parallel()
	for _, lastOnly := range []bool{false, true} {
		seen := &toldOf{}
		c := newBlockCache(4, seen)
		c.lastOnly = func() bool { return lastOnly }
		ids := c.alloc(nil, 4)
		for i, hash := range []uint64{7, 7, 7, 8} {
			c.store(ids[i], blockKey{hash: hash})
		}
		c.release(ids) // the last one is evicted first
		want := []uint64{8, 7, 7, 7}
		if lastOnly {
			want = []uint64{8, 7}
		}
		if n := c.evict(4); n != 4 || !slices.Equal(seen.hashes, want) || c.cached != 0 {
			t.Errorf("last copy alone %v: %d evicted, told of %v, want %v", lastOnly, n, seen.hashes, want)
		}
	}
}

// TestReasoningDropped: reasoning before the last question is left out, and that of the answer under way stays.
func TestReasoningDropped(t *testing.T) {
	t.Parallel()
	msgs := []ChatMessage{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a", Reasoning: "old"}, {Role: "user", Content: "r"}, {Role: "assistant", Content: "b", Reasoning: "new"}}
	const whole = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nold\n</think>\n\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n<think>\nnew\n</think>\n\nb<|im_end|>\n"
	const dropped = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n<think>\nnew\n</think>\n\nb<|im_end|>\n"
	for drop, want := range map[bool]string{false: whole, true: dropped} {
		if got, err := RenderChat(msgs, ChatOptions{DropReasoning: drop}); err != nil || got != want {
			t.Errorf("dropped %v: %q, %v", drop, got, err)
		}
	}
}
