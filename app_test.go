package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramjet/config"
	"ramjet/telemetry"
)

// assembled is a Ramjet of a configuration's file that does not run yet.
func assembled(t *testing.T, file string, more ...string) (*app, *lines) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "2") // nothing here governs the test's processors
	log := &lines{}
	args := append([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log.format=json"}, more...)
	if file != "" {
		args = append(args, "--config="+file)
	}
	a, err := assemble(func() (*config.Config, error) { return config.Load(config.LoadOptions{Args: args}) }, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a, log
}

// serves lets it run, following its files.
func serves(t *testing.T, a *app) {
	t.Helper()
	if err := a.listen(); err != nil {
		t.Fatal(err)
	}
	if err := a.start(""); err != nil {
		t.Fatal(err)
	}
	a.followFiles(make(chan os.Signal))
	if a.watched == nil {
		t.Skip("this system has no room for another watch over files (fs.inotify.max_user_instances)")
	}
}

func rewrite(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// someEngines is a file's engines part; nobody is at their addresses.
func someEngines(names ...string) string {
	text := "engines:\n"
	for i, name := range names {
		text += fmt.Sprintf("  - {name: %s, url: 'http://127.0.0.1:%d', events: off}\n", name, i+1)
	}
	return text
}

// TestEditedWhileStarting: a file that changes before the watch over it stands
// is read again.
func TestEditedWhileStarting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	rewrite(t, file, someEngines("a")+"route: {tie: 30ms}\n")
	a, log := assembled(t, file)
	rewrite(t, file, someEngines("a")+"route: {tie: 40ms}\n")
	serves(t, a)
	soon(t, "the edit is in force", func() bool { return a.current.Load().Route.Tie == 40*time.Millisecond })
	soon(t, "the log tells of it", func() bool { return strings.Contains(log.String(), "configuration reloaded") })
}

// TestHalfWrittenFileIsLeft: the first half of a configuration is one too, and
// may be without the keys. What is written in place counts once its last line
// ends; what comes in the place of a file is whole.
func TestHalfWrittenFileIsLeft(t *testing.T) {
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "ramjet.yaml"), filepath.Join(dir, "keys")
	engines, auth := someEngines("a"), "auth: {keys_file: '"+keys+"'}\n"
	rewrite(t, keys, "one\n")
	rewrite(t, file, engines+auth)
	a, log := assembled(t, file)
	serves(t, a)
	status := func(key string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+a.public[0].Addr().String()+"/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	count := func(what string) int { return strings.Count(log.String(), what) }
	const refused, loaded = "the old configuration stays in use", "configuration reloaded"
	if got := status("none"); got != 401 {
		t.Fatalf("before: %d", got)
	}
	for i, part := range []struct{ file, text string }{
		{file, strings.TrimSuffix(engines, "\n")}, {file, ""}, {keys, "one\ntw"}, {keys, ""},
	} {
		before := count(refused)
		rewrite(t, part.file, part.text)
		soon(t, fmt.Sprintf("part %d is refused", i), func() bool { return count(refused) > before })
		if none, one := status("none"), status("one"); none != 401 || one == 401 {
			t.Errorf("part %d: %d without a key, %d with it", i, none, one)
		}
		if !strings.Contains(log.String(), part.file+": it is empty, or ends inside a line") {
			t.Errorf("part %d: the log does not say why:\n%s", i, log.String())
		}
		whole := map[string]string{file: engines + auth, keys: "one\n"}[part.file]
		before = count(loaded)
		rewrite(t, part.file, whole)
		soon(t, fmt.Sprintf("after part %d the whole is read", i), func() bool { return count(loaded) > before })
	}
	// Secrets of Kubernetes have no last newline, and are replaced.
	rewrite(t, keys+".new", "two")
	if err := os.Rename(keys+".new", keys); err != nil {
		t.Fatal(err)
	}
	soon(t, "a file in the place of another is read", func() bool { return status("two") != 401 })
	// They are no obstacle to a change of the other file.
	before := count(loaded)
	rewrite(t, file, engines+auth+"# changed\n")
	soon(t, "a whole file is read beside one without a last newline", func() bool { return count(loaded) > before })
	// Whoever asks for it gets the file as it is.
	rewrite(t, file, strings.TrimSuffix(engines, "\n"))
	if r := a.reload("SIGHUP"); r.Err != nil {
		t.Errorf("asked for: %v", r.Err)
	}
	if got := status("none"); got == 401 {
		t.Error("the keys are in force although the file that was asked for has none")
	}
}

// TestMemoryReachesAsConfigured on an engine whose metrics nobody can read, at
// the start and when it joins later.
func TestMemoryReachesAsConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	rewrite(t, file, someEngines("a")+"route: {memory_tokens: 160}\n")
	a, _ := assembled(t, file)
	long := make([]uint64, 100)
	for i := range long {
		long[i] = uint64(i + 1) //nolint:gosec // small
	}
	holds := func(name string) int {
		t.Helper()
		slot := a.roster.Load().named(name).slot
		a.memory.Drop(slot)
		a.memory.Learn(slot, long, 16)
		var held [64]int32
		a.memory.Match(long, &held)
		return int(held[slot])
	}
	if n := holds("a"); n != 10 {
		t.Errorf("it reaches back %d keys of 16 tokens, want 10", n)
	}
	serves(t, a)
	rewrite(t, file, someEngines("a", "b")+"route: {memory_tokens: 320}\n")
	if r := a.reload("a test"); r.Err != nil {
		t.Fatal(r.Err)
	}
	if one, two := holds("a"), holds("b"); one != 20 || two != 20 {
		t.Errorf("after the reload it reaches back %d and %d keys, want 20", one, two)
	}
	rewrite(t, file, someEngines("a", "b"))
	if r := a.reload("a test"); r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := holds("a"); n != len(long) {
		t.Errorf("without a limit it reaches back %d keys", n)
	}
}

// TestStopTellsWhatWasHeldBack: the last fault before the end is often its
// cause.
func TestStopTellsWhatWasHeldBack(t *testing.T) {
	a, log := assembled(t, "", "--engine=a=http://127.0.0.1:1")
	for i := range 3 {
		a.log.Throttled("key", telemetry.LevelWarn, "a fault of the test", "n", i)
	}
	a.close()
	if text := log.String(); !strings.Contains(text, `"repeated":2`) {
		t.Errorf("held back for good:\n%s", text)
	}
}
