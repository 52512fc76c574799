package config

import (
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Modes of Exact.
const (
	ExactOff     = "off"
	ExactShadow  = "shadow"
	ExactPercent = "percent"
)

// Exact is the share of sessions that exact residency decides. Mode is one of
// the constants above; Percent is 0 to 100 and counts only with ExactPercent.
type Exact struct {
	Mode    string
	Percent float64
}

// String writes it as the file does: off, shadow or 0.5%.
func (e Exact) String() string {
	if e.Mode != ExactPercent {
		return e.Mode
	}
	return strconv.FormatFloat(e.Percent, 'f', -1, 64) + "%"
}

func parseExactValue(_ *leaf, t text) (any, *fault) {
	if t.value == ExactOff || t.value == ExactShadow {
		return Exact{Mode: t.value}, nil
	}
	digits, isPercent := strings.CutSuffix(t.value, "%")
	x, err := strconv.ParseFloat(digits, 64)
	plain := err == nil && strings.Trim(digits, "0123456789.") == ""
	if best, ok := nearest(t.value, []string{ExactOff, ExactShadow}); ok && !plain {
		return nil, faultf("bad share %q", t.show).hintf("did you mean %s?", best)
	}
	switch {
	case !plain:
		return nil, faultf("bad share %q", t.show).hintf("write off, shadow or a percentage such as 10%%")
	case !isPercent:
		return nil, faultf("bad share %q", t.show).hintf("did you mean %s%%?", digits)
	case x < 0 || x > 100:
		return nil, faultf("share %s is not within 0%% and 100%%", t.show)
	}
	return Exact{Mode: ExactPercent, Percent: x}, nil
}

func parseDurationValue(_ *leaf, t text) (any, *fault) {
	if t.value == "0" {
		return time.Duration(0), nil
	}
	d, err := time.ParseDuration(t.value)
	switch {
	case err == nil && d >= 0 && !strings.HasPrefix(t.value, "+"):
		return d, nil
	case err == nil && d < 0:
		return nil, faultf("negative duration %s", t.show)
	case isNumber(t.value):
		return nil, faultf("duration %s has no unit", t.show).hintf("did you mean %ss?", t.value)
	}
	return nil, faultf("bad duration %q", t.show).hintf("write a number with ms, s, m or h, such as 30s")
}

// formatDuration is the shortest text that reads back as the same duration:
// 5m rather than 5m0s.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// unit is one size unit. Larger ones come first, so that formatting finds the
// shortest text.
type unit struct {
	name  string
	bytes int64
}

var units = []unit{
	{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}, {"B", 1},
}

func parseSizeValue(_ *leaf, t text) (any, *fault) { return parseSize(t) }

// parseRateValue also takes the longer form 16KiB/s; the second is implied.
func parseRateValue(_ *leaf, t text) (any, *fault) {
	t.value = strings.TrimSuffix(t.value, "/s")
	return parseSize(t)
}

func parseSize(t text) (any, *fault) {
	if t.value == "0" {
		return int64(0), nil
	}
	cut := len(t.value)
	for i, c := range []byte(t.value) {
		if c != '.' && (c < '0' || c > '9') {
			cut = i
			break
		}
	}
	digits, name := t.value[:cut], strings.TrimSpace(t.value[cut:])
	if !isNumber(digits) {
		return nil, faultf("bad size %q", t.show).hintf("write a number with B, KiB, MiB, GiB, KB, MB or GB, such as 64MiB")
	}
	if name == "" {
		return nil, faultf("size %s has no unit", t.show).hintf("did you mean %sB?", t.value)
	}
	for _, u := range units {
		if u.name == name {
			return multiply(t, digits, u.bytes)
		}
	}
	return nil, faultf("unknown unit %q in size %s", name, t.show).hintf("%s", unitHint(name))
}

// multiply is exact: 1.1GiB is no whole number of bytes and is refused rather
// than rounded.
func multiply(t text, digits string, unit int64) (any, *fault) {
	// A long run of digits is a typing error; big.Rat must not chew on it.
	r, ok := new(big.Rat), len(digits) <= 40
	if ok {
		_, ok = r.SetString(digits)
	}
	if !ok {
		return nil, faultf("bad size %q", t.show)
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	if !r.IsInt() {
		return nil, faultf("size %s is not a whole number of bytes", t.show)
	}
	if !r.Num().IsInt64() {
		return nil, faultf("size %s is too large", t.show)
	}
	return r.Num().Int64(), nil
}

func unitHint(name string) string {
	for _, u := range units {
		if strings.EqualFold(u.name, name) {
			return "did you mean " + u.name + "?"
		}
	}
	if len(name) == 1 || len(name) == 2 && strings.EqualFold(name[1:], "i") {
		letter := strings.ToUpper(name[:1])
		for _, u := range units {
			if u.name == letter+"iB" {
				return "did you mean " + letter + "iB or " + letter + "B?"
			}
		}
	}
	return "one of B, KiB, MiB, GiB, KB, MB, GB"
}

func formatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range units {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	panic("BUG: the list of units ends without B")
}

// isNumber reports whether s is digits with at most one point inside.
func isNumber(s string) bool {
	whole, fraction, hasPoint := strings.Cut(s, ".")
	digits := func(p string) bool { return p != "" && strings.Trim(p, "0123456789") == "" }
	return digits(whole) && (!hasPoint || digits(fraction))
}
