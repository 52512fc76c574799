package tokens

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Reasons why a rendering stops. They are notes for people, not errors for a client.
var (
	errRefused     = errors.New("template refuses")        // raise_exception: the engine answers 400
	errUnsupported = errors.New("template feature")        // something that we do not do exactly as jinja2
	errFailed      = errors.New("template error")          // jinja2 would raise, too
	errClock       = errors.New("clock")                   // the prompt holds the engine's date
	errTooMuch     = errors.New("template takes too long") // past the work limit
)

type (
	values = map[string]jinja.Value
	filter = func(s *renderState, args []jinja.Value, named values) (jinja.Value, error)
)

// isOurFilter reports whether a template may use the filter.
func isOurFilter(name string) bool { return ourFilters[name] != nil }

// isMethod reports whether name is a method of Python's str, list or dict, known to us or not: the library confuses
// such names with members of mappings.
func isMethod(name string) bool {
	return ourMethods[name] != nil || slices.Contains(otherMethods, name)
}

var otherMethods = []string{"append", "pop", "insert", "update", "extend", "clear", "copy", "remove", "setdefault", "popitem", "sort", "reverse", "index",
	"format", "encode", "center", "ljust", "rjust", "zfill", "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "partition", "rpartition",
	"casefold", "swapcase", "rindex", "expandtabs", "translate", "format_map"}

// ourFilters are the filters of jinja2 that we do exactly. `out`, `text` and `get` come from the rewriting.
var ourFilters = map[string]filter{
	"tojson": filterToJSON, "trim": filterTrim, "string": filterText, "text": filterText, "safe": filterText, "out": filterText,
	"join": filterJoin, "upper": filterUpper, "lower": filterLower, "items": filterItems, "default": filterDefault, "d": filterDefault,
	"length": filterLength, "count": filterLength, "first": filterFirst, "last": filterLast, "list": filterList, "replace": methodReplace,
	"reverse": filterReverse, "sort": filterSort, "selectattr": filterSelectAttr, "rejectattr": filterRejectAttr, "map": filterMap, "dictsort": filterDictSort,
	"capitalize": filterCapitalize, "int": filterInt, "get": filterGet,
}

// ourMethods are the methods that we do exactly.
var ourMethods = map[string]filter{
	"strip": methodStrip, "lstrip": methodLStrip, "rstrip": methodRStrip, "split": methodSplit, "rsplit": methodRSplit,
	"startswith": methodStartsWith, "endswith": methodEndsWith, "replace": methodReplace, "upper": filterUpper, "lower": filterLower,
	"join": methodJoin, "items": filterItems, "keys": methodKeys, "values": methodValues, "get": methodGet, "find": methodFind,
	"rfind": methodRFind, "count": methodCount, "removeprefix": methodRemovePrefix, "removesuffix": methodRemoveSuffix,
	"splitlines": methodUnsupported, "title": methodUnsupported, "capitalize": filterCapitalize,
}

func text(args []jinja.Value, i int) (string, bool) {
	if i < len(args) && args[i].IsString() {
		return args[i].AsString(), true
	}
	return "", false
}

func methodUnsupported(*renderState, []jinja.Value, values) (jinja.Value, error) {
	return jinja.Undefined(), errUnsupported
}

func filterText(s *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if args[0].IsString() {
		return args[0], s.spend(len(args[0].AsString()))
	}
	if args[0].IsCallable() || hasRareText(args[0], 0) {
		return jinja.Undefined(), errUnsupported
	}
	b := appendPyText(nil, args[0])
	return jinja.NewString(string(b)), s.spend(len(b))
}

// hasRareText reports whether a container holds text whose repr depends on the version of Unicode, or is too deep.
func hasRareText(v jinja.Value, depth int) bool {
	rare := func(t string) bool {
		return strings.IndexFunc(t, func(r rune) bool { return r >= 0x80 }) >= 0
	}
	if depth > maxJSONDepth {
		return true
	}
	switch {
	case v.IsString():
		return depth > 0 && rare(v.AsString())
	case v.IsList():
		return slices.ContainsFunc(v.AsList().Items, func(v jinja.Value) bool { return hasRareText(v, depth+1) })
	case v.IsDict():
		for _, name := range v.AsDict().Keys {
			if rare(name) || hasRareText(v.AsDict().Data[name], depth+1) {
				return true
			}
		}
	}
	return false
}

