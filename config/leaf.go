package config

import (
	"fmt"
	"reflect"
	"strings"
)

// shape is how many texts make one value.
type shape int

const (
	shapeOne shape = iota
	shapeList
	shapePairs
)

// leaf is one setting, read from the tags of its struct field.
type leaf struct {
	key      string // route.exact
	name     string // exact: the last part of the key
	short    string // second name of the flag
	help     string
	noun     string // what a message calls the value
	def      string // default as text; lists are separated by commas
	words    []string
	shape    shape
	codec    codec
	index    []int // of the field below Config or Engine
	typ      reflect.Type
	min, max any // bounds as values, nil for none
	positive bool
	restart  bool
	isFile   bool // its value is the path of a file to be read
}

// group is a mapping in the file.
type group struct {
	key    string
	leaves map[string]*leaf
	groups map[string]*group
	names  []string // known keys in declared order
}

// enginesKey is the one list of mappings; it is no leaf.
const enginesKey = "engines"

// The tables are built once and only read afterwards.
var (
	root, leaves             = buildTable(reflect.TypeFor[Config]())
	engineRoot, engineLeaves = buildTable(reflect.TypeFor[Engine]())
)

func buildTable(t reflect.Type) (*group, []*leaf) {
	g := &group{}
	return g, g.build(t, nil)
}

// build fills the group from the tagged fields of t and returns all leaves
// below it in declared order.
func (g *group) build(t reflect.Type, index []int) []*leaf {
	g.leaves, g.groups = map[string]*leaf{}, map[string]*group{}
	var all []*leaf
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("key")
		if name == "" || name == "-" {
			continue
		}
		g.names = append(g.names, name)
		key := joinKey(g.key, name)
		at := append(append([]int(nil), index...), i)
		switch {
		case f.Type == reflect.TypeFor[[]Engine]():
		case f.Type.Kind() == reflect.Struct && f.Tag.Get("kind") == "":
			sub := &group{key: key}
			g.groups[name] = sub
			all = append(all, sub.build(f.Type, at)...)
		default:
			l := newLeaf(f, key, name, at)
			g.leaves[name] = l
			all = append(all, l)
		}
	}
	return all
}

func joinKey(prefix, name string) string {
	switch "" {
	case prefix:
		return name
	case name:
		return prefix
	}
	return prefix + "." + name
}

func newLeaf(f reflect.StructField, key, name string, index []int) *leaf {
	l := &leaf{
		key: key, name: name, index: index, typ: f.Type,
		short:    f.Tag.Get("short"),
		help:     f.Tag.Get("help"),
		noun:     f.Tag.Get("noun"),
		def:      f.Tag.Get("default"),
		positive: f.Tag.Get("positive") == "true",
		restart:  f.Tag.Get("reload") == "restart",
	}
	if l.noun == "" {
		l.noun = strings.ReplaceAll(name, "_", " ")
	}
	if w := f.Tag.Get("words"); w != "" {
		l.words = strings.Split(w, "|")
	}
	switch f.Type.Kind() {
	case reflect.Slice:
		l.shape = shapeList
	case reflect.Map:
		l.shape = shapePairs
	default:
	}
	kind := f.Tag.Get("kind")
	if kind == "" {
		kind = defaultKind(f.Type, l.words != nil)
	}
	c, ok := codecs[kind]
	if !ok {
		panic(fmt.Sprintf("BUG: setting %s has unknown kind %q", key, kind))
	}
	l.codec, l.isFile = c, kind == "file"
	l.min, l.max = l.bound(f.Tag.Get("min")), l.bound(f.Tag.Get("max"))
	return l
}

// bound reads a limit tag in the leaf's own notation.
func (l *leaf) bound(tag string) any {
	if tag == "" {
		return nil
	}
	v, f := l.codec.parse(l, text{value: tag, show: tag})
	if f != nil {
		panic(fmt.Sprintf("BUG: bound %q of %s: %s", tag, l.key, f.message))
	}
	return v
}

// flag is the leaf's name on the command line, without dashes.
func (l *leaf) flag() string { return strings.ReplaceAll(l.key, "_", "-") }

// variable is the leaf's name in the environment.
func (l *leaf) variable() string { return variableName(l.key) }

func variableName(key string) string {
	return "RAMJET_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// get returns the leaf's value below v, a pointer to Config or Engine.
func (l *leaf) get(v any) any {
	return reflect.ValueOf(v).Elem().FieldByIndex(l.index).Interface()
}

// set stores a value that decode returned; nil stores the zero value.
func (l *leaf) set(v, value any) {
	field := reflect.ValueOf(v).Elem().FieldByIndex(l.index)
	if value == nil {
		field.SetZero()
		return
	}
	field.Set(reflect.ValueOf(value))
}

func (l *leaf) setDefault(v any) {
	if l.def == "" {
		l.set(v, nil)
		return
	}
	r := splitRaw(l, l.def, origin{})
	value, problems := l.decode(l.key, r)
	if len(problems) > 0 {
		panic("BUG: default of " + problems[0].String())
	}
	l.set(v, value)
}
