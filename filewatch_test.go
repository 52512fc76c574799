package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/config"
)

// TestSettle: what comes in a burst is looked at once, after the last of it,
// and what never ends is looked at now and then.
func TestSettle(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		touches []time.Duration // each after the one before
		want    []time.Duration // since the start
	}{
		"none":          {nil, nil},
		"one":           {[]time.Duration{time.Second}, []time.Duration{time.Second + fileQuiet}},
		"a burst":       {[]time.Duration{0, 50e6, 50e6, 50e6}, []time.Duration{150e6 + fileQuiet}},
		"two":           {[]time.Duration{0, time.Second}, []time.Duration{fileQuiet, time.Second + fileQuiet}},
		"without end":   {slices.Repeat([]time.Duration{100e6}, 30), []time.Duration{100e6 + fileLongest, 3000e6 + fileQuiet}},
		"just in time":  {[]time.Duration{0, fileQuiet - 1}, []time.Duration{2*fileQuiet - 1}},
		"just too late": {[]time.Duration{0, fileQuiet + 1}, []time.Duration{fileQuiet, 2*fileQuiet + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				touched := make(chan struct{}, 1)
				began := time.Now()
				var got []time.Duration
				done := make(chan struct{})
				go func() {
					settle(ctx, touched, fileQuiet, fileLongest, func() { got = append(got, time.Since(began)) })
					close(done)
				}()
				for _, after := range tt.touches {
					time.Sleep(after)
					touched <- struct{}{}
				}
				time.Sleep(time.Minute)
				cancel()
				<-done
				if !slices.Equal(got, tt.want) {
					t.Errorf("looked after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestHops names every link on the way and the file, or what is missing first.
func TestHops(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "v1", "deep"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "v1", "file"), nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "v1", "deep", "file"), nil, 0o600))
	for link, target := range map[string]string{
		"..data": "v1", "file": "..data/file", "absolute": filepath.Join(dir, "..data"), "circle": "circle", "nowhere": "v2/file", "out": "v1/deep/../file",
	} {
		must(os.Symlink(target, filepath.Join(dir, link)))
	}
	for path, want := range map[string]string{
		"v1/file":            "v1/file",
		"v1/deep/file":       "v1/deep/file",
		"file":               "file ..data v1/file",
		"..data/deep/file":   "..data v1/deep/file",
		"absolute/file":      "absolute ..data v1/file",
		"out":                "out v1/file",
		"missing":            "missing !",
		"missing/file":       "missing !",
		"v1/file/below":      "v1/file/below !",
		"nowhere":            "nowhere v2 !",
		"v1/./deep//../file": "v1/file",
		"circle":             strings.TrimSpace(strings.Repeat("circle ", mostLinks)) + " !",
	} {
		names, found := hops(dir + "/" + path)
		var got []string
		for _, n := range names {
			rel, err := filepath.Rel(dir, n)
			must(err)
			got = append(got, rel)
		}
		if !found {
			got = append(got, "!")
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", path, s, want)
		}
	}
}

// watching runs a watch over a file and counts what it calls changes.
func watching(t *testing.T, file string) *atomic.Int32 {
	t.Helper()
	var changes atomic.Int32
	w := newFileWatch(nil, func() []string { return []string{file} }, func() { changes.Add(1) })
	if w == nil {
		t.Skip("this system has no room for another watch over files (fs.inotify.max_user_instances)")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return &changes
}

// TestFileWatch sees every way in which a file becomes another one, and not
// what happens beside it.
func TestFileWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	step(os.Mkdir(at("conf"), 0o755))
	data("conf/file", "1")
	changes := watching(t, at("conf/file"))
	for _, way := range []struct {
		name string
		do   func()
		sees bool
	}{
		{"written", func() { data("conf/file", "2") }, true},
		{"renamed over", func() { data("conf/new", "3"); step(os.Rename(at("conf/new"), at("conf/file"))) }, true},
		{"another file", func() { data("conf/other", "x") }, false},
		{"a link instead", func() {
			step(os.Mkdir(at("elsewhere"), 0o755))
			data("elsewhere/file", "4")
			step(os.Symlink("../elsewhere/file", at("conf/link")))
			step(os.Rename(at("conf/link"), at("conf/file")))
		}, true},
		{"written behind the link", func() { data("elsewhere/file", "5") }, true},
		{"the folder replaced", func() {
			step(os.Mkdir(at("next"), 0o755))
			data("next/file", "6")
			step(os.Rename(at("conf"), at("before")))
			step(os.Rename(at("next"), at("conf")))
		}, true},
		{"written in the new folder", func() { data("conf/file", "7") }, true},
		{"gone", func() { step(os.Remove(at("conf/file"))) }, true},
		{"here again", func() { data("conf/file", "8") }, true},
	} {
		before := changes.Load()
		for calm := time.Now(); time.Since(calm) < 5*fileQuiet; time.Sleep(5 * time.Millisecond) {
			if now := changes.Load(); now != before {
				before, calm = now, time.Now() // what came before has not settled
			}
		}
		way.do()
		limit := 10 * time.Second
		if !way.sees {
			limit = 2 * fileQuiet
		}
		for until := time.Now().Add(limit); time.Now().Before(until) && changes.Load() == before; time.Sleep(5 * time.Millisecond) {
		}
		if got := changes.Load() > before; got != way.sees {
			t.Fatalf("%s: seen %v", way.name, got)
		}
	}
}

// TestFileWatchOfWhatIsMissing: what could not be watched at the start is tried
// again, without an event that would tell of it.
func TestFileWatchOfWhatIsMissing(t *testing.T) {
	t.Parallel()
	changes := watching(t, filepath.Join(t.TempDir(), "file"))
	soon(t, "it is looked for again", func() bool { return changes.Load() > 0 })
}

// TestPrints tell contents apart, and a missing file from an empty one.
func TestPrints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := map[uint64]string{}
	for _, name := range []string{"empty", "a", "b", "missing", "folder"} {
		path := filepath.Join(dir, name)
		switch name {
		case "empty", "a", "b":
			if err := os.WriteFile(path, []byte(strings.TrimPrefix(name, "empty")), 0o600); err != nil {
				t.Fatal(err)
			}
		case "folder":
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p := printOf(path)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[p] = name
	}
}

// TestReadFiles are the configuration and the secrets, not the tokenizer: that
// is read once.
func TestReadFiles(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.LoadOptions{
		Args: []string{"--config=c.yaml", "--tokenizer=tok", "--auth.keys-file=keys", "--tls.cert=cert", "--tls.key=key", "--route.cohort-key-file=keys"},
		ReadFile: func(string) ([]byte, error) {
			return []byte("engines: [{name: a, url: 'http://h:1', api_key_file: secret}]\n"), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := readFiles(cfg)
	slices.Sort(got)
	if want := []string{"c.yaml", "cert", "key", "keys", "secret"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
