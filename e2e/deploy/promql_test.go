package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// selector is one vector selector of an expression: a name and the labels that it matches by.
type selector struct {
	name   string
	labels map[string]string // matcher and value, such as `=~ready|slow-start`
}

var (
	selectorText = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?`)
	matcher      = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping     = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// metricPrefixes are those of the programs that the shipped Prometheus scrapes.
var metricPrefixes = []string{"ramjet_", "vllm:", "DCGM_", "process_", "go_", "up"}

// selectors finds what an expression reads, by the prefixes of known programs; functions and labels have none of them.
func selectors(expr string) []selector {
	var out []selector
	for _, m := range selectorText.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		if !slices.ContainsFunc(metricPrefixes, func(p string) bool { return m[1] == p || p != "up" && strings.HasPrefix(m[1], p) }) {
			continue
		}
		s := selector{name: m[1], labels: map[string]string{}}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[2] + l[3]
		}
		out = append(out, s)
	}
	return out
}

// grouped lists the labels by which an expression groups or joins.
func grouped(expr string) []string {
	var out []string
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(m[1], ",") {
			if l = strings.TrimSpace(l); l != "" {
				out = append(out, l)
			}
		}
	}
	return out
}

// added by Prometheus itself to every series
var scrapeLabels = []string{"job", "instance"}

// checkExpression reports every name, label and word of an expression that the pages do not have.
func checkExpression(t *testing.T, where, expr string, pages page) {
	t.Helper()
	found := selectors(expr)
	if len(found) == 0 {
		t.Errorf("%s: nothing is read by %s", where, expr)
	}
	labels := slices.Clone(scrapeLabels)
	for _, s := range found {
		name := s.name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(s.name, suffix); pages[base] != nil && pages[base].kind == "histogram" {
				name = base
				labels = append(labels, "le")
			}
		}
		f := pages[name]
		if f == nil {
			t.Errorf("%s reads %s, which nobody writes", where, s.name)
			continue
		}
		if f.kind == "histogram" && name == s.name {
			t.Errorf("%s reads %s, a histogram, without _bucket, _sum or _count", where, s.name)
		}
		labels = append(labels, f.names()...)
		for label, value := range s.labels {
			checkMatcher(t, where, s.name, label, value, f)
		}
	}
	for _, l := range grouped(expr) {
		if !slices.Contains(labels, l) {
			t.Errorf("%s groups by %s, which none of its series has", where, l)
		}
	}
}

// checkMatcher reports a label that a family does not have, and a word that its closed list does not.
func checkMatcher(t *testing.T, where, name, label, value string, f *family) {
	t.Helper()
	if slices.Contains(scrapeLabels, label) || strings.Contains(value, "$") {
		return
	}
	values := f.labels[label]
	if values == nil {
		t.Errorf("%s matches %s by %s, which it does not have", where, name, label)
		return
	}
	op := value[:len(value)-len(strings.TrimLeft(value, "=!~"))]
	pattern := regexp.QuoteMeta(value[len(op):])
	if strings.HasSuffix(op, "~") {
		pattern = value[len(op):]
	}
	for _, alternative := range strings.Split(pattern, "|") {
		re := regexp.MustCompile("^(?:" + alternative + ")$")
		if label != "model" && !slices.ContainsFunc(keys(values), re.MatchString) {
			t.Errorf("%s matches %s by %s=%q, a word that is never there (%v)", where, name, label, alternative, keys(values))
		}
	}
}

func keys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// livePages returns what Ramjet and an engine write, and what dcgm-exporter is known to.
func livePages(t *testing.T) page {
	t.Helper()
	e := startEngine(t, withEvents...)
	p := startProxy(t, proxyOptions{engines: []*engine{e}})
	p.trusts("a")
	ask(t.Context(), p, question(1))
	eventually(t, "an event", func() error { // the lag is known from the first one on
		if !strings.Contains(p.metrics(), "\nramjet_kv_lag_seconds{") {
			return errors.New("none came")
		}
		return nil
	})
	all := readPage(t, p.metrics())
	status, text := get(e.url + "/metrics")
	if status != 200 {
		t.Fatalf("the engine's /metrics: %d %s", status, text)
	}
	for name, f := range readPage(t, text) {
		if all[name] == nil {
			all[name] = f
		}
	}
	// Of the default counters of dcgm-exporter, etc/default-counters.csv.
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"} {
		all[name] = &family{kind: "gauge", labels: map[string]map[string]bool{"gpu": {"0": true}, "UUID": {}, "Hostname": {}}}
	}
	all["up"] = &family{kind: "gauge", labels: map[string]map[string]bool{}}
	return all
}

// TestAlertRules: every alert reads what is there, has a severity, a summary and a paragraph in docs/OPERATIONS.md, and
// promtool finds the file sound and each alert silent and firing where ramjet.rules.test.yml says.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	pages := livePages(t)
	operations := read(t, "docs/OPERATIONS.md")
	tested := read(t, "deploy/prometheus/ramjet.rules.test.yml")
	for _, r := range rules(t) {
		checkExpression(t, r.Alert, r.Expr, pages)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["runbook"] != "docs/OPERATIONS.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s has the annotations %v", r.Alert, r.Annotations)
		}
		if !strings.Contains(operations, "\n### "+r.Alert+"\n") {
			t.Errorf("docs/OPERATIONS.md does not say what to do about %s", r.Alert)
		}
		if strings.Count(tested, "alertname: "+r.Alert+"\n") != 1 || strings.Count(tested, "alertname: "+r.Alert+", exp_alerts: []") != 1 {
			t.Errorf("ramjet.rules.test.yml does not say when %s fires and when it is silent", r.Alert)
		}
	}
	for _, name := range regexp.MustCompile(`(?m)^### (Ramjet\w+)$`).FindAllStringSubmatch(operations, -1) {
		if !slices.ContainsFunc(rules(t), func(r rule) bool { return r.Alert == name[1] }) {
			t.Errorf("docs/OPERATIONS.md explains %s, which is no alert", name[1])
		}
	}
	promtool(t, "", "check", "rules", rulesFile)
	promtool(t, "", "test", "rules", "deploy/prometheus/ramjet.rules.test.yml")
}

