package config

import (
	"math/rand/v2"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		known   []string
		want    string
		isClose bool
	}{
		{"lat", []string{"latency", "least-tokens", "round-robin", "session"}, "latency", true},
		{"std", []string{"mtp", "standard", "none"}, "mtp", false},
		{"on", []string{"off", "auto"}, "off", false},
		{"plocy", []string{"profile", "policy"}, "policy", false},
		{"polciy", []string{"profile", "policy"}, "policy", true},
		{"warning", []string{"info", "warn"}, "warn", true},
		{"x", nil, "", false},
		{"", []string{"a"}, "a", true},
	} {
		got, isClose := nearest(tt.name, tt.known)
		if got != tt.want || isClose != tt.isClose {
			t.Errorf("%s: got %s, %v, want %s, %v", tt.name, got, isClose, tt.want, tt.isClose)
		}
	}
}

// slowDistance is the definition, without a table.
func slowDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	d := min(slowDistance(a[:len(a)-1], b)+1, slowDistance(a, b[:len(b)-1])+1, slowDistance(a[:len(a)-1], b[:len(b)-1])+cost)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		d = min(d, slowDistance(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return d
}

func TestDistance(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	random := func() string {
		b := make([]byte, rnd.IntN(6))
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	for range 2000 {
		a, b := random(), random()
		if got, want := distance(a, b), slowDistance(a, b); got != want {
			t.Fatalf("%q to %q: got %d, want %d", a, b, got, want)
		}
	}
}