func filterToJSON(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if len(args) > 1 {
		return jinja.Undefined(), errUnsupported
	}
	style := jsonStyle{item: ", ", key: ": "}
	for name, v := range named {
		switch {
		case name == "ensure_ascii":
			style.ascii = v.IsTruthy()
		case name == "sort_keys":
			style.sort = v.IsTruthy()
		case name == "indent" && v.IsNone():
		case name == "indent" && v.IsInt() && v.AsInt() >= 0 && v.AsInt() <= 16:
			style.indented, style.indent = true, strings.Repeat(" ", int(v.AsInt()))
			if named["separators"].IsUndefined() || named["separators"].IsNone() {
				style.item = ","
			}
		case name == "separators" && v.IsNone():
		case name == "separators" && v.IsList() && v.AsList().Len() == 2 && v.AsList().Get(0).IsString() && v.AsList().Get(1).IsString():
			style.item, style.key = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
		default:
			return jinja.Undefined(), errUnsupported
		}
	}
	s.scratch = style.appendJSON(s.scratch[:0], args[0], 0)
	if style.unprovable {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewString(string(s.scratch)), s.spend(len(s.scratch))
}

func sortedKeys(d *jinja.Dict) []string {
	keys := slices.Clone(d.Keys)
	slices.Sort(keys) // UTF-8 sorts as Python's code points do
	return keys
}

func filterTrim(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if !args[0].IsString() {
		v, err := filterText(s, args[:1], nil)
		if err != nil {
			return v, err
		}
		args = append([]jinja.Value{v}, args[1:]...)
	}
	return methodStrip(s, args, named)
}

// strip cuts blanks, or the characters given, from the sides asked for.
func strip(args []jinja.Value, named values, left, right bool) (jinja.Value, error) {
	t, ok := text(args, 0)
	if !ok || len(args) > 2 || len(named) > 0 {
		return jinja.Undefined(), errFailed
	}
	cut := pySpace
	if len(args) == 2 && !args[1].IsNone() {
		set, ok := text(args, 1)
		if !ok {
			return jinja.Undefined(), errFailed
		}
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		t = strings.TrimLeftFunc(t, cut)
	}
	if right {
		t = strings.TrimRightFunc(t, cut)
	}
	return jinja.NewString(t), nil
}

func methodStrip(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	return strip(args, named, true, true)
}

func methodLStrip(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	return strip(args, named, true, false)
}

func methodRStrip(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	return strip(args, named, false, true)
}

func filterJoin(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	sep, ok := "", true
	if len(args) > 1 {
		sep, ok = text(args, 1)
	}
	if !ok || len(args) > 2 || len(named) > 0 || !args[0].IsList() {
		return jinja.Undefined(), errUnsupported
	}
	var b []byte
	for i, item := range args[0].AsList().Items {
		if i > 0 {
			b = append(b, sep...)
		}
		v, err := filterText(s, []jinja.Value{item}, nil)
		if err != nil {
			return v, err
		}
		b = append(b, v.AsString()...)
	}
	return jinja.NewString(string(b)), s.spend(len(b))
}

func methodJoin(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if _, ok := text(args, 0); !ok || len(args) != 2 || !args[1].IsList() {
		return jinja.Undefined(), errUnsupported
	}
	for _, item := range args[1].AsList().Items {
		if !item.IsString() {
			return jinja.Undefined(), errFailed
		}
	}
	return filterJoin(s, []jinja.Value{args[1], args[0]}, named)
}

// changeCase maps ASCII; the rest of Unicode maps by tables whose versions differ.
func changeCase(s *renderState, args []jinja.Value, change func(string) string) (jinja.Value, error) {
	v, err := filterText(s, args[:1], nil)
	if err != nil {
		return v, err
	}
	t := v.AsString()
	if strings.IndexFunc(t, func(r rune) bool { return r >= 0x80 }) >= 0 {
		return jinja.Undefined(), errUnsupported
	}
	return jinja.NewString(change(t)), nil
}

func filterUpper(s *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return changeCase(s, args, strings.ToUpper)
}

func filterLower(s *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return changeCase(s, args, strings.ToLower)
}

func filterCapitalize(s *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return changeCase(s, args, func(t string) string {
		if t == "" {
			return t
		}
		return strings.ToUpper(t[:1]) + strings.ToLower(t[1:])
	})
}

func filterItems(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if args[0].IsUndefined() {
		return jinja.NewList(nil), nil
	}
	if !args[0].IsDict() {
		return jinja.Undefined(), errFailed
	}
	return dictPairs(args[0].AsDict(), args[0].AsDict().Keys), nil
}

func dictPairs(d *jinja.Dict, keys []string) jinja.Value {
	items := make([]jinja.Value, 0, len(keys))
	for _, name := range keys {
		items = append(items, jinja.NewList([]jinja.Value{jinja.NewString(name), d.Data[name]}))
	}
	return jinja.NewList(items)
}

// filterDictSort sorts by key without regard to case, as jinja2 does when nothing else is asked for.
func filterDictSort(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if len(args) > 1 || len(named) > 0 || !args[0].IsDict() {
		return jinja.Undefined(), errUnsupported
	}
	d := args[0].AsDict()
	keys := slices.Clone(d.Keys)
	for _, name := range keys {
		if strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 }) >= 0 {
			return jinja.Undefined(), errUnsupported
		}
	}
	sort.SliceStable(keys, func(i, j int) bool { return strings.ToLower(keys[i]) < strings.ToLower(keys[j]) })
	return dictPairs(d, keys), nil
}