// TestPrometheusConfigs: promtool accepts each shipped configuration with the rules where it says they are.
func TestPrometheusConfigs(t *testing.T) {
	t.Parallel()
	for _, path := range shipped(t, "deploy/prometheus/prometheus.yml", "deploy/compose/*/prometheus.yml") {
		dir := t.TempDir()
		text := strings.ReplaceAll(read(t, path), "/etc/prometheus/", dir+"/")
		for name, content := range map[string]string{"prometheus.yml": text, "ramjet.rules.yml": read(t, rulesFile)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out := promtool(t, "", "check", "config", filepath.Join(dir, "prometheus.yml")); !strings.Contains(out, fmt.Sprint(len(rules(t)), " rules found")) {
			t.Errorf("%s does not load the rules:\n%s", path, out)
		}
	}
}

// panel is what a test needs of a Grafana panel.
type panel struct {
	ID          int
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat, RefID string }
}

const dashboardFile = "deploy/grafana/ramjet.json"

// TestDashboard: every query of the Grafana dashboard reads series and labels that exist, legends name labels that the
// query keeps, and no two panels overlap.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var board struct {
		UID, Title    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &board); err != nil {
		t.Fatal(err)
	}
	pages := livePages(t)
	pages["ALERTS"] = &family{kind: "gauge"}
	ids, queries := map[int]bool{}, 0
	for i, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, other := range board.Panels[:i] {
			if a, b := p.GridPos, other.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, other.Title)
			}
		}
		for _, q := range p.Targets {
			queries++
			checkExpression(t, "panel "+p.Title, q.Expr, pages)
			checkLegend(t, p.Title, q.Expr, q.LegendFormat, pages)
		}
	}
	if board.UID != "ramjet" || board.SchemaVersion == 0 || queries < 40 {
		t.Errorf("uid %q, schema %d, %d queries", board.UID, board.SchemaVersion, queries)
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			query, _ := v.Query.(map[string]any)
			text, _ := query["query"].(string)
			m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(text)
			if m == nil || len(selectors(m[1])) != 1 {
				t.Errorf("variable %s has the query %q", v.Name, text)
				continue
			}
			checkExpression(t, "variable "+v.Name, m[1], pages)
		}
	}
	for _, name := range unusedFamilies(pages, board.Panels) {
		t.Errorf("no panel shows %s", name)
	}
}

// checkLegend reports a label in a legend that the query's series do not have.
func checkLegend(t *testing.T, title, expr, legend string, pages page) {
	t.Helper()
	have := slices.Clone(scrapeLabels)
	if by := grouped(expr); len(by) > 0 {
		have = by
	} else {
		for _, s := range selectors(expr) {
			if f := pages[s.name]; f != nil {
				have = append(have, f.names()...)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(have, m[1]) {
			t.Errorf("the legend of panel %q names %s, which %s has not", title, m[1], expr)
		}
	}
}

// unusedFamilies lists Ramjet's own families that no panel reads.
func unusedFamilies(pages page, panels []panel) []string {
	var all strings.Builder
	for _, p := range panels {
		for _, q := range p.Targets {
			all.WriteString(q.Expr + "\n")
		}
	}
	var out []string
	for name := range pages {
		if strings.HasPrefix(name, "ramjet_") && !strings.Contains(all.String(), name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	expr := `sum by (engine, le) (rate(ramjet_x_bucket{engine=~"$engine", end!="done"}[5m])) / up > 0 and on (job) vllm:num_requests_running`
	if got := fmt.Sprint(selectors(expr)); got != "[{ramjet_x_bucket map[end:!=done engine:=~$engine]} {up map[]} {vllm:num_requests_running map[]}]" {
		t.Errorf("selectors: %s", got)
	}
	if got := fmt.Sprint(grouped(expr)); got != "[engine le job]" {
		t.Errorf("grouped: %s", got)
	}
	if got := hurried("expr: rate(x[5m])\nfor: 10m\n"); got != "expr: rate(x[10000ms])\nfor: 20000ms\n" {
		t.Errorf("hurried: %q", got)
	}
}
