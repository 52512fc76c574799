package policy

import "testing"

// A smoke test, or a median of two, passes and fails nothing and is no report.
func TestFewSeedsAreNotJudged(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want bool
	}{{Config{Seeds: 3}, true}, {Config{Seeds: 2}, false}, {Config{Seeds: 1}, false}, {Config{Seeds: 3, Short: true}, false}} {
		if got := c.cfg.Judged(); got != c.want {
			t.Errorf("%+v: judged %v", c.cfg, got)
		}
	}
}
