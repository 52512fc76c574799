package e2e

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// metrics is one scrape: sample values by name and sorted labels, and the type
// of each family.
type metrics struct {
	samples []sample
	types   map[string]string
}

type sample struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
)

// parseMetrics reads the Prometheus text format (version 0.0.4) and refuses
// what a scraper would refuse: bad names, bad escapes, a sample given twice, a
// TYPE after its samples, a missing line feed at the end.
func parseMetrics(text string) (*metrics, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no line feed")
	}
	m := &metrics{types: map[string]string{}}
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := m.line(line, seen); err != nil {
			return nil, fmt.Errorf("line %d: %w: %q", i+1, err, line)
		}
	}
	return m, nil
}

func (m *metrics) line(line string, seen map[string]bool) error {
	switch {
	case line == "":
		return nil
	case strings.HasPrefix(line, "# TYPE "):
		return m.typeLine(strings.TrimPrefix(line, "# TYPE "))
	case strings.HasPrefix(line, "#"):
		return nil
	}
	s, err := parseSample(line)
	if err != nil {
		return err
	}
	if key := s.key(); seen[key] {
		return fmt.Errorf("sample given twice")
	} else {
		seen[key] = true
	}
	m.samples = append(m.samples, s)
	return nil
}

func (m *metrics) typeLine(rest string) error {
	name, kind, ok := strings.Cut(rest, " ")
	if !ok || metricName.FindString(name) != name {
		return fmt.Errorf("bad TYPE line")
	}
	switch kind {
	case "counter", "gauge", "histogram", "summary", "untyped":
	default:
		return fmt.Errorf("unknown type %q", kind)
	}
	if _, twice := m.types[name]; twice {
		return fmt.Errorf("type given twice")
	}
	for _, s := range m.samples {
		if s.name == name {
			return fmt.Errorf("TYPE after samples")
		}
	}
	m.types[name] = kind
	return nil
}

func parseSample(line string) (sample, error) {
	s := sample{name: metricName.FindString(line), labels: map[string]string{}}
	if s.name == "" {
		return s, fmt.Errorf("bad metric name")
	}
	rest := line[len(s.name):]
	if strings.HasPrefix(rest, "{") {
		var err error
		if rest, err = s.parseLabels(rest[1:]); err != nil {
			return s, err
		}
	}
	fields := strings.Fields(rest)
	if !strings.HasPrefix(rest, " ") || len(fields) == 0 || len(fields) > 2 {
		return s, fmt.Errorf("want one value after the name")
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return s, fmt.Errorf("bad value: %w", err)
	}
	s.value = value
	return s, nil
}

// parseLabels reads `name="value",..}` and returns what follows the brace.
// Blanks between the tokens are part of the format.
func (s *sample) parseLabels(rest string) (string, error) {
	for {
		rest = strings.TrimLeft(rest, " \t")
		if strings.HasPrefix(rest, "}") {
			return rest[1:], nil
		}
		name := labelName.FindString(rest)
		if name == "" || !strings.HasPrefix(rest[len(name):], `="`) {
			return "", fmt.Errorf("bad label")
		}
		value, after, err := labelValue(rest[len(name)+2:])
		if err != nil {
			return "", err
		}
		if _, twice := s.labels[name]; twice {
			return "", fmt.Errorf("label %s given twice", name)
		}
		s.labels[name] = value
		if rest = strings.TrimPrefix(after, ","); rest == after && !strings.HasPrefix(after, "}") {
			return "", fmt.Errorf("no comma between labels")
		}
	}
}

// labelValue reads up to the closing quote; only \\ \" and \n are escapes.
func labelValue(rest string) (value, after string, err error) {
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '"':
			return b.String(), rest[i+1:], nil
		case '\\':
			i++
			if i == len(rest) || !strings.ContainsRune(`\"n`, rune(rest[i])) {
				return "", "", fmt.Errorf("bad escape in a label value")
			}
			b.WriteString(map[byte]string{'\\': `\`, '"': `"`, 'n': "\n"}[rest[i]])
		default:
			b.WriteByte(rest[i])
		}
	}
	return "", "", fmt.Errorf("label value does not end")
}

func (s sample) key() string {
	parts := make([]string, 0, len(s.labels))
	for k, v := range s.labels {
		parts = append(parts, k+"="+strconv.Quote(v))
	}
	sort.Strings(parts)
	return s.name + "{" + strings.Join(parts, ",") + "}"
}

// sum adds the samples of a name whose labels include the given pairs
// ("engine", "a", ..).
func (m *metrics) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, s := range m.samples {
		if s.name == name && s.has(labels) {
			total += s.value
		}
	}
	return total
}

// count says how many samples of a name carry the given pairs.
func (m *metrics) count(name string, labels ...string) int {
	n := 0
	for _, s := range m.samples {
		if s.name == name && s.has(labels) {
			n++
		}
	}
	return n
}

func (s sample) has(labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if v, ok := s.labels[labels[i]]; !ok || v != labels[i+1] {
			return false
		}
	}
	return true
}

func TestParseMetrics(t *testing.T) {
	good := "# HELP a_total x\n# TYPE a_total counter\na_total{m=\"q\\\"\\\\\\n\",e=\"x\"} 3\na_total 1e3\nb{e=\"x\", } NaN 17\n"
	m, err := parseMetrics(good)
	if err != nil {
		t.Fatalf("good page refused: %v", err)
	}
	if got := m.sum("a_total"); got != 1003 {
		t.Errorf("sum = %v, want 1003", got)
	}
	if got := m.sum("a_total", "m", "q\"\\\n"); got != 3 {
		t.Errorf("labelled sum = %v, want 3", got)
	}
	for _, bad := range []string{
		"a 1", "a{x=\"\\t\"} 1\n", "a{x=\"1\"y=\"2\"} 1\n", "a{x=\"1\"} 1\na{x=\"1\"} 2\n", "1a 1\n", "a x\n",
		"a{x=\"1\n\"} 1\n", "a 1\n# TYPE a counter\n", "a{x=\"\xff\"} 1\n", "a{x=1} 1\n", "a\n", "# TYPE a odd\n",
	} {
		if _, err := parseMetrics(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}
