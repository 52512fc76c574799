package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// readCalls is how often the process called read and its like so far.
func readCalls(r *rig.Ramjet) int {
	r.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", r.Cmd.Process.Pid))
	if err != nil {
		r.T.Skipf("the kernel does not count reads: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "syscr: "); ok {
			var n int
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	r.T.Fatalf("no syscr in %q", b)
	return 0
}

// TestOneReadAToken: a paced stream costs one read a token. A relay that began
// anew at each token would read twice, the second time in vain, because a new
// wait always tries first.
func TestOneReadAToken(t *testing.T) {
	t.Parallel()
	const tokens, pace = 300, 3 * time.Millisecond
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--health.interval=1m"}})
	once := func() float64 {
		begin, end := make(chan struct{}), make(chan struct{})
		a.On(func(x *rig.Exchange) {
			x.StreamHead()
			x.Events(rig.RoleEvent())
			<-begin
			for i := range tokens {
				x.Pause(pace)
				x.Events(rig.DeltaEvent(fmt.Sprintf("%d ", i)))
			}
			close(end)
			x.Gone(0)
		})
		c := r.Dial(t)
		defer c.Close()
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("paced"), rig.ChatBody(true)))
		c.EventCount(rig.Patience, 1)
		before := readCalls(r)
		close(begin)
		<-end
		c.EventCount(rig.Patience, 1+tokens)
		return float64(readCalls(r)-before) / tokens
	}
	// An engine that is held up writes in pairs and a checker reads too: the best of some streams counts.
	var best float64
	for try := range 3 {
		if got := once(); try == 0 || got < best {
			best = got
		}
	}
	t.Logf("%.3f reads a token", best)
	if best > 1.5 {
		t.Errorf("%.2f reads a token, want 1", best)
	}
}
