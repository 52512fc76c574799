package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the YAML file; a configuration is some kilobytes.
const maxFile = 1 << 20

// readFile applies the YAML file, if one is named.
func (l *loader) readFile() {
	if l.file == "" {
		return
	}
	data, err := l.opts.ReadFile(l.file)
	if err != nil {
		l.problems = append(l.problems, Problem{File: l.file, Message: fmt.Sprintf("cannot read: %v", reason(err)), rank: int(layerFile)})
		l.fileBroken = true
		return
	}
	before := len(l.problems)
	node := l.parseYAML(data)
	l.fileBroken = len(l.problems) > before
	if node == nil {
		return
	}
	if follow(node).Kind != yaml.MappingNode && !isNull(node) {
		l.fileBroken = true
	}
	l.walk(root, node)
}

// parseYAML returns the root node, nil if there is nothing to walk.
func (l *loader) parseYAML(data []byte) *yaml.Node {
	if len(data) > maxFile {
		l.fileProblem(1, 1, "", faultf("larger than %s", formatSize(maxFile)))
		return nil
	}
	if line, col, ok := badByte(data); ok {
		l.fileProblem(line, col, "", faultf("not UTF-8 text"))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			l.syntaxProblem(data, err)
		}
		return nil
	}
	// The library stops at the end of the first document in silence.
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		l.syntaxProblem(data, err)
	default:
		l.fileProblem(second.Line, second.Column, "", faultf("a second document").hintf("everything belongs in one, without ---"))
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

func (l *loader) fileProblem(line, col int, key string, f *fault) {
	at := origin{layer: layerFile, name: l.file, line: line, col: col}
	l.problems = append(l.problems, at.problem(key, f))
}

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// The library gives the lines of its parser's errors from 0 on, those of its scanner's from 1 on.
	yamlParser = regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or '\]'|',' or '\}'|<document start>|<stream-start>)`)
	yamlBreak  = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]") // as the library counts lines (YAML 1.1, section 4.2)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '([^']+)'`)
)

// syntaxProblem finds the place in the library's message; it gives lines only.
func (l *loader) syntaxProblem(data []byte, err error) {
	message, line, col := strings.TrimPrefix(err.Error(), "yaml: "), 1, 1
	lines := yamlBreak.Split(string(data), -1)
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
		if yamlParser.MatchString(message) {
			line++
		}
		// What is missing at the end is missing on the last line that has something.
		line = min(line, len(yamlBreak.Split(strings.TrimRight(string(data), "\r\n \t"), -1)))
	} else if m := yamlAnchor.FindStringSubmatch(message); m != nil {
		for i, s := range lines {
			if at := strings.Index(s, "*"+m[1]); at >= 0 {
				line, col = i+1, at+1
				break
			}
		}
	}
	f := faultf("not YAML: %s", message)
	if line <= len(lines) {
		s := lines[line-1]
		indent := len(s) - len(strings.TrimLeft(s, " \t"))
		if tab := strings.IndexByte(s[:indent], '\t'); tab >= 0 {
			f.hintf("indent with spaces, not tabs")
			col = tab + 1
		} else if col == 1 {
			col = indent + 1
		}
	}
	l.fileProblem(line, col, "", f)
}

