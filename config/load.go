package config

import (
	"os"
	"strings"
)

// LoadOptions says where settings come from. The zero value reads nothing but
// the defaults.
type LoadOptions struct {
	// Args holds flags of this package only, as ParseArgs separates them.
	Args []string
	// Env is the environment in the form of os.Environ.
	Env []string
	// ReadFile reads the YAML file; nil means os.ReadFile.
	ReadFile func(name string) ([]byte, error)
	// KnownVariables are RAMJET_ variables of other owners, which must not be
	// taken for misspelt ones.
	KnownVariables []string
	// AllowNoEngines is for commands that only talk to a running Ramjet.
	AllowNoEngines bool
}

// loader gathers one Load.
type loader struct {
	opts     LoadOptions
	env      map[string]string
	file     string
	config   *Config
	problems Problems
	warnings Problems
	// enginesGiven is set once a source gave engines, even bad ones;
	// fileBroken when the file could not be read far enough to know.
	enginesGiven bool
	fileBroken   bool
}

// Load merges all sources and validates the result. On failure the error is a
// Problems with everything that is wrong and the Config is nil. It keeps no
// state and may be called again to reload.
func Load(o LoadOptions) (*Config, error) {
	l := merge(o)
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	l.config.file = l.file
	l.config.Warnings = l.warnings
	return l.config, nil
}

// LoadAdmin returns the settings of the admin port for a client of a running
// Ramjet. The file may be wrong elsewhere: Ramjet then serves on with what it
// read before, and whoever asks it must not fail for that. Where a flag or a
// variable names the port, nothing in the file is an error.
func LoadAdmin(o LoadOptions) (Admin, error) {
	o.AllowNoEngines = true
	l := merge(o)
	named := l.config.origins["admin.listen"].layer > layerFile
	var problems Problems
	for _, p := range l.problems {
		ofFile := p.rank == int(layerFile)
		if !ofFile || !named && (l.fileBroken || strings.HasPrefix(p.Key, "admin")) {
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		return Admin{}, problems
	}
	return l.config.Admin, nil
}

// merge reads all sources and notes everything that is wrong.
func merge(o LoadOptions) *loader {
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	l := &loader{opts: o, env: environment(o.Env), config: Default()}
	flags := l.scanArgs()
	variables := l.scanEnv()
	l.readFile()
	for _, settings := range [][]setting{variables, flags} {
		l.applySettings(settings)
	}
	l.validate()
	l.problems.sort()
	l.warnings.sort()
	return l
}

// applySettings applies one layer. The values of a repeated list flag add up;
// of a repeated scalar the last one wins, as users append to override.
func (l *loader) applySettings(settings []setting) {
	l.applyEngines(settings)
	lists := map[*leaf]raw{}
	for _, s := range settings {
		if s.leaf == nil {
			continue
		}
		r := splitRaw(s.leaf, s.value, s.at)
		if s.leaf.shape != shapeOne {
			sum := lists[s.leaf]
			r.items = append(sum.items, r.items...)
			r.pairs = append(sum.pairs, r.pairs...)
			lists[s.leaf] = r
			continue
		}
		l.apply(s.leaf, r)
	}
	for _, leaf := range leaves {
		if r, ok := lists[leaf]; ok {
			l.apply(leaf, r)
		}
	}
}

// apply decodes one leaf and makes it effective.
func (l *loader) apply(leaf *leaf, r raw) {
	v, problems := leaf.decode(leaf.key, r)
	l.problems = append(l.problems, problems...)
	if len(problems) > 0 {
		return
	}
	leaf.set(l.config, v)
	l.config.origins[leaf.key] = r.at
	note(l.config.shown, leaf, leaf.key, r)
}

// note remembers what a dump shows where the value itself must not be seen.
func note(shown map[string]any, leaf *leaf, key string, r raw) {
	delete(shown, key)
	hidden := false
	show := func(t text) string {
		if t.show != t.value {
			hidden = true
			return t.show
		}
		return escapeReferences(t.value)
	}
	var v any
	switch leaf.shape {
	case shapeOne:
		v = show(r.items[0])
	case shapeList:
		list := make([]string, len(r.items))
		for i, t := range r.items {
			list[i] = show(t)
		}
		v = list
	case shapePairs:
		m := make(map[string]string, len(r.pairs))
		for _, p := range r.pairs {
			m[p.key.value] = show(p.value)
		}
		v = m
	}
	if hidden {
		shown[key] = v
	}
}
