package telemetry

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// page is a parsed Prometheus text page.
type page struct {
	help, kind map[string]string
	order      []string           // families in order
	value      map[string]float64 // by series, labels as written
	labels     map[string]map[string]string
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
)

// parsePage is a strict reader of the text format 0.0.4: HELP then TYPE then
// samples, each family in one piece, no series twice, only the three escapes,
// cumulative histograms with sum and count. It is the judge of every test of
// the page.
func parsePage(text string) (*page, error) {
	p := &page{help: map[string]string{}, kind: map[string]string{}, value: map[string]float64{}, labels: map[string]map[string]string{}}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the page is not UTF-8")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	current := ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var err error
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name, help, _ := strings.Cut(line[len("# HELP "):], " ")
			if _, twice := p.help[name]; twice || help == "" {
				err = fmt.Errorf("HELP of %q is empty or there twice", name)
			}
			p.help[name], current = help, name
			p.order = append(p.order, name)
		case strings.HasPrefix(line, "# TYPE "):
			name, kind, _ := strings.Cut(line[len("# TYPE "):], " ")
			if name != current || p.kind[name] != "" {
				err = fmt.Errorf("TYPE of %q is not after its HELP", name)
			}
			p.kind[name] = kind
		default:
			err = p.sample(line, current)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %q", i+1, err, line)
		}
	}
	return p, p.checkHistograms()
}

func (p *page) sample(line, current string) error {
	name := metricName.FindString(line)
	if name == "" {
		return fmt.Errorf("no metric name")
	}
	rest := line[len(name):]
	labels := map[string]string{}
	if strings.HasPrefix(rest, "{") {
		var err error
		if labels, rest, err = parseLabels(rest[1:]); err != nil {
			return err
		}
	}
	series := line[:len(line)-len(rest)]
	if !strings.HasPrefix(rest, " ") || strings.ContainsAny(rest[1:], " \t\r") {
		return fmt.Errorf("not one blank and one value after the series")
	}
	v, err := strconv.ParseFloat(rest[1:], 64)
	if err != nil {
		return err
	}
	suffix, ok := strings.CutPrefix(name, current)
	switch kind := p.kind[current]; {
	case !ok, suffix != "" && kind != "histogram" && kind != "summary":
		return fmt.Errorf("sample outside of its family %q", current)
	case kind == "histogram" && suffix != "_bucket" && suffix != "_sum" && suffix != "_count":
		return fmt.Errorf("odd sample %q of a histogram", name)
	case kind == "counter" && v < 0:
		return fmt.Errorf("negative counter")
	}
	if _, twice := p.value[series]; twice {
		return fmt.Errorf("series twice")
	}
	p.value[series], p.labels[series] = v, labels
	return nil
}

func parseLabels(s string) (labels map[string]string, rest string, err error) {
	labels = map[string]string{}
	for {
		name := labelName.FindString(s)
		if name == "" || !strings.HasPrefix(s[len(name):], `="`) {
			return nil, "", fmt.Errorf("bad label name at %q", s)
		}
		s = s[len(name)+2:]
		var b strings.Builder
		for {
			if s == "" {
				return nil, "", fmt.Errorf("label value has no end")
			}
			c := s[0]
			s = s[1:]
			if c == '"' {
				break
			}
			if c != '\\' {
				b.WriteByte(c)
				continue
			}
			if s == "" || !strings.ContainsRune(`\"n`, rune(s[0])) {
				return nil, "", fmt.Errorf("bad escape in a label value")
			}
			b.WriteByte(map[byte]byte{'\\': '\\', '"': '"', 'n': '\n'}[s[0]])
			s = s[1:]
		}
		if _, twice := labels[name]; twice {
			return nil, "", fmt.Errorf("label %q twice", name)
		}
		labels[name] = b.String()
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], nil
		}
		if !strings.HasPrefix(s, ",") {
			return nil, "", fmt.Errorf("no comma after label %q", name)
		}
		s = strings.TrimPrefix(s[1:], " ")
	}
}

// checkHistograms demands for each series of a histogram buckets that never
// fall, up to +Inf, which equals the count.
func (p *page) checkHistograms() error {
	for series, labels := range p.labels {
		name, _, _ := strings.Cut(series, "{")
		fam, ok := strings.CutSuffix(name, "_count")
		if !ok || p.kind[fam] != "histogram" {
			continue
		}
		last, seen := 0.0, 0
		byBound := map[float64]float64{}
		for s, l := range p.labels {
			n, _, _ := strings.Cut(s, "{")
			if n != fam+"_bucket" || !sameBut(l, labels, "le") {
				continue
			}
			le, err := strconv.ParseFloat(l["le"], 64)
			if err != nil {
				return err
			}
			byBound[le] = p.value[s]
		}
		for _, le := range sortedKeys(byBound) {
			if byBound[le] < last {
				return fmt.Errorf("buckets of %s fall at %v", series, le)
			}
			last = byBound[le]
			seen++
		}
		if v, ok := byBound[math.Inf(1)]; seen < 2 || !ok || v != p.value[series] {
			return fmt.Errorf("%s: the +Inf bucket is %v, the count %v", series, v, p.value[series])
		}
	}
	return nil
}
