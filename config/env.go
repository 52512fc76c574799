package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// variablePrefix starts every variable of ours.
const variablePrefix = "RAMJET_"

// orchestrated matches what Kubernetes and container links set for a service
// that is itself called "ramjet"; none of it is a misspelt setting.
var orchestrated = regexp.MustCompile(`^RAMJET_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func environment(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// scanEnv reads the variables in the table's order. An empty variable counts as
// not set: it is what compose files pass on for one that is missing.
func (l *loader) scanEnv() []setting {
	var settings []setting
	known := []string{variableName(configFlag), variableName(engineFlag)}
	get := func(leaf *leaf, name string) {
		known = append(known, name)
		if v := l.env[name]; v != "" {
			settings = append(settings, setting{leaf: leaf, value: v, at: origin{layer: layerVariable, name: name}})
		}
	}
	if v := l.env[known[0]]; v != "" && l.file == "" {
		l.file = v
	}
	if v := l.env[known[1]]; v != "" {
		for _, spec := range strings.Fields(v) {
			settings = append(settings, setting{value: spec, at: origin{layer: layerVariable, name: known[1]}})
		}
	}
	for _, leaf := range leaves {
		if leaf.short != "" {
			// The long name is read later and so wins.
			get(leaf, variableName(leaf.short))
			l.warnTwice(variableName(leaf.short), leaf.variable())
		}
		get(leaf, leaf.variable())
	}
	l.warnUnknown(known)
	return settings
}

func (l *loader) warnTwice(short, long string) {
	a, b := l.env[short], l.env[long]
	if a != "" && b != "" && a != b {
		at := origin{layer: layerVariable, name: short}
		l.warnings = append(l.warnings, at.problem("", faultf("has no effect, %s is set too", long)))
	}
}

// warnUnknown reports variables that look like a misspelt setting. Others that
// merely share the prefix are nobody's business.
func (l *loader) warnUnknown(known []string) {
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		suffix, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || slices.Contains(known, name) || slices.Contains(l.opts.KnownVariables, name) || orchestrated.MatchString(name) {
			continue
		}
		best, bestDistance := "", slip(suffix)+1
		for _, k := range known {
			if d := distance(name, k); d < bestDistance {
				best, bestDistance = k, d
			}
		}
		if best != "" {
			at := origin{layer: layerVariable, name: name}
			l.warnings = append(l.warnings, at.problem("", faultf("unknown variable").hintf("did you mean %s?", best)))
		}
	}
}
