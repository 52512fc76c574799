package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func logLines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

func TestLogLevelsAndValues(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := NewLog(&b, LevelInfo, FormatJSON)
	l.Debug("hidden")
	l.Info("one", "s", "x", "n", 3, "d", 2*time.Second, "err", errors.New("boom"), "none", nil, "st", StateDown, "ok", true, "f", 0.5, "l", []string{"a", "b"})
	l.Warn("two", "b", []byte("bytes\u2028"), "i", int64(4), "u", uint64(5))
	l.Error("three")
	_ = l.Close()
	got := logLines(t, &b)
	if len(got) != 3 {
		t.Fatalf("%d lines: %s", len(got), b.String())
	}
	for k, want := range map[string]any{"level": "info", "message": "one", "s": "x", "n": 3.0, "d": "2s", "err": "boom", "none": nil, "st": "down", "ok": true, "f": 0.5} {
		if v, there := got[0][k]; v != want || !there {
			t.Errorf("%s is %v, want %v", k, v, want)
		}
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", got[0]["time"].(string)); err != nil {
		t.Error(err)
	}
	if got[1]["level"] != "warn" || got[2]["level"] != "error" || got[1]["b"] != "bytes\u2028" || got[1]["u"] != 5.0 {
		t.Errorf("%v %v", got[1], got[2])
	}
	if strings.Contains(b.String(), "\u2028") {
		t.Error("a line separator is in the log")
	}
}

func TestNilLogIsSilent(t *testing.T) {
	t.Parallel()
	var l *Log
	l.Info("x")
	l.Throttled("k", LevelError, "x")
	if l.Enabled(LevelError) || l.Close() != nil {
		t.Error("a nil log does something")
	}
}

func TestConsoleLogStaysOneLine(t *testing.T) {
	t.Parallel()
	for _, text := range hostileTexts() {
		var b bytes.Buffer
		l := NewLog(&b, LevelDebug, FormatConsole)
		l.Warn("engine state", "reason", text, "n", 1)
		_ = l.Close()
		checkLine(t, b.String(), FormatConsole)
		if !strings.Contains(b.String(), "engine state") || !strings.Contains(b.String(), "WRN") {
			t.Errorf("%q", b.String())
		}
	}
}

func TestParseLevel(t *testing.T) {
	t.Parallel()
	for i, w := range levelWords {
		if l, err := ParseLevel(w); err != nil || l != Level(i) {
			t.Errorf("%s: %v %v", w, l, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "debug, info, warn, error") {
		t.Errorf("the error %v does not name the levels", err)
	}
}

func TestThrottledTellsHowOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := NewLog(&b, LevelInfo, FormatJSON)
		for i := range 5 {
			l.Throttled("k", LevelWarn, "bad", "n", i)
		}
		l.Throttled("other", LevelWarn, "else")
		l.Throttled("quiet", LevelDebug, "never")
		time.Sleep(throttleWindow + time.Second)
		l.Throttled("k", LevelWarn, "bad", "n", 5)
		time.Sleep(3 * throttleWindow)
		l.Throttled("k", LevelWarn, "bad", "n", 6)
		l.Throttled("k", LevelWarn, "bad", "n", 7)
		_ = l.Close()
		synctest.Wait()
		got := logLines(t, &b)
		want := []struct {
			msg string
			n   any
			rep any
		}{{"bad", 0.0, nil}, {"else", nil, nil}, {"bad", 4.0, 4.0}, {"bad", 5.0, 1.0}, {"bad", 6.0, nil}, {"bad", 7.0, 1.0}}
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d: %s", len(got), len(want), b.String())
		}
		for i, w := range want {
			if got[i]["message"] != w.msg || got[i]["n"] != w.n || got[i]["repeated"] != w.rep {
				t.Errorf("line %d is %v, want %v", i, got[i], w)
			}
		}
	})
}

func TestThrottledKeysAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := NewLog(&b, LevelInfo, FormatJSON)
		for i := range 3 * maxThrottled {
			l.Throttled(strings.Repeat("k", i), LevelWarn, "x")
		}
		if n := l.openWindows(); n > maxThrottled+1 {
			t.Errorf("%d keys", n)
		}
		time.Sleep(2 * throttleWindow)
		synctest.Wait()
		time.Sleep(2 * throttleWindow)
		synctest.Wait()
		if n := l.openWindows(); n != 0 {
			t.Errorf("%d keys are left after the window", n)
		}
		_ = l.Close()
		synctest.Wait()
	})
}

func (l *Log) openWindows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.throttled)
}

func TestWordListsHaveNoBlankOrDouble(t *testing.T) {
	t.Parallel()
	check := func(name string, words []string) {
		seen := map[string]bool{}
		for _, w := range words {
			if w == "" || w == "unknown" || seen[w] || strings.ToLower(w) != w || strings.ContainsAny(w, " _") {
				t.Errorf("%s: word %q", name, w)
			}
			seen[w] = true
		}
	}
	check("states", texts(States()))
	check("trusts", texts(Trusts()))
	check("reasons", texts(Reasons()))
	check("ends", texts(Ends()))
	check("retries", texts(Retries()))
	check("ejections", texts(Ejections()))
	if State(200).String() != "unknown" || Retry(99).String() != "unknown" {
		t.Error("a value outside of its list has a word")
	}
}

func texts[T interface{ String() string }](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

// TestStackIsWhole: the frames that tell where a panic happened come behind
// those that caught it, and no other text may take as much room.
func TestStackIsWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("frame(0x1)\n\t/a.go:12 ", 100) + "here.go:7"
	for _, format := range []string{FormatJSON, FormatConsole} {
		var b bytes.Buffer
		l := NewLog(&b, LevelInfo, format)
		l.Error("panicked", "stack", long, "panic", long)
		l.Error("panicked", "stack", strings.Repeat("x", 64<<10))
		_ = l.Close()
		lines := strings.SplitAfter(b.String(), "\n")
		checkLine(t, lines[0], format)
		if n := strings.Count(lines[0], "here.go:7"); n != 1 {
			t.Errorf("%s: the end of the stack is there %d times: %q", format, n, lines[0])
		}
		if len(lines[1]) > maxStack+300 {
			t.Errorf("%s: a line of %d bytes", format, len(lines[1]))
		}
	}
}
