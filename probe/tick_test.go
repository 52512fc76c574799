package probe

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTrafficTakesTheChecks: with traffic every check falls on a moment in which the process is awake anyway, without it
// every check comes by its timer; in both cases none is later than a fifth of the interval.
func TestTrafficTakesTheChecks(t *testing.T) {
	t.Parallel()
	const beat = 7 * time.Millisecond
	for _, traffic := range []bool{true, false} {
		bubble(t, nil, []string{"a", "b", "c"}, nil, func(t *testing.T, r *rig) {
			start := time.Now()
			for time.Since(start) < time.Minute {
				time.Sleep(beat)
				if traffic {
					r.Tick(time.Now())
					synctest.Wait()
				}
			}
			interval := Defaults().Tuning.Interval
			for name, f := range r.fakes {
				var checks []time.Time
				f.set(func(f *fake) { checks = f.checks })
				if n := len(checks); n < 25 || n > 38 {
					t.Errorf("%s: %d checks in a minute", name, n)
				}
				aligned := 0
				for i := 1; i < len(checks); i++ {
					if gap := checks[i].Sub(checks[i-1]); gap < interval*8/10 || gap > interval*12/10 {
						t.Errorf("%s: %s between two checks (traffic: %v)", name, gap, traffic)
					}
					if checks[i].Sub(start)%beat == 0 {
						aligned++
					}
				}
				if all := aligned == len(checks)-1; all != traffic {
					t.Errorf("%s: %d of %d checks fell on traffic (traffic: %v)", name, aligned, len(checks)-1, traffic)
				}
			}
		})
	}
}