// filterSort sorts texts, or mappings by a member that is text, without regard to case.
func filterSort(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	by, given := named["attribute"]
	if len(args) > 1 || !args[0].IsList() || given && !by.IsString() || len(named) > 1 || len(named) == 1 && !given {
		return jinja.Undefined(), errUnsupported
	}
	items := slices.Clone(args[0].AsList().Items)
	keys := make([]string, len(items))
	order := make([]int, len(items))
	for i, item := range items {
		if given {
			item = attribute(item, by.AsString())
		}
		if !item.IsString() || strings.IndexFunc(item.AsString(), func(r rune) bool { return r >= 0x80 }) >= 0 {
			return jinja.Undefined(), errUnsupported
		}
		keys[i], order[i] = strings.ToLower(item.AsString()), i
	}
	sort.SliceStable(order, func(i, j int) bool { return keys[order[i]] < keys[order[j]] })
	sorted := make([]jinja.Value, len(items))
	for i, from := range order {
		sorted[i] = items[from]
	}
	return jinja.NewList(sorted), nil
}

func filterDefault(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	other := jinja.NewString("")
	if len(args) > 1 {
		other = args[1]
	} else if v, ok := named["default_value"]; ok {
		other = v
	}
	falsy := len(args) > 2 && args[2].IsTruthy() || named["boolean"].IsTruthy()
	if args[0].IsUndefined() || falsy && !args[0].IsTruthy() {
		return other, nil
	}
	return args[0], nil
}

func filterLength(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	switch v := args[0]; {
	case v.IsUndefined():
		return jinja.NewInt(0), nil
	case v.IsString():
		return jinja.NewInt(int64(utf8.RuneCountInString(v.AsString()))), nil
	case v.IsList():
		return jinja.NewInt(int64(v.AsList().Len())), nil
	case v.IsDict():
		return jinja.NewInt(int64(v.AsDict().Len())), nil
	}
	return jinja.Undefined(), errFailed
}

// elements lists what iterating gives, nil for what cannot be iterated.
func elements(v jinja.Value) []jinja.Value {
	switch {
	case v.IsList():
		return v.AsList().Items
	case v.IsDict():
		keys := v.AsDict().Keys
		items := make([]jinja.Value, len(keys))
		for i, name := range keys {
			items[i] = jinja.NewString(name)
		}
		return items
	case v.IsString():
		items := make([]jinja.Value, 0, len(v.AsString()))
		for _, r := range v.AsString() {
			items = append(items, jinja.NewString(string(r)))
		}
		return items
	case v.IsUndefined():
		return []jinja.Value{}
	}
	return nil
}

func filterFirst(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	items := elements(args[0])
	if items == nil && !args[0].IsList() {
		return jinja.Undefined(), errFailed
	}
	if len(items) == 0 {
		return jinja.Undefined(), nil
	}
	return items[0], nil
}

func filterLast(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	items := elements(args[0])
	if items == nil && !args[0].IsList() {
		return jinja.Undefined(), errFailed
	}
	if len(items) == 0 {
		return jinja.Undefined(), nil
	}
	return items[len(items)-1], nil
}

func filterList(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	items := elements(args[0])
	if items == nil && !args[0].IsList() {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewList(slices.Clone(items)), nil
}

func filterReverse(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if !args[0].IsList() {
		return jinja.Undefined(), errUnsupported
	}
	items := slices.Clone(args[0].AsList().Items)
	slices.Reverse(items)
	return jinja.NewList(items), nil
}

func filterInt(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if len(args) == 1 && args[0].IsInt() {
		return args[0], nil
	}
	return jinja.Undefined(), errUnsupported
}

// filterGet is x['name'] where x may be anything.
func filterGet(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	name, _ := text(args, 1)
	switch v := args[0]; {
	case v.IsDict():
		member, ok := v.AsDict().Get(name)
		if !ok && isMethod(name) {
			return jinja.Undefined(), errUnsupported
		}
		return member, nil
	case v.IsUndefined():
		return jinja.Undefined(), errFailed
	case isMethod(name):
		return jinja.Undefined(), errUnsupported
	}
	return jinja.Undefined(), nil
}
