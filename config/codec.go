package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// text is one scalar as a user wrote it. show is what messages and dumps may
// print: the value, or the ${NAME} it came from when that looks like a secret.
type text struct {
	value, show string
	at          origin
}

// pair is one entry of a mapping from texts to texts.
type pair struct{ key, value text }

// raw is the undecoded value of a leaf.
type raw struct {
	items []text
	pairs []pair
	at    origin
}

// codec reads and writes one kind of scalar; parse(format(v)) gives v again.
type codec struct {
	placeholder string // in the help
	parse       func(l *leaf, t text) (any, *fault)
	format      func(v any) string
}

// codecs by kind. A kind's value type must be its field's type, or the
// element's for a list.
var codecs = map[string]codec{
	"text":       {"TEXT", parseText, formatText},
	"word":       {"WORD", parseWord, formatText},
	"file":       {"PATH", parseFilePath, formatText},
	"folder":     {"PATH", parseFilePath, formatText},
	"name":       {"NAME", parseName, formatText},
	"listen":     {"ADDR", parseListen, formatText},
	"endpoint":   {"ENDPOINT", parseEndpoint, formatText},
	"engine-url": {"URL", parseEngineURL, formatText},
	"http-url":   {"URL", parseHTTPURL, formatText},
	"path":       {"PATH", parseURLPath, formatText},
	"bool":       {"", parseBool, func(v any) string { return strconv.FormatBool(v.(bool)) }},
	"int":        {"N", parseInt, func(v any) string { return strconv.Itoa(v.(int)) }},
	"auto-int":   {"auto|N", parseAutoInt, formatAutoInt},
	"float":      {"X", parseFloat, func(v any) string { return strconv.FormatFloat(v.(float64), 'g', -1, 64) }},
	"duration":   {"DURATION", parseDurationValue, func(v any) string { return formatDuration(v.(time.Duration)) }},
	"size":       {"SIZE", parseSizeValue, func(v any) string { return formatSize(v.(int64)) }},
	"rate":       {"SIZE", parseRateValue, func(v any) string { return formatSize(v.(int64)) }},
	"exact":      {"off|shadow|N%", parseExactValue, func(v any) string { return v.(Exact).String() }},
	"gpus":       {"LIST", parseGPUs, func(v any) string { return strconv.Itoa(v.(int)) }},
}

func defaultKind(t reflect.Type, words bool) string {
	switch {
	case words:
		return "word"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.Int:
		return "int"
	case t.Kind() == reflect.Float64:
		return "float"
	default:
		return "text"
	}
}

// splitRaw turns the text of a flag or variable into a raw value: lists are
// separated by commas or white space.
func splitRaw(l *leaf, value string, at origin) raw {
	r := raw{at: at}
	if l.shape == shapeOne {
		r.items = []text{{value: value, show: value, at: at}}
		return r
	}
	for _, item := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\n' }) {
		if l.shape == shapeList {
			r.items = append(r.items, text{value: item, show: item, at: at})
			continue
		}
		k, v, _ := strings.Cut(item, "=")
		r.pairs = append(r.pairs, pair{text{value: k, show: k, at: at}, text{value: v, show: v, at: at}})
	}
	return r
}

// decode reads a raw value. key names it in problems, since the leaf of an
// engine does not know the engine's name.
func (l *leaf) decode(key string, r raw) (any, []Problem) {
	switch l.shape {
	case shapeList:
		return l.decodeList(key, r)
	case shapePairs:
		return l.decodePairs(key, r)
	default:
		v, f := l.scalar(r.items[0])
		if f != nil {
			return nil, []Problem{r.items[0].at.problem(key, f)}
		}
		return v, nil
	}
}

