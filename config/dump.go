package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Entry is one effective setting.
type Entry struct {
	// Key is as in the file; an engine's are engines.NAME.KEY.
	Key string
	// Value is redacted and ready for JSON: a string, number, bool, []string,
	// []int or map[string]string. Durations and sizes are texts with units.
	Value any
	// Source is "flag --x", "variable RAMJET_X", "ramjet.yaml:12" or "default".
	Source string

	leaf    *leaf
	exact   string // canonical text of the unredacted value, for digest and diff
	restart bool
}

// Value is one setting in the form of GET /api/v1/config.
type Value struct {
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// Entries lists every effective setting, redacted: first the engines', then the
// others, each in the file's order. The slice is the caller's.
func (c *Config) Entries() []Entry {
	var list []Entry
	for i := range c.Engines {
		e := &c.Engines[i]
		for _, l := range engineLeaves {
			list = append(list, entry(l, e, engineKey(e.Name, l.name), e.shown[l.name], e.origin(l.name)))
		}
	}
	for _, l := range leaves {
		list = append(list, entry(l, c, l.key, c.shown[l.key], c.origins[l.key]))
	}
	return list
}

func entry(l *leaf, v any, key string, shown any, at origin) Entry {
	value := l.get(v)
	e := Entry{Key: key, Value: l.plain(value), Source: at.String(), leaf: l, restart: l.restart}
	e.exact = jsonText(e.Value)
	if shown != nil {
		e.Value = shown
	}
	return e
}

// jsonText is a canonical text: maps come out sorted.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: a setting of type %T: %v", v, err))
	}
	return string(b)
}

// plain is a value as JSON shows it: never null, so that scripts need not
// distinguish an empty list from an absent one.
func (l *leaf) plain(v any) any {
	switch x := v.(type) {
	case []string:
		return append([]string{}, x...)
	case []int:
		return append([]int{}, x...)
	case map[string]string:
		m := make(map[string]string, len(x))
		maps.Copy(m, x)
		return m
	case bool, float64:
		return x
	case int:
		if l.codec.format(x) == fmt.Sprint(x) {
			return x
		}
	}
	return l.codec.format(v)
}

// Values returns the redacted settings by key.
func (c *Config) Values() map[string]Value {
	m := make(map[string]Value)
	for _, e := range c.Entries() {
		m[e.Key] = Value{e.Value, e.Source}
	}
	return m
}

// Digest is a short hash over all effective values, whatever their source and
// the order of the engines: equal digests mean that two processes behave alike.
func (c *Config) Digest() string {
	var lines []string
	for _, e := range c.Entries() {
		lines = append(lines, e.Key+"="+e.exact)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:6])
}

// sourceColumn is where the sources start in a dump.
const sourceColumn = 44

// Dump writes the effective settings as YAML with each source in a comment. Fed
// back as a file it gives the same digest, except where a value is redacted.
func (c *Config) Dump() string {
	d := &dumper{}
	d.line("", "", "digest "+c.Digest())
	d.group(c, root, "")
	return d.String()
}

type dumper struct{ strings.Builder }

func (d *dumper) line(indent, body, comment string) {
	s := indent + body
	if comment != "" {
		if s != "" {
			s += strings.Repeat(" ", max(1, sourceColumn-len(s)))
		}
		s += "# " + comment
	}
	d.WriteString(s + "\n")
}

func (d *dumper) group(c *Config, g *group, indent string) {
	for _, name := range g.names {
		switch {
		case g.groups[name] != nil:
			d.line(indent, name+":", "")
			d.group(c, g.groups[name], indent+"  ")
		case g.leaves[name] != nil:
			l := g.leaves[name]
			d.leaf(indent, entry(l, c, l.key, c.shown[l.key], c.origins[l.key]))
		default:
			d.engines(c)
		}
	}
}

func (d *dumper) engines(c *Config) {
	if len(c.Engines) == 0 {
		d.line("", enginesKey+": []", layerDefault.String())
		return
	}
	d.line("", enginesKey+":", "")
	for i := range c.Engines {
		e := &c.Engines[i]
		indent := "  - "
		for _, l := range engineLeaves {
			d.leaf(indent, entry(l, e, l.name, e.shown[l.name], e.origin(l.name)))
			indent = "    "
		}
	}
}

func (d *dumper) leaf(indent string, e Entry) {
	redacted := e.exact != jsonText(e.Value)
	d.line(indent, e.leaf.name+": "+yamlText(e.Value, redacted), e.Source)
}

func yamlText(v any, redacted bool) string {
	switch x := v.(type) {
	case string:
		return yamlScalar(x, redacted)
	case []string:
		parts := make([]string, len(x))
		for i, s := range x {
			parts[i] = yamlScalar(s, redacted)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []int:
		return strings.ReplaceAll(fmt.Sprint(x), " ", ", ")
	case map[string]string:
		parts := make([]string, 0, len(x))
		for _, k := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, yamlQuoted(k)+": "+yamlScalar(x[k], redacted))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprint(v)
	}
}

// plainScalar matches texts that need no quotes anywhere in YAML.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9_./%-]*(://[A-Za-z0-9_./:%-]+)?$`)

func yamlScalar(s string, redacted bool) string {
	if !redacted {
		s = escapeReferences(s)
	}
	return yamlQuoted(s)
}

// yamlQuoted quotes where needed. null is the one plain word that would not
// come back as text.
func yamlQuoted(s string) string {
	if plainScalar.MatchString(s) && !strings.EqualFold(s, "null") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
