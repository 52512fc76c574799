package rig

import (
	"strconv"
	"strings"
	"testing"
)

func TestVectorFiles(t *testing.T) {
	requests, responses := ReadVectors(t, "requests"), ReadVectors(t, "responses")
	if len(requests) < 60 || len(responses) < 20 {
		t.Errorf("%d request and %d response vectors, want 60 and 20 at least", len(requests), len(responses))
	}
	checkVectors(t, requests)
	checkVectors(t, responses)
	if got, err := unescape(`a\r\n\x41{len}{B*3}\\{}`); err != nil || got != "a\r\nA"+strconv.Itoa(len(VectorBody))+`BBB\{}` {
		t.Errorf("unescape: %q, %v", got, err)
	}
}

func checkVectors(t *testing.T, vs []Vector) {
	t.Helper()
	seen := map[string]bool{}
	for _, v := range vs {
		if seen[v.Name] {
			t.Errorf("%s is there twice", v.Name)
		}
		seen[v.Name] = true
		for _, w := range v.Want {
			if _, err := strconv.Atoi(w); err != nil && !strings.Contains(" one none broken ok ", " "+w+" ") {
				t.Errorf("%s wants %q", v.Name, w)
			}
		}
		for w := range v.Words {
			if !strings.Contains(" close fin rst plain more alone ", " "+w+" ") {
				t.Errorf("%s has the unknown word %q", v.Name, w)
			}
		}
	}
}
