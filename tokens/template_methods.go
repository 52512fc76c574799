package tokens

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// cuts reads the arguments of split and rsplit.
func cuts(args []jinja.Value, named values) (t, sep string, most int, err error) {
	t, ok := text(args, 0)
	sep, given := text(args, 1)
	if !ok || len(args) > 3 || len(named) > 0 || len(args) > 1 && !given {
		return "", "", 0, errUnsupported
	}
	most = -1
	if len(args) == 3 {
		if !args[2].IsInt() {
			return "", "", 0, errFailed
		}
		most = int(min(args[2].AsInt(), 1<<30))
	}
	if given && sep == "" {
		return "", "", 0, errFailed
	}
	return t, sep, most, nil
}

func texts(parts []string) jinja.Value {
	items := make([]jinja.Value, len(parts))
	for i, part := range parts {
		items[i] = jinja.NewString(part)
	}
	return jinja.NewList(items)
}

func methodSplit(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	t, sep, most, err := cuts(args, named)
	switch {
	case err != nil:
		return jinja.Undefined(), err
	case sep == "":
		return texts(strings.FieldsFunc(t, pySpace)), nil
	case most < 0:
		return texts(strings.Split(t, sep)), nil
	}
	return texts(strings.SplitN(t, sep, most+1)), nil
}

func methodRSplit(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	t, sep, most, err := cuts(args, named)
	switch {
	case err != nil:
		return jinja.Undefined(), err
	case sep == "" || most < 0:
		return methodSplit(s, args, named)
	}
	var parts []string
	for ; most > 0; most-- {
		at := strings.LastIndex(t, sep)
		if at < 0 {
			break
		}
		parts = append(parts, t[at+len(sep):])
		t = t[:at]
	}
	parts = append(parts, t)
	slices.Reverse(parts)
	return texts(parts), nil
}

