package kvevents

import (
	"strings"
	"testing"
)

// TestWiringSlotsAreUsedAgain: what was held against the engine that had a slot
// is not held against the next one, and messages name the engine of the moment.
func TestWiringSlotsAreUsedAgain(t *testing.T) {
	t.Parallel()
	w := NewWiring(nil)
	w.SetName(5, "old")
	w.SetName(2, "b")
	for print := range uint64(10) {
		w.Saw(5, print)
		w.Saw(2, print)
	}
	if got := w.Same(2); !strings.Contains(got, "engine old") {
		t.Fatalf("two feeds of one publisher: %q", got)
	}
	w.SetName(5, "new")
	if a, b := w.Same(2), w.Same(5); a != "" || b != "" {
		t.Errorf("the next engine of the slot has %q, its neighbour %q", b, a)
	}
	// What the one before received says nothing of who else receives it.
	for print := range uint64(10) {
		w.Saw(2, print)
	}
	if got := w.Same(2); got != "" {
		t.Errorf("against a feed that is gone: %q", got)
	}
	for print := range uint64(10) {
		w.Saw(2, print+100)
		w.Saw(5, print+100)
	}
	if got := w.Same(2); !strings.Contains(got, "engine new") {
		t.Errorf("two feeds of one publisher: %q", got)
	}
	// Many engines with slots that nobody has in between.
	matches := make([]int32, 6)
	matches[2] = 320
	for range wiringFits {
		w.Answer(5, Answer{Prompt: 400, Reported: 320, Predicted: 0, Matches: matches})
	}
	if got := w.Hint(5); !strings.Contains(got, "engine b") {
		t.Errorf("swapped endpoints: %q", got)
	}
}
