package config

import (
	"fmt"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rawEngine is an engine before decoding: what each source gave for its leaves.
type rawEngine struct {
	name   string // for keys of problems: the name, or [2]
	values map[*leaf]raw
	at     origin
}

func (e *rawEngine) key(leaf string) string {
	if strings.HasPrefix(e.name, "[") {
		return joinKey(enginesKey+e.name, leaf)
	}
	return joinKey(enginesKey+"."+e.name, leaf)
}

// walkEngines reads the list of the file.
func (l *loader) walkEngines(n *yaml.Node) {
	n = follow(n)
	l.enginesGiven = true
	if n.Kind != yaml.SequenceNode {
		l.nodeProblem(n, enginesKey, faultf("want a list, got %s", kindName(n)).hintf("write - name: a"))
		return
	}
	var list []rawEngine
	for i, item := range n.Content {
		item = follow(item)
		e := rawEngine{name: fmt.Sprintf("[%d]", i), values: map[*leaf]raw{}, at: l.at(item)}
		if isNull(item) {
			l.nodeProblem(item, e.key(""), faultf("an empty engine").hintf("write name and url"))
			continue
		}
		e.name = nameOf(item, e.name)
		l.eachKey(engineRoot, e.key(""), item, func(name string, _, value *yaml.Node) {
			leaf := engineRoot.leaves[name]
			if r, ok := l.rawFrom(leaf, e.key(name), value); ok {
				e.values[leaf] = r
			} else {
				// Known to be wrong already: it must not be called missing too.
				e.values[leaf] = raw{}
			}
		})
		if item.Kind == yaml.MappingNode {
			list = append(list, e)
		}
	}
	l.setEngines(list)
}

// nameOf finds the name of an engine ahead of the others, so that problems can
// say it; without a good one it returns the substitute.
func nameOf(n *yaml.Node, substitute string) string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		v := n.Content[i+1]
		if n.Content[i].Value == "name" && v.Kind == yaml.ScalarNode {
			if _, f := parseName(nil, text{value: v.Value}); f == nil {
				return v.Value
			}
		}
	}
	return substitute
}

// parseEngineSpec reads the flag's form, name=url[,key=value]...; a part
// without = continues a list, so that gpus=0,1 means what it says.
func (l *loader) parseEngineSpec(i int, s setting) (rawEngine, bool) {
	e := rawEngine{name: fmt.Sprintf("[%d]", i), values: map[*leaf]raw{}, at: s.at}
	before := len(l.problems)
	report := func(key string, f *fault) { l.problems = append(l.problems, s.at.problem(key, f)) }
	one := func(leaf *leaf, v string) { e.values[leaf] = splitRaw(leaf, v, s.at) }

	parts := strings.Split(s.value, ",")
	name, address, ok := strings.Cut(parts[0], "=")
	if !ok || strings.Contains(name, "://") {
		report("", faultf("an engine needs a name").hintf("write NAME=URL, such as a=http://127.0.0.1:8001"))
		return e, false
	}
	one(engineRoot.leaves["name"], name)
	one(engineRoot.leaves["url"], address)
	var last *leaf
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		leaf := engineRoot.leaves[strings.ReplaceAll(key, "-", "_")]
		switch {
		case !ok && last != nil && last.shape == shapeList:
			r := e.values[last]
			r.items = append(r.items, splitRaw(last, part, s.at).items...)
			e.values[last] = r
		case !ok:
			report("", faultf("%q is not key=value", part))
		case leaf == nil:
			report("", faultf("unknown engine key %q", key).hintf("%s", nearestHint(key, engineRoot.names)))
			last = nil
		default:
			if _, dup := e.values[leaf]; dup {
				report("", faultf("engine key %s given twice", key))
			}
			one(leaf, value)
			last = leaf
		}
	}
	return e, len(l.problems) == before
}

// applyEngines reads the engines of one layer; they replace those of lower
// layers as a whole.
func (l *loader) applyEngines(settings []setting) {
	var list []rawEngine
	given := false
	for _, s := range settings {
		if s.leaf != nil {
			continue
		}
		given, l.enginesGiven = true, true
		if e, ok := l.parseEngineSpec(len(list), s); ok {
			list = append(list, e)
		}
	}
	if given {
		l.setEngines(list)
	}
}

// setEngines decodes a list and makes it the effective one.
func (l *loader) setEngines(list []rawEngine) {
	l.config.Engines = nil
	first := map[string]origin{}
	for _, r := range list {
		e := l.decodeEngine(&r)
		if at, dup := first[e.Name]; dup {
			l.problems = append(l.problems, e.origin("name").problem(r.key("name"),
				faultf("the name is taken by the engine of %s", at)))
		} else if e.Name != "" {
			first[e.Name] = e.origin("name")
		}
		l.config.Engines = append(l.config.Engines, e)
	}
}

func (l *loader) decodeEngine(r *rawEngine) Engine {
	e := Engine{at: r.at, origins: map[string]origin{}, shown: map[string]any{}}
	for _, leaf := range engineLeaves {
		leaf.setDefault(&e)
		value, given := r.values[leaf]
		if !given {
			if leaf.name == "name" || leaf.name == "url" {
				l.problems = append(l.problems, r.at.problem(r.key(leaf.name), faultf("missing")))
			}
			continue
		}
		if value.items == nil && leaf.shape == shapeOne {
			continue
		}
		v, problems := leaf.decode(r.key(leaf.name), value)
		l.problems = append(l.problems, problems...)
		if len(problems) > 0 {
			continue
		}
		leaf.set(&e, v)
		e.origins[leaf.name] = value.at
		note(e.shown, leaf, leaf.name, value)
		if leaf.name == "name" {
			r.name = e.Name
		}
	}
	if e.URL != "" {
		// Cannot fail: the text came out of url.URL.String.
		e.Target, _ = url.Parse(e.URL)
	}
	return e
}

// origin returns where a leaf of the engine came from.
func (e *Engine) origin(name string) origin { return e.origins[name] }