func (l *leaf) decodeList(key string, r raw) (any, []Problem) {
	var problems []Problem
	list := reflect.MakeSlice(l.typ, 0, len(r.items))
	for _, t := range r.items {
		v, f := l.scalar(t)
		if f != nil {
			problems = append(problems, t.at.problem(key, f))
			continue
		}
		if rv := reflect.ValueOf(v); rv.Type() == l.typ {
			list = reflect.AppendSlice(list, rv)
		} else {
			list = reflect.Append(list, rv)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if list.Len() == 0 {
		return reflect.Zero(l.typ).Interface(), nil
	}
	return list.Interface(), nil
}

func (l *leaf) decodePairs(key string, r raw) (any, []Problem) {
	var problems []Problem
	m := make(map[string]string, len(r.pairs))
	for _, p := range r.pairs {
		for _, t := range []text{p.key, p.value} {
			if f := l.checkPart(t); f != nil {
				problems = append(problems, t.at.problem(key, f))
			}
		}
		if _, dup := m[p.key.value]; dup {
			problems = append(problems, p.key.at.problem(key, faultf("%q is given twice", p.key.show)))
		}
		m[p.key.value] = p.value.value
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if len(m) == 0 {
		return map[string]string(nil), nil
	}
	return m, nil
}

func (l *leaf) checkPart(t text) *fault {
	if t.value == "" {
		return faultf("an empty name").hintf("write name=model on both sides")
	}
	_, f := parseText(l, t)
	return f
}

// scalar reads one text and holds it against the leaf's bounds.
func (l *leaf) scalar(t text) (any, *fault) {
	v, f := l.codec.parse(l, t)
	if f != nil {
		return nil, f
	}
	switch {
	case l.positive && number(v) <= 0:
		return nil, faultf("must be more than 0, is %s", t.show)
	case l.min != nil && number(v) < number(l.min):
		return nil, faultf("must be at least %s, is %s", l.codec.format(l.min), t.show)
	case l.max != nil && number(v) > number(l.max):
		return nil, faultf("must be at most %s, is %s", l.codec.format(l.max), t.show)
	}
	return v, nil
}

// number makes bounded kinds comparable; 53 bits are ample for a bound.
func number(v any) float64 {
	switch n := v.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case time.Duration:
		return float64(n)
	case float64:
		return n
	}
	panic(fmt.Sprintf("BUG: a bound on a %T", v))
}

// formatted returns the canonical texts of a value: one for a scalar, one an
// element for a list.
func (l *leaf) formatted(v any) []string {
	if l.shape != shapeList {
		return []string{l.codec.format(v)}
	}
	rv := reflect.ValueOf(v)
	out := make([]string, rv.Len())
	for i := range out {
		out[i] = l.codec.format(rv.Index(i).Interface())
	}
	return out
}

func formatText(v any) string { return v.(string) }

func parseText(_ *leaf, t text) (any, *fault) {
	// Invisible characters come from copying; YAML would fold some of them.
	if strings.ContainsFunc(t.value, func(c rune) bool { return !unicode.IsGraphic(c) }) || !utf8.ValidString(t.value) {
		return nil, faultf("holds a control character or is not UTF-8")
	}
	return t.value, nil
}

func parseWord(l *leaf, t text) (any, *fault) {
	for _, w := range l.words {
		if t.value == w {
			return w, nil
		}
	}
	return nil, faultf("unknown %s %q", l.noun, t.show).hintf("%s", didYouMean(strings.ToLower(t.value), l.words))
}

// parseFilePath refuses what is evidently a secret itself, without repeating
// it: it would end in logs and in dumps.
func parseFilePath(l *leaf, t text) (any, *fault) {
	if f := firstFault(parseText(l, t)); f != nil {
		return nil, f.hintf("name a file")
	}
	for _, p := range []string{"sk-", "hf_", "Bearer ", "bearer "} {
		if strings.HasPrefix(t.value, p) {
			return nil, faultf("looks like a secret, not like a path").hintf("name a file that holds it")
		}
	}
	return t.value, nil
}

func firstFault(_ any, f *fault) *fault { return f }

func parseName(_ *leaf, t text) (any, *fault) {
	ok := len(t.value) >= 1 && len(t.value) <= 32
	for _, c := range []byte(t.value) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return nil, faultf("bad name %q", t.show).hintf("1 to 32 of a-z, 0-9 and -")
	}
	return t.value, nil
}

func parseBool(_ *leaf, t text) (any, *fault) {
	switch strings.ToLower(t.value) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return nil, faultf("want true or false, got %q", t.show)
}

func parseInt(_ *leaf, t text) (any, *fault) {
	n, err := strconv.Atoi(t.value)
	if err != nil {
		return nil, faultf("want a whole number, got %q", t.show)
	}
	return n, nil
}

func parseAutoInt(_ *leaf, t text) (any, *fault) {
	if t.value == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(t.value)
	if err != nil || n < 1 {
		return nil, faultf("want auto or a whole number above 0, got %q", t.show)
	}
	return n, nil
}

func formatAutoInt(v any) string {
	if v.(int) == 0 {
		return "auto"
	}
	return strconv.Itoa(v.(int))
}

func parseFloat(_ *leaf, t text) (any, *fault) {
	x, err := strconv.ParseFloat(t.value, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, faultf("want a number, got %q", t.show)
	}
	return x, nil
}

// maxGPU bounds an index, so that a range cannot make a list of millions.
const maxGPU = 1023

// parseGPUs reads one index or a range and returns a []int.
func parseGPUs(_ *leaf, t text) (any, *fault) {
	lo, hi, isRange := strings.Cut(t.value, "-")
	if !isRange {
		hi = lo
	}
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 != nil || err2 != nil || first > last || last > maxGPU {
		return nil, faultf("bad GPU index %q", t.show).hintf("write 0-3 or 0,1,2,3")
	}
	var list []int
	for i := first; i <= last; i++ {
		list = append(list, int(i))
	}
	return list, nil
}
