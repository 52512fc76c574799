package rig

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Metrics is one scrape: sample values by name and sorted labels, and the type
// of each family.
type Metrics struct {
	Samples []Sample
	types   map[string]string
}

// Sample is one series and its value.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
)

// ParseMetrics reads the Prometheus text format (version 0.0.4) and refuses
// what a scraper would refuse: bad names, bad escapes, a sample given twice, a
// TYPE after its samples, a missing line feed at the end.
func ParseMetrics(text string) (*Metrics, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no line feed")
	}
	m := &Metrics{types: map[string]string{}}
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := m.line(line, seen); err != nil {
			return nil, fmt.Errorf("line %d: %w: %q", i+1, err, line)
		}
	}
	return m, nil
}

func (m *Metrics) line(line string, seen map[string]bool) error {
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
	m.Samples = append(m.Samples, s)
	return nil
}

func (m *Metrics) typeLine(rest string) error {
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
	for _, s := range m.Samples {
		if s.Name == name {
			return fmt.Errorf("TYPE after samples")
		}
	}
	m.types[name] = kind
	return nil
}

func parseSample(line string) (Sample, error) {
	s := Sample{Name: metricName.FindString(line), Labels: map[string]string{}}
	if s.Name == "" {
		return s, fmt.Errorf("bad metric name")
	}
	rest := line[len(s.Name):]
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
	s.Value = value
	return s, nil
}

// parseLabels reads `name="value",..}` and returns what follows the brace.
// Blanks between the tokens are part of the format.
func (s *Sample) parseLabels(rest string) (string, error) {
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
		if _, twice := s.Labels[name]; twice {
			return "", fmt.Errorf("label %s given twice", name)
		}
		s.Labels[name] = value
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

func (s Sample) key() string {
	parts := make([]string, 0, len(s.Labels))
	for k, v := range s.Labels {
		parts = append(parts, k+"="+strconv.Quote(v))
	}
	sort.Strings(parts)
	return s.Name + "{" + strings.Join(parts, ",") + "}"
}

// Sum adds the samples of a name whose labels include the given pairs
// ("engine", "a", ..).
func (m *Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
	for _, s := range m.Samples {
		if s.Name == name && s.has(labels) {
			total += s.Value
		}
	}
	return total
}

// Count says how many samples of a name carry the given pairs.
func (m *Metrics) Count(name string, labels ...string) int {
	n := 0
	for _, s := range m.Samples {
		if s.Name == name && s.has(labels) {
			n++
		}
	}
	return n
}

func (s Sample) has(labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if v, ok := s.Labels[labels[i]]; !ok || v != labels[i+1] {
			return false
		}
	}
	return true
}
