package rig

import (
	"testing"
)

func TestParseMetrics(t *testing.T) {
	good := "# HELP a_total x\n# TYPE a_total counter\na_total{m=\"q\\\"\\\\\\n\",e=\"x\"} 3\na_total 1e3\nb{e=\"x\", } NaN 17\n"
	m, err := ParseMetrics(good)
	if err != nil {
		t.Fatalf("good page refused: %v", err)
	}
	if got := m.Sum("a_total"); got != 1003 {
		t.Errorf("sum = %v, want 1003", got)
	}
	if got := m.Sum("a_total", "m", "q\"\\\n"); got != 3 {
		t.Errorf("labelled sum = %v, want 3", got)
	}
	for _, bad := range []string{
		"a 1", "a{x=\"\\t\"} 1\n", "a{x=\"1\"y=\"2\"} 1\n", "a{x=\"1\"} 1\na{x=\"1\"} 2\n", "1a 1\n", "a x\n",
		"a{x=\"1\n\"} 1\n", "a 1\n# TYPE a counter\n", "a{x=\"\xff\"} 1\n", "a{x=1} 1\n", "a\n", "# TYPE a odd\n",
	} {
		if _, err := ParseMetrics(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}
