package chaos

import (
	"strings"
	"syscall"
	"testing"
)

// TestLostEngineShows: the end of an engine is held against the test unless
// the test has asked for it.
func TestLostEngineShows(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(s *sim)
		lost bool
	}{
		{"ended", func(s *sim) { s.end(syscall.SIGTERM) }, false},
		{"killed", func(s *sim) { s.end(syscall.SIGKILL) }, false},
		{"died on order", func(s *sim) { _ = s.control("/sim/fault", `{"kind":"die","now":true}`) }, false},
		{"gone by itself", func(s *sim) { s.signal(syscall.SIGKILL) }, true},
		{"crashed", func(s *sim) { s.signal(syscall.SIGQUIT) }, true}, // the runtime's exit status and words of a panic
	} {
		s := &sim{name: "a", path: binary(t, false), addr: "127.0.0.1:0", flags: []string{"--model=m"}}
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		c.end(s)
		<-s.done
		lost := s.losses()
		if (len(lost) == 1) != c.lost || c.name == "crashed" && !strings.Contains(strings.Join(lost, ""), "goroutine ") {
			t.Errorf("%s: %q", c.name, lost)
		}
	}
}
