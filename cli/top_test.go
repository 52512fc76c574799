package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
)

var updateTop = flag.Bool("update-top", false, "write testdata/top/*.golden")

// storedPicture is the one of testdata/top: engines in several states, unknown
// values, and names that try to drive the terminal.
func storedPicture(t *testing.T) *picture {
	t.Helper()
	p := &picture{zone: time.UTC}
	for name, v := range map[string]any{"topology": &p.topology, "requests": &p.decisions} {
		text, err := os.ReadFile("testdata/top/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestTopPictures(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 0}, {100, 0}, {160, 0}, {80, 24}, {80, 12}, {40, 10}} {
		p := storedPicture(t)
		name := fmt.Sprintf("testdata/top/%dx%d.golden", size[0], size[1])
		got := strings.Join(p.lines(size[0], size[1]), "\n") + "\n"
		if *updateTop {
			if err := os.WriteFile(filepath.FromSlash(name), []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(name); err != nil || got != string(text) {
			t.Errorf("%s: %v\ngot:\n%s\nwant:\n%s", name, err, got, text)
		}
	}
}

// Whatever the size, no line is wider or lower than the screen, and none holds
// anything that a terminal acts upon.
func TestTopStaysOnTheScreen(t *testing.T) {
	t.Parallel()
	many := storedPicture(t)
	for i := range 60 {
		many.topology.Engines = append(many.topology.Engines, topEngine{Name: fmt.Sprint("engine-", i), State: "down", StateReason: strings.Repeat("界", 50)})
	}
	stale := storedPicture(t)
	stale.stale = "for 3s: \x1b[1mgone"
	for what, p := range map[string]*picture{"stored": storedPicture(t), "many": many, "stale": stale, "empty": {zone: time.UTC}} {
		for _, width := range []int{0, 1, 2, 3, 10, 39, 40, 79, 80, 95, 96, 97, 98, 100, 131, 132, 160} {
			for _, height := range []int{0, 1, 2, 5, 24, 300} {
				lines := p.lines(width, height)
				if height > 0 && len(lines) > height {
					t.Fatalf("%s at %dx%d: %d lines", what, width, height, len(lines))
				}
				for _, line := range lines {
					if n := cellsOf(line); n > width {
						t.Fatalf("%s at %dx%d: %d cells: %q", what, width, height, n, line)
					}
					if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
						t.Fatalf("%s at %dx%d: %q", what, width, height, line)
					}
				}
			}
		}
	}
	if first := stale.lines(80, 24)[0]; first != "NO ANSWER for 3s: ?[1mgone" {
		t.Errorf("%q", first)
	}
}

// With more engines than fit, a few decisions stay in sight.
func TestTopKeepsDecisionsInSight(t *testing.T) {
	t.Parallel()
	p := storedPicture(t)
	for i := range 200 {
		p.topology.Engines = append(p.topology.Engines, topEngine{Name: fmt.Sprint("engine-", i), State: "ready"})
	}
	text := strings.Join(p.lines(100, 30), "\n")
	for _, want := range []string{"more engines; --once shows all", "REASON", "12:00:29"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		room int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"abcdefgh", 6, "abcd.."}, {"", 5, ""}, {"abc", 0, ""},
		{"\x1b[31mred", 20, "?[31mred"}, {"a\nb\tc\x00", 9, "a?b?c?"}, {"\xff\xfe", 9, "??"}, {"a\u202eb", 9, "a?b"}, {"e\u0301", 9, "e?"},
		{"你好", 4, "你好"}, {"你好吗呢", 7, "你好.."}, {"你", 1, ""}, {"\u200bx", 9, "?x"}, {"\u009b31m", 9, "?31m"},
	} {
		if got := fit(c.text, c.room); got != c.want {
			t.Errorf("fit(%q, %d) = %q, want %q", c.text, c.room, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.04: "0.04", 3.14: "3.1", 12.7: "13", 999: "999", 1000: "1.0k", 18400: "18k", 999499: "1.0M", 1.5e6: "1.5M", 2.5e7: "25M", 3e10: "30G"} {
		if got := figure(&v); got != want || len(got) > 5 {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 2*time.Hour + 5*time.Minute: "2h5m", 49 * time.Hour: "2d1h"} {
		if got := age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// topAnswers makes a Ramjet answer with the stored picture.
func topAnswers(t *testing.T, f *fakeRamjet) {
	t.Helper()
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		name := map[string]string{"/api/v1/topology": "topology", "/api/v1/requests": "requests"}[r.URL.Path]
		if name == "" {
			return false
		}
		http.ServeFile(w, r, "testdata/top/"+name+".json")
		return true
	}
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	topAnswers(t, f)
	for name, o := range map[string]TopOptions{"--once": {Once: true}, "no terminal": {}} {
		var out strings.Builder
		o.Out = &out
		if err := Top(t.Context(), []string{"--admin=" + f.addr()}, nil, o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := out.String(); !strings.HasPrefix(text, "Ramjet 1.4.0  degraded") || strings.Contains(text, "\x1b") || !strings.Contains(text, "\nENGINE ") || !strings.Contains(text, "client-gone-s..") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	// A pipe is no terminal either.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := Top(t.Context(), []string{"--admin=" + f.addr()}, nil, TopOptions{In: r, Out: w}); err != nil {
		t.Error(err)
	}
	_ = w.Close()
}

func TestTopSaysWhyNot(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request) bool
		want   string
	}{
		"refused":    {func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(421); return true }, "421"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, "<html>"); return true }, "cannot read the topology"},
		"half of it": {func(w http.ResponseWriter, r *http.Request) bool { fmt.Fprint(w, "{}"); return true }, "cannot read the decisions"},
	} {
		f.answer = c.answer
		var out strings.Builder
		if err := Top(t.Context(), []string{"--admin=" + f.addr()}, nil, TopOptions{Once: true, Out: &out}); err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: %v, printed %q", name, err, out.String())
		}
	}
	if err := Top(t.Context(), []string{"--admin=127.0.0.1:1"}, nil, TopOptions{Once: true, Out: &strings.Builder{}}); err == nil || !strings.Contains(err.Error(), "cannot reach Ramjet's admin port") {
		t.Errorf("%v", err)
	}
}
