package config

import (
	"maps"
	"slices"
	"strings"
)

// validate checks what needs more than one value. Values that failed on their
// own still hold their default or a lower layer's, so nothing is reported
// twice.
func (l *loader) validate() {
	c := l.config
	l.validateEngines()
	l.validateListen()
	l.validateAliases()
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		given, missing := "tls.cert", "tls.key"
		if c.TLS.Cert == "" {
			given, missing = missing, given
		}
		l.report(given, faultf("%s is missing", missing).hintf("a certificate needs both"))
	}
	if c.Limits.BodyMemory < c.Limits.Body {
		l.report(l.later("limits.body", "limits.body_memory"), faultf("limits.body_memory (%s) is less than limits.body (%s)",
			formatSize(c.Limits.BodyMemory), formatSize(c.Limits.Body)).hintf("one body must fit"))
	}
	if c.Eject.Max < c.Eject.Base {
		l.report(l.later("eject.base", "eject.max"), faultf("eject.max (%s) is less than eject.base (%s)",
			formatDuration(c.Eject.Max), formatDuration(c.Eject.Base)))
	}
	l.warn()
}

// later returns the key whose value came from the higher layer or further down
// in the file: the one that made the combination wrong.
func (l *loader) later(a, b string) string {
	oa, ob := l.config.origins[a], l.config.origins[b]
	if oa.layer > ob.layer || oa.layer == ob.layer && oa.line > ob.line {
		return a
	}
	return b
}

func (l *loader) report(key string, f *fault) {
	l.problems = append(l.problems, l.config.origins[key].problem(key, f))
}

func (l *loader) warning(at origin, key string, f *fault) {
	l.warnings = append(l.warnings, at.problem(key, f))
}

// MaxEngines is how many engines the index and the decision have room for (radix.MaxEngines).
const MaxEngines = 64

func (l *loader) validateEngines() {
	if n := len(l.config.Engines); n > MaxEngines {
		e := &l.config.Engines[MaxEngines]
		l.problems = append(l.problems, e.origin("url").problem(engineKey(e.Name, "url"), faultf("%d engines are given, at most %d are possible", n, MaxEngines).
			hintf("put another Ramjet in front of the rest")))
	}
	if len(l.config.Engines) == 0 && !l.opts.AllowNoEngines {
		// Engines that were given but could not be read are reported already.
		if !l.fileBroken && (!l.enginesGiven || len(l.problems) == 0) {
			l.problems = append(l.problems, Problem{File: l.file, Key: enginesKey, Message: "no engine is given", rank: int(layerFile),
				Hint: "add --engine NAME=http://HOST:PORT or an engines list"})
		}
		return
	}
	type use struct {
		engine int
		key    string
	}
	first := map[string]use{}
	for i := range l.config.Engines {
		e := &l.config.Engines[i]
		for _, ep := range []struct{ key, value string }{{"events", e.Events}, {"replay", e.Replay}} {
			same := sameEndpoint(ep.value)
			if same == "" {
				continue
			}
			before, dup := first[same]
			if !dup {
				first[same] = use{i, ep.key}
				continue
			}
			other := &l.config.Engines[before.engine]
			f := faultf("endpoint %s is also %s of engine %s (%s)", ep.value, before.key, other.Name, other.origin(before.key))
			l.problems = append(l.problems, e.origin(ep.key).problem(engineKey(e.Name, ep.key), f.hintf("each socket belongs to one engine")))
		}
	}
}

func engineKey(name, leaf string) string { return enginesKey + "." + name + "." + leaf }

func (l *loader) validateListen() {
	c := l.config
	if len(c.Listen) == 0 {
		l.report("listen", faultf("no address to listen on"))
	}
	if strings.HasPrefix(c.Admin.Listen, unixSocket) {
		l.report("admin.listen", faultf("the admin port cannot be a socket file").hintf("write host:port, such as 127.0.0.1:9900"))
	}
	for i, a := range c.Listen {
		for _, b := range c.Listen[:i] {
			if overlap(a, b) {
				l.report("listen", faultf("addresses %s and %s overlap", b, a))
			}
		}
		if overlap(a, c.Admin.Listen) {
			l.report(l.later("listen", "admin.listen"), faultf("public address %s and admin address %s overlap", a, c.Admin.Listen).
				hintf("the admin port must be its own"))
		}
	}
}

func (l *loader) validateAliases() {
	aliases := l.config.Model.Aliases
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		target := aliases[alias]
		if target == alias {
			l.report("model.aliases", faultf("alias %q means itself", alias))
		} else if _, chained := aliases[target]; chained {
			l.report("model.aliases", faultf("alias %q means %q, which is an alias too", alias, target).hintf("name the served model"))
		}
	}
}

// warn notes what is allowed but probably not meant.
func (l *loader) warn() {
	c := l.config
	if c.Admin.TokenFile == "" && !isLoopback(c.Admin.Listen) {
		l.warning(c.origins["admin.listen"], "admin.listen", faultf("reachable from other machines without admin.token_file").
			hintf("mutations and pprof will answer 403"))
	}
	limited := false
	urls := map[string]string{}
	for i := range c.Engines {
		e := &c.Engines[i]
		limited = limited || e.InFlight > 0
		if other, dup := urls[strings.ToLower(e.URL)]; dup && e.URL != "" {
			l.warning(e.origin("url"), engineKey(e.Name, "url"), faultf("engine %s has the same url", other))
		}
		urls[strings.ToLower(e.URL)] = e.Name
		if e.Events == endpointOff && sameEndpoint(e.Replay) != "" {
			l.warning(e.origin("replay"), engineKey(e.Name, "replay"), faultf("has no effect while events is off"))
		}
	}
	if c.Limits.Queue > 0 && !limited {
		l.warning(c.origins["limits.queue"], "limits.queue", faultf("has no effect: no engine has in_flight set"))
	}
}

// CheckFiles calls open for every file that a setting names and reports those
// that fail, at the setting's place. open must not keep the file open.
func (c *Config) CheckFiles(open func(path string) error) Problems {
	var problems Problems
	check := func(l *leaf, v any, at origin, key string) {
		if path, isText := l.get(v).(string); isText && l.isFile && path != "" {
			if err := open(path); err != nil {
				problems = append(problems, at.problem(key, faultf("cannot read: %v", reason(err))))
			}
		}
	}
	for _, l := range leaves {
		check(l, c, c.origins[l.key], l.key)
	}
	for i := range c.Engines {
		e := &c.Engines[i]
		for _, l := range engineLeaves {
			check(l, e, e.origin(l.name), engineKey(e.Name, l.name))
		}
	}
	problems.sort()
	return problems
}