// affix applies a test of a prefix or suffix, which may be several.
func affix(args []jinja.Value, has func(s, part string) bool) (jinja.Value, error) {
	t, ok := text(args, 0)
	if !ok || len(args) != 2 {
		return jinja.Undefined(), errFailed
	}
	if args[1].IsList() {
		for _, v := range args[1].AsList().Items {
			if !v.IsString() {
				return jinja.Undefined(), errFailed
			}
			if has(t, v.AsString()) {
				return jinja.NewBool(true), nil
			}
		}
		return jinja.NewBool(false), nil
	}
	part, ok := text(args, 1)
	if !ok {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewBool(has(t, part)), nil
}

func methodStartsWith(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return affix(args, strings.HasPrefix)
}

func methodEndsWith(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return affix(args, strings.HasSuffix)
}

func methodReplace(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	t, ok := text(args, 0)
	from, ok2 := text(args, 1)
	to, ok3 := text(args, 2)
	if !ok || !ok2 || !ok3 || len(args) > 4 || len(named) > 0 {
		return jinja.Undefined(), errFailed
	}
	most := -1
	if len(args) == 4 {
		if !args[3].IsInt() {
			return jinja.Undefined(), errUnsupported
		}
		most = int(min(args[3].AsInt(), 1<<30))
	}
	if err := s.spend(len(t) + strings.Count(t, from)*len(to)); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(strings.Replace(t, from, to, most)), nil
}

func methodRemovePrefix(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	t, ok := text(args, 0)
	part, ok2 := text(args, 1)
	if !ok || !ok2 {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewString(strings.TrimPrefix(t, part)), nil
}

func methodRemoveSuffix(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	t, ok := text(args, 0)
	part, ok2 := text(args, 1)
	if !ok || !ok2 {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewString(strings.TrimSuffix(t, part)), nil
}

// position turns a byte index into one of characters.
func position(args []jinja.Value, find func(s, part string) int) (jinja.Value, error) {
	t, ok := text(args, 0)
	part, ok2 := text(args, 1)
	if !ok || !ok2 || len(args) != 2 {
		return jinja.Undefined(), errUnsupported
	}
	at := find(t, part)
	if at > 0 {
		at = utf8.RuneCountInString(t[:at])
	}
	return jinja.NewInt(int64(at)), nil
}

func methodFind(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return position(args, strings.Index)
}

func methodRFind(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	return position(args, strings.LastIndex)
}

func methodCount(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	t, ok := text(args, 0)
	part, ok2 := text(args, 1)
	if !ok || !ok2 || len(args) != 2 {
		return jinja.Undefined(), errUnsupported
	}
	return jinja.NewInt(int64(strings.Count(t, part))), nil
}

func methodKeys(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if !args[0].IsDict() {
		return jinja.Undefined(), errFailed
	}
	return jinja.NewList(elements(args[0])), nil
}

func methodValues(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	if !args[0].IsDict() {
		return jinja.Undefined(), errFailed
	}
	d := args[0].AsDict()
	items := make([]jinja.Value, len(d.Keys))
	for i, name := range d.Keys {
		items[i] = d.Data[name]
	}
	return jinja.NewList(items), nil
}

func methodGet(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	name, ok := text(args, 1)
	if !args[0].IsDict() || !ok || len(args) > 3 {
		return jinja.Undefined(), errFailed
	}
	if v, ok := args[0].AsDict().Get(name); ok {
		return v, nil
	}
	if len(args) == 3 {
		return args[2], nil
	}
	return jinja.None(), nil
}

// attribute follows a dotted path as jinja2's filters with an attribute do.
func attribute(v jinja.Value, path string) jinja.Value {
	for _, name := range strings.Split(path, ".") {
		if !v.IsDict() {
			return jinja.Undefined()
		}
		v, _ = v.AsDict().Get(name)
	}
	return v
}

// holds applies the tests that templates give to filters by name.
func holds(v jinja.Value, args []jinja.Value) (bool, error) {
	if len(args) == 0 {
		return v.IsTruthy(), nil
	}
	name, _ := text(args, 0)
	switch name {
	case "defined":
		return !v.IsUndefined(), nil
	case "undefined":
		return v.IsUndefined(), nil
	case "none":
		return v.IsNone(), nil
	case "string":
		return v.IsString(), nil
	case "mapping":
		return v.IsDict(), nil
	case "equalto", "eq", "==", "ne", "!=":
		if len(args) == 2 && (v.IsString() || v.IsUndefined() || v.IsNone()) && args[1].IsString() {
			return v.Equals(args[1]) == (name != "ne" && name != "!="), nil
		}
	case "in":
		if len(args) == 2 && v.IsString() && args[1].IsList() {
			return slices.ContainsFunc(args[1].AsList().Items, v.Equals), nil
		}
	}
	return false, errUnsupported
}

func selectBy(args []jinja.Value, named values, want bool) (jinja.Value, error) {
	path, ok := text(args, 1)
	if !ok || !args[0].IsList() || len(named) > 0 {
		return jinja.Undefined(), errUnsupported
	}
	var items []jinja.Value
	for _, item := range args[0].AsList().Items {
		yes, err := holds(attribute(item, path), args[2:])
		if err != nil {
			return jinja.Undefined(), err
		}
		if yes == want {
			items = append(items, item)
		}
	}
	return jinja.NewList(items), nil
}

func filterSelectAttr(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	return selectBy(args, named, true)
}

func filterRejectAttr(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	return selectBy(args, named, false)
}

// filterMap is map(attribute=..) or map('filter').
func filterMap(s *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if !args[0].IsList() {
		return jinja.Undefined(), errUnsupported
	}
	src := args[0].AsList().Items
	items := make([]jinja.Value, len(src))
	if path, ok := named["attribute"]; ok {
		if len(args) > 1 || len(named) > 1 || !path.IsString() {
			return jinja.Undefined(), errUnsupported
		}
		for i, item := range src {
			items[i] = attribute(item, path.AsString())
		}
		return jinja.NewList(items), nil
	}
	name, _ := text(args, 1)
	f := s.filters[name]
	if f == nil {
		return jinja.Undefined(), errUnsupported
	}
	for i, item := range src {
		v, err := f(s, append([]jinja.Value{item}, args[2:]...), named)
		if err != nil {
			return jinja.Undefined(), err
		}
		items[i] = v
	}
	return jinja.NewList(items), nil
}