// badByte finds the first byte that is not UTF-8.
func badByte(data []byte) (line, col int, found bool) {
	if utf8.Valid(data) {
		return 0, 0, false
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	lines := yamlBreak.Split(string(data[:at]), -1)
	return len(lines), utf8.RuneCountInString(lines[len(lines)-1]) + 1, true
}

// walk applies a mapping. The schema has a fixed depth, so aliases can neither
// loop nor multiply.
func (l *loader) walk(g *group, n *yaml.Node) {
	l.eachKey(g, g.key, n, func(name string, _, value *yaml.Node) {
		switch {
		case g.groups[name] != nil:
			l.walk(g.groups[name], value)
		case g.leaves[name] != nil:
			leaf := g.leaves[name]
			r, ok := l.rawFrom(leaf, leaf.key, value)
			if ok {
				l.apply(leaf, r)
			}
		default:
			l.walkEngines(value)
		}
	})
}

// eachKey calls f for every known key of a mapping that has a value, and
// reports what is not one. A key without a value counts as not given: it is
// what is left when its lines are commented out.
func (l *loader) eachKey(g *group, key string, n *yaml.Node, f func(name string, k, v *yaml.Node)) {
	n = follow(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.nodeProblem(n, key, faultf("want a mapping, got %s", kindName(n)))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		full := joinKey(key, k.Value)
		known := g.leaves[k.Value] != nil || g.groups[k.Value] != nil || g == root && k.Value == enginesKey
		switch {
		case k.Kind != yaml.ScalarNode:
			l.nodeProblem(k, key, faultf("a key must be a plain name"))
		case k.Tag == "!!merge":
			l.nodeProblem(k, key, faultf("merge keys (<<) are not supported"))
		case seen[k.Value] > 0:
			l.nodeProblem(k, full, faultf("given twice, first in line %d", seen[k.Value]))
		case !known:
			l.nodeProblem(k, full, faultf("unknown key").hintf("%s", keyHint(g, k.Value)))
		case !isNull(follow(v)):
			f(k.Value, k, v)
		}
		if k.Kind == yaml.ScalarNode && seen[k.Value] == 0 {
			seen[k.Value] = k.Line
		}
	}
}

// keyHint looks among the siblings first, then for the same name elsewhere:
// a key in the wrong mapping is as common as a misspelt one.
func keyHint(g *group, name string) string {
	if best, ok := nearest(name, g.names); ok {
		return "did you mean " + joinKey(g.key, best) + "?"
	}
	if g != engineRoot {
		for _, leaf := range leaves {
			if leaf.name == name || leaf.key == name {
				return "did you mean " + leaf.key + "?"
			}
		}
		for _, leaf := range engineLeaves {
			if leaf.name == name {
				return "did you mean " + name + " of an engine?"
			}
		}
	}
	return nearestHint(name, g.names)
}

// rawFrom collects the texts of a leaf.
func (l *loader) rawFrom(leaf *leaf, key string, n *yaml.Node) (raw, bool) {
	// The place is where the value is used, not where its anchor stands.
	r := raw{at: l.at(n)}
	n = follow(n)
	before := len(l.problems)
	switch {
	case leaf.shape == shapePairs && n.Kind == yaml.MappingNode:
		r.pairs = l.pairsFrom(key, n)
	case leaf.shape == shapeList && n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			if t, ok := l.textFrom(key, item); ok {
				r.items = append(r.items, t)
			}
		}
	case leaf.shape != shapePairs && n.Kind == yaml.ScalarNode:
		if t, ok := l.textFrom(key, n); ok {
			t.at = r.at
			r.items = []text{t}
		}
	default:
		want := [...]string{"one value", "one value or a list", "a mapping"}[leaf.shape]
		l.nodeProblem(n, key, faultf("want %s, got %s", want, kindName(n)))
	}
	return r, len(l.problems) == before
}

func (l *loader) pairsFrom(key string, n *yaml.Node) []pair {
	var pairs []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Tag == "!!merge" {
			l.nodeProblem(k, key, faultf("merge keys (<<) are not supported"))
			continue
		}
		// A key is taken as it stands: ${NAME} belongs in values.
		if k.Kind != yaml.ScalarNode {
			l.nodeProblem(k, key, faultf("a key must be a plain name"))
			continue
		}
		if t, ok := l.textFrom(key, v); ok {
			pairs = append(pairs, pair{text{value: k.Value, show: k.Value, at: l.at(k)}, t})
		}
	}
	return pairs
}

// textFrom takes the scalar's text as it stands, whatever type YAML sees in it:
// off must stay a word and 1_000 must not become a number.
func (l *loader) textFrom(key string, n *yaml.Node) (text, bool) {
	at := l.at(n)
	n = follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		l.nodeProblem(n, key, faultf("want one value, got %s", kindName(n)))
	case n.Style&yaml.TaggedStyle != 0:
		l.nodeProblem(n, key, faultf("type tags (%s) are not supported", n.Tag))
	case isNull(n):
		l.nodeProblem(n, key, faultf("an empty value"))
	default:
		value, show, f := expand(n.Value, l.env)
		if f != nil {
			l.nodeProblem(n, key, f)
			return text{}, false
		}
		return text{value: value, show: show, at: at}, true
	}
	return text{}, false
}

func (l *loader) at(n *yaml.Node) origin {
	return origin{layer: layerFile, name: l.file, line: n.Line, col: n.Column}
}

func (l *loader) nodeProblem(n *yaml.Node, key string, f *fault) {
	l.problems = append(l.problems, l.at(n).problem(key, f))
}

// follow resolves an alias; an alias cannot point to an alias.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "one value"
	}
}
