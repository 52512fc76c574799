package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goodEnv is the environment that the good files are read in.
var goodEnv = []string{"DIR=/etc/ramjet", "HOST=a.example", "TOPIC_TOKEN=hunter2", "MODEL_KEY=hunter2"}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (written anew with -update) differs; got:\n%s", path, got)
	}
}

func goodFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("got %d good files, error %v", len(paths), err)
	}
	return paths
}

func loadFile(t *testing.T, path string) *Config {
	t.Helper()
	cfg, err := Load(LoadOptions{Args: []string{"--config=" + path}, Env: goodEnv})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Each good file's dump, warnings and sources stand in NAME.golden.
func TestGoodFiles(t *testing.T) {
	t.Parallel()
	for _, path := range goodFiles(t) {
		cfg := loadFile(t, path)
		if cfg.File() != path {
			t.Errorf("File() is %q, want %q", cfg.File(), path)
		}
		got := cfg.Dump()
		for _, w := range cfg.Warnings {
			got += "# warning: " + w.String() + "\n"
		}
		golden(t, strings.TrimSuffix(path, ".good.yaml")+".golden", got)
	}
}

// Nothing that a variable with a secret's name held may be seen, in any form.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	cfg := loadFile(t, "testdata/full.good.yaml")
	if cfg.Model.Aliases["odd: name"] != "hunter2" || cfg.Engines[0].Topic != "kv-hunter2" {
		t.Fatalf("the values themselves must be expanded, got %v and %q", cfg.Model.Aliases, cfg.Engines[0].Topic)
	}
	values, err := json.Marshal(cfg.Values())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{cfg.Dump(), string(values)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is shown:\n%s", text)
		}
		if !strings.Contains(text, "kv-${TOPIC_TOKEN}") {
			t.Errorf("the reference is not shown in its place:\n%s", text)
		}
	}
}

// A dump is a file again, with the same meaning.
func TestDumpLoads(t *testing.T) {
	t.Parallel()
	for _, path := range append(goodFiles(t), "../deploy/ramjet.example.yaml") {
		cfg := loadFile(t, path)
		again, err := Load(LoadOptions{
			Args: []string{"--config=dump.yaml"}, Env: goodEnv,
			ReadFile: func(string) ([]byte, error) { return []byte(cfg.Dump()), nil },
		})
		if err != nil {
			t.Errorf("%s: dump does not load: %v\n%s", path, err, cfg.Dump())
			continue
		}
		if again.Digest() != cfg.Digest() {
			changed, _ := Diff(cfg, again)
			t.Errorf("%s: dump means something else in %v", path, changed)
		}
	}
}

func TestHelpText(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/help.golden", HelpText())
}

func TestValuesJSON(t *testing.T) {
	t.Parallel()
	cfg := mustLoad(t, LoadOptions{Args: []string{"--engine", "a=http://h:1,gpus=0-1", "--route.policy=session"}})
	got := map[string]string{}
	for key, v := range cfg.Values() {
		b := &bytes.Buffer{}
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		got[key] = strings.TrimSpace(b.String())
	}
	want := map[string]string{
		"route.policy":        `{"value":"session","source":"flag --route.policy"}`,
		"route.exact":         `{"value":"100%","source":"default"}`,
		"route.memory_tokens": `{"value":"auto","source":"default"}`,
		"route.delay_weight":  `{"value":0,"source":"default"}`,
		"route.tie":           `{"value":"20ms","source":"default"}`,
		"limits.header":       `{"value":"32KiB","source":"default"}`,
		"limits.queue":        `{"value":0,"source":"default"}`,
		"headers.x_ramjet":    `{"value":true,"source":"default"}`,
		"listen":              `{"value":[":8000"],"source":"default"}`,
		"paths.allow":         `{"value":[],"source":"default"}`,
		"model.aliases":       `{"value":{},"source":"default"}`,
		"engines.a.gpus":      `{"value":[0,1],"source":"flag --engine"}`,
		"engines.a.url":       `{"value":"http://h:1","source":"flag --engine"}`,
		"engines.a.profile":   `{"value":"none","source":"default"}`,
		"engines.a.in_flight": `{"value":0,"source":"default"}`,
	}
	for key, w := range want {
		if got[key] != w {
			t.Errorf("%s: got %s, want %s", key, got[key], w)
		}
	}
	if n := len(leaves) + len(engineLeaves); len(got) != n {
		t.Errorf("got %d values, want every one of %d", len(got), n)
	}
}

// The example shows every key, and every value outside engines is the default.
func TestExampleFile(t *testing.T) {
	t.Parallel()
	const path = "../deploy/ramjet.example.yaml"
	cfg := loadFile(t, path)
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings: %v", cfg.Warnings)
	}
	changed, _ := Diff(Default(), cfg)
	for _, key := range changed {
		if !strings.HasPrefix(key, "engines.") {
			t.Errorf("%s is %v, which is not the default", key, cfg.Values()[key].Value)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for _, l := range leaves {
		at := cfg.origins[l.key]
		if at.layer != layerFile {
			t.Errorf("%s is missing", l.key)
			continue
		}
		comment := lines[at.line-1]
		if strings.HasPrefix(l.key, "tls.") {
			// The comment stands at the group, for both.
			comment = lines[at.line-2] + lines[at.line-3]
		}
		if l.restart != strings.Contains(comment, "(restart)") {
			t.Errorf("line %d: %s: the mark (restart) must be %v", at.line, l.key, l.restart)
		}
		for _, w := range l.words {
			if l.key != "usage" && !strings.Contains(comment, w) {
				t.Errorf("line %d: %s: the word %q is not named", at.line, l.key, w)
			}
		}
	}
	for _, l := range engineLeaves {
		if cfg.Engines[0].origin(l.name).layer != layerFile {
			t.Errorf("engines.%s is missing", l.name)
		}
	}
}
