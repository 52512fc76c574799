package rig

import (
	"testing"
	"time"
)

// Patience is how long a test waits for something that ought to happen at once.
// The machine is shared, so it is generous: it decides between "happens" and
// "does not", never between fast and slow.
const Patience = 15 * time.Second

// Eventually waits until ok returns "" and fails the test with its last answer
// when it does not within the limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() string) {
	t.Helper()
	if last := Poll(limit, ok); last != "" {
		t.Errorf("%s: not within %v: %s", what, limit, last)
	}
}

// Poll calls ok until it returns "" or the limit has passed, and returns its
// last answer.
func Poll(limit time.Duration, ok func() string) string {
	deadline := time.Now().Add(limit)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		last := ok()
		if last == "" || time.Now().After(deadline) {
			return last
		}
		time.Sleep(pause)
	}
}

// Slow skips a test that takes long under -short, with the reason.
func Slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: " + why)
	}
}
