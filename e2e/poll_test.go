package e2e

import (
	"testing"
	"time"
)

// patience is how long a test waits for something that ought to happen at once.
// The machine is shared, so it is generous: it decides between "happens" and
// "does not", never between fast and slow.
const patience = 5 * time.Second

// eventually waits until ok returns "" and fails the test with its last answer
// when it does not within the limit.
func eventually(t testing.TB, limit time.Duration, what string, ok func() string) {
	t.Helper()
	if last := poll(limit, ok); last != "" {
		t.Errorf("%s: not within %v: %s", what, limit, last)
	}
}

// poll calls ok until it returns "" or the limit has passed, and returns its
// last answer.
func poll(limit time.Duration, ok func() string) string {
	deadline := time.Now().Add(limit)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		last := ok()
		if last == "" || time.Now().After(deadline) {
			return last
		}
		time.Sleep(pause)
	}
}

func slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: " + why)
	}
}
