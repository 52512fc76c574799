package config

import (
	"maps"
	"slices"
)

// Diff compares two configurations for a reload. changed lists the keys whose
// value differs, sorted; an engine that came or went is one key, engines.NAME.
// needRestart lists those of them that a running process keeps as they are
// until it is restarted. These are the leaves tagged reload:"restart":
//
//   - listen, admin.listen, tls.cert, tls.key: sockets stay bound (the
//     certificate's files are read again when they change);
//   - relay, limits.header, limits.connections, timeouts.client_header: the
//     HTTP server takes them at start;
//   - tokens.*: what was proven of one tokenizer holds for no other;
//   - limits.body_memory, journal.*, log.*: sized or opened once.
//
// Everything else, engines included, is taken over live.
func Diff(from, to *Config) (changed, needRestart []string) {
	before, after := from.byKey(), to.byKey()
	was, is := from.engineNames(), to.engineNames()
	for name := range was {
		if !is[name] {
			changed = append(changed, joinKey(enginesKey, name))
		}
	}
	for name := range is {
		if !was[name] {
			changed = append(changed, joinKey(enginesKey, name))
		}
	}
	for key, e := range after {
		if b, ok := before[key]; ok && b.exact != e.exact {
			changed = append(changed, key)
			if e.restart {
				needRestart = append(needRestart, key)
			}
		}
	}
	slices.Sort(changed)
	slices.Sort(needRestart)
	return changed, needRestart
}

// Keep returns next as a process that runs with running can take it over: the
// values that need a restart stay running's, and so do their sources.
func Keep(running, next *Config) *Config {
	c := *next
	c.origins, c.shown = maps.Clone(next.origins), maps.Clone(next.shown)
	keep := func(l *leaf) {
		l.set(&c, l.get(running))
		move(c.origins, running.origins, l.key)
		move(c.shown, running.shown, l.key)
	}
	for _, l := range leaves {
		if l.restart {
			keep(l)
		}
	}
	// One body must fit into the memory for all.
	c.Limits.Body = min(c.Limits.Body, c.Limits.BodyMemory)
	return &c
}

// move makes what to holds under key what from does, be it nothing.
func move[V any](to, from map[string]V, key string) {
	delete(to, key)
	if v, ok := from[key]; ok {
		to[key] = v
	}
}

func (c *Config) byKey() map[string]Entry {
	m := map[string]Entry{}
	for _, e := range c.Entries() {
		m[e.Key] = e
	}
	return m
}

func (c *Config) engineNames() map[string]bool {
	m := map[string]bool{}
	for i := range c.Engines {
		m[c.Engines[i].Name] = true
	}
	return m
}

// Problem is something wrong with a value that only its use showed, at the
// place where the value was given. An engine's keys are engines.NAME.KEY.
func (c *Config) Problem(key string, err error) Problem {
	at := c.origins[key]
	for i := range c.Engines {
		e := &c.Engines[i]
		for _, l := range engineLeaves {
			if engineKey(e.Name, l.name) == key {
				at = e.origin(l.name)
			}
		}
	}
	return at.problem(key, faultf("%v", err))
}
