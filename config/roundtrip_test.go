package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// sample is a text for a leaf that differs from its default. A new kind fails
// here until it gets one.
func sample(t *testing.T, l *leaf, kind string) string {
	t.Helper()
	if l.words != nil {
		for _, w := range l.words {
			if w != l.def {
				return w
			}
		}
	}
	text, ok := map[string]string{
		"text": "some-text", "file": "/some/file", "folder": "/some/folder", "name": "other-name", "listen": "127.0.0.1:4321",
		"endpoint": "tcp://host:5557", "engine-url": "https://host:8001", "http-url": "http://host:9400/metrics", "path": "/some/path",
		"int": "7", "auto-int": "7", "float": "0.25", "duration": "1m7s", "size": "7MiB", "rate": "7KiB", "exact": "0.5%", "gpus": "7",
	}[kind]
	if kind == "bool" {
		text, ok = fmt.Sprint(l.def != "true"), true
	}
	switch l.key {
	case "limits.body_memory":
		text = "7GiB" // not below limits.body
	case "model.aliases":
		text = "alias=model"
	default:
	}
	if !ok {
		t.Fatalf("%s: no sample for kind %s", l.key, kind)
	}
	return text
}

// kindOf finds the kind by the tag, as newLeaf does.
func kindOf(l *leaf, of reflect.Type) string {
	f := of.FieldByIndex(l.index)
	if kind := f.Tag.Get("kind"); kind != "" {
		return kind
	}
	return defaultKind(f.Type, l.words != nil)
}

// Every leaf can be set in the file, by its variable and by its flag, each time
// to the same value with the right source, and shows in digest and dump.
func TestEveryLeafByEverySource(t *testing.T) {
	t.Parallel()
	base := mustLoad(t, LoadOptions{Args: []string{"--config=f"}, ReadFile: reader(oneEngine)})
	for _, l := range leaves {
		text := sample(t, l, kindOf(l, reflect.TypeFor[Config]()))
		// A certificate needs its key, and an ejection's base stays below max.
		var env []string
		switch l.key {
		case "tls.cert":
			env = []string{"RAMJET_TLS_KEY=/k"}
		case "tls.key":
			env = []string{"RAMJET_TLS_CERT=/c"}
		default:
		}
		options := map[string]LoadOptions{
			"f:2":                             {ReadFile: reader(oneEngine + fileText(l.key, text, l.shape))},
			"variable " + variableName(l.key): {Env: append(env, variableName(l.key)+"="+text), ReadFile: reader(oneEngine)},
			"flag --" + strings.ReplaceAll(l.key, "_", "-"): {Args: []string{"--" + l.flag(), text}, ReadFile: reader(oneEngine)},
		}
		var first *Config
		for source, o := range options {
			o.Args = append([]string{"--config=f"}, o.Args...)
			o.Env = append(o.Env, env...)
			c, err := Load(o)
			if err != nil {
				t.Errorf("%s by %s: %v", l.key, source, err)
				continue
			}
			// The file's value of a nested key is one line further down.
			if got := c.Source(l.key); got != source && (source != "f:2" || got != "f:3") {
				t.Errorf("%s: source is %q, want %q", l.key, got, source)
			}
			if reflect.DeepEqual(l.get(c), l.get(base)) {
				t.Errorf("%s by %s: still the default %v", l.key, source, l.get(c))
			}
			if c.Digest() == base.Digest() {
				t.Errorf("%s by %s: the digest did not change", l.key, source)
			}
			if first == nil {
				first = c
			}
			if !reflect.DeepEqual(l.get(c), l.get(first)) || c.Digest() != first.Digest() {
				t.Errorf("%s: %v by %s, %v by another source", l.key, l.get(c), source, l.get(first))
			}
			changed, restart := Diff(base, c)
			if !strings.Contains(strings.Join(changed, " "), l.key) || l.restart != strings.Contains(strings.Join(restart, " "), l.key) {
				t.Errorf("%s: diff says changed %v, restart %v", l.key, changed, restart)
			}
		}
	}
}

// fileText writes key: text in nested mappings.
func fileText(key, text string, s shape) string {
	value := `"` + text + `"`
	switch s {
	case shapeList:
		value = "[" + value + "]"
	case shapePairs:
		k, v, _ := strings.Cut(text, "=")
		value = fmt.Sprintf("{%s: %s}", k, v)
	default:
	}
	group, name, nested := strings.Cut(key, ".")
	if !nested {
		return key + ": " + value + "\n"
	}
	return group + ":\n  " + name + ": " + value + "\n"
}

func TestEveryEngineLeafBySpecAndFile(t *testing.T) {
	t.Parallel()
	for _, l := range engineLeaves {
		text := sample(t, l, kindOf(l, reflect.TypeFor[Engine]()))
		values := map[string]string{"name": "a", "url": "http://h:1"}
		values[l.name] = text
		spec, file := values["name"]+"="+values["url"], "engines:\n  - name: "+values["name"]+"\n    url: "+values["url"]+"\n"
		if l.name != "name" && l.name != "url" {
			spec += "," + l.name + "=" + text
			file += "    " + l.name + ": " + text + "\n"
		}
		byFlag := mustLoad(t, LoadOptions{Args: []string{"--engine", spec}})
		byVariable := mustLoad(t, LoadOptions{Env: []string{"RAMJET_ENGINE=" + spec}})
		byFile := mustLoad(t, LoadOptions{Args: []string{"--config=f"}, ReadFile: reader(file)})
		for _, c := range []*Config{byVariable, byFile} {
			if !reflect.DeepEqual(l.get(&c.Engines[0]), l.get(&byFlag.Engines[0])) || c.Digest() != byFlag.Digest() {
				t.Errorf("%s: %v by flag, %v from %s", l.name, l.get(&byFlag.Engines[0]), l.get(&c.Engines[0]), c.Engines[0].origin(l.name))
			}
		}
		if got := strings.Join(l.formatted(l.get(&byFlag.Engines[0])), ","); got != text {
			t.Errorf("%s: got %s, want %s", l.name, got, text)
		}
	}
}

// What a format writes must read back as the same value.
func TestDefaultsReadBack(t *testing.T) {
	t.Parallel()
	d := Default()
	for _, l := range leaves {
		if l.shape == shapePairs {
			continue
		}
		for _, text := range l.formatted(l.get(d)) {
			if l.get(d) == "" {
				continue
			}
			v, problems := l.decode(l.key, splitRaw(l, text, origin{}))
			if len(problems) > 0 || !reflect.DeepEqual(v, l.get(d)) {
				t.Errorf("%s: %q reads back as %v (%v), want %v", l.key, text, v, problems, l.get(d))
			}
		}
	}
}

// Names of all flags and variables are distinct, or one would hide the other.
func TestNamesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range Flags() {
		names := []string{f.Name, f.EnvVar}
		if f.Short != "" {
			names = append(names, f.Short, variableName(f.Short))
		}
		for _, n := range names {
			if seen[n] {
				t.Errorf("%s is used twice", n)
			}
			seen[n] = true
		}
		if f.Help == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	}
}
