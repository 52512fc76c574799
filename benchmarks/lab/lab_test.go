package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
		bound  float64
		said   string
	}{
		{nil, Spread{}, 1, NotMeasured},
		{[]float64{2}, Spread{N: 1, Median: 2, Min: 2, Max: 2}, 1, NotMet},
		{[]float64{3, 1, 2}, Spread{N: 3, Median: 2, Min: 1, Max: 3}, 3, Met},
		{[]float64{4, 1, 3, 2}, Spread{N: 4, Median: 2.5, Min: 1, Max: 4}, 2, NotSeparable},
	} {
		s := SpreadOf(c.values)
		if s != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, s, c.want)
		}
		if got := s.Against(c.bound); got != c.said {
			t.Errorf("%v against %v: %q, want %q", c.values, c.bound, got, c.said)
		}
	}
}

// A child whose input is kept open lives until Stop, and its clocks can be read.
func TestProcess(t *testing.T) {
	p, err := Start(t.TempDir(), "cat", "cat")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if rss, err := p.Resident(); err != nil || rss < 0 {
		t.Errorf("resident %v, %v", rss, err)
	}
	before, err := CPUOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; { // spends CPU
		_ = strings.Repeat("x", 1000)
	}
	if after, err := CPUOf(os.Getpid()); err != nil || after <= before {
		t.Errorf("the CPU clock went from %v to %v, %v", before, after, err)
	}
	if used, err := p.Window(t.Context(), 10*time.Millisecond); err != nil || used < 0 {
		t.Errorf("cat uses %v processors, %v", used, err)
	}
	p.Stop()
	p.Stop() // does no harm
}

func TestAwaitTellsWhatAChildSaid(t *testing.T) {
	p, err := Start(t.TempDir(), "sh", "sh", "-c", "echo no such engine >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await("it", time.Minute, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "no such engine") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended, and the error is %v", err)
	}
}

func TestPorts(t *testing.T) {
	ports, err := FreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		seen[p] = true
	}
	if len(seen) != 5 {
		t.Errorf("ports %v are not five", ports)
	}
	name := filepath.Join(t.TempDir(), "ports")
	for text, want := range map[string][2]string{
		"public=1:2\nadmin=3:4\n": {"1:2", "3:4"},
		"public=1:2\nadmin=3":     {}, // half written
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if public, admin := readPorts(name); public != want[0] || admin != want[1] {
			t.Errorf("%q: %q and %q", text, public, admin)
		}
	}
}

func TestMachine(t *testing.T) {
	m := Describe(t.Context(), "no-such-binary")
	m.Finish()
	rows := m.Rows()
	for _, want := range []string{"| version | unknown, commit ", m.Go, m.Start.Format("2006-01-02"), "| quiet? |"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no %q in\n%s", want, rows)
		}
	}
}

func TestSaveMakesTheFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "b.md")
	if err := Save(name, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}
