package config

import "slices"

// Diff compares two configurations for a reload. changed lists the keys whose
// value differs, sorted; an engine that came or went is one key, engines.NAME.
// needRestart lists those of them that a running process keeps as they are
// until it is restarted. These are the leaves tagged reload:"restart":
//
//   - listen, admin.listen, tls.cert, tls.key: sockets stay bound (the
//     certificate's files are read again when they change);
//   - relay, limits.header, limits.connections, timeouts.client_header: the
//     HTTP server takes them at start;
//   - limits.body_memory, tokens.cache, journal.path, log.format: sized or
//     opened once.
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
