package deploy

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// families are what dashboards and alerts of users go by: a name that is here is never taken away nor given another
// type or label.
var families = map[string]struct {
	kind   string
	labels []string
}{
	"ramjet_requests_total":                  {"counter", []string{"code", "end", "model"}},
	"ramjet_request_duration_seconds":        {"histogram", nil},
	"ramjet_time_to_first_token_seconds":     {"histogram", []string{"engine"}},
	"ramjet_time_per_output_token_seconds":   {"histogram", []string{"engine"}},
	"ramjet_route_duration_seconds":          {"histogram", nil},
	"ramjet_queue_duration_seconds":          {"histogram", nil},
	"ramjet_route_decisions_total":           {"counter", []string{"engine", "reason"}},
	"ramjet_leases":                          {"gauge", []string{"engine", "phase"}},
	"ramjet_lease_tokens":                    {"gauge", []string{"engine"}},
	"ramjet_engine_state":                    {"gauge", []string{"engine", "state"}},
	"ramjet_residency_trust":                 {"gauge", []string{"engine", "trust"}},
	"ramjet_prompt_tokens_total":             {"counter", []string{"engine"}},
	"ramjet_output_tokens_total":             {"counter", []string{"engine"}},
	"ramjet_match_tokens_total":              {"counter", []string{"engine"}},
	"ramjet_cached_tokens_total":             {"counter", []string{"engine"}},
	"ramjet_duplicate_prefill_tokens_total":  {"counter", []string{"engine"}},
	"ramjet_forgone_cached_tokens_total":     {"counter", []string{"engine"}},
	"ramjet_warming_refusals_total":          {"counter", []string{"engine"}},
	"ramjet_handoff_total":                   {"counter", []string{"engine", "outcome"}},
	"ramjet_index_blocks":                    {"gauge", []string{"engine"}},
	"ramjet_index_bytes":                     {"gauge", nil},
	"ramjet_kv_events_total":                 {"counter", []string{"engine", "kind"}},
	"ramjet_kv_gaps_total":                   {"counter", []string{"engine"}},
	"ramjet_kv_lag_seconds":                  {"gauge", []string{"engine"}},
	"ramjet_single_flight_total":             {"counter", []string{"outcome"}},
	"ramjet_retries_total":                   {"counter", []string{"reason"}},
	"ramjet_ejections_total":                 {"counter", []string{"engine", "reason"}},
	"ramjet_exact_agreement_total":           {"counter", []string{"outcome"}},
	"ramjet_tokenize_total":                  {"counter", []string{"outcome", "source"}},
	"ramjet_build_info":                      {"gauge", []string{"goversion", "version"}},
	"ramjet_config_reload_success":           {"gauge", nil},
	"ramjet_config_reload_timestamp_seconds": {"gauge", nil},
	"process_cpu_seconds_total":              {"counter", nil},
	"process_resident_memory_bytes":          {"gauge", nil},
	"process_open_fds":                       {"gauge", nil},
	"process_max_fds":                        {"gauge", nil},
	"go_goroutines":                          {"gauge", nil},
}

// page is what one /metrics holds, by family: its type, whether it has HELP, and its samples' labels.
type page map[string]*family

type family struct {
	kind   string
	help   bool
	labels map[string]map[string]bool // values by label
	zero   bool                       // every sample is 0
	series int
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// readPage reads the text of a /metrics that promtool or Prometheus vouches for.
func readPage(t testing.TB, text string) page {
	t.Helper()
	p := page{}
	of := func(name string) *family {
		if p[name] == nil {
			p[name] = &family{labels: map[string]map[string]bool{}, zero: true}
		}
		return p[name]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			of(name).kind = kind
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			of(name).help = help != ""
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("/metrics has the line %q", line)
		}
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(m[1], suffix); p[base] != nil && p[base].kind == "histogram" {
				name = base
			}
		}
		f := of(name)
		f.series++
		f.zero = f.zero && m[3] == "0"
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if f.labels[pair[1]] == nil {
				f.labels[pair[1]] = map[string]bool{}
			}
			f.labels[pair[1]][pair[2]] = true
		}
	}
	return p
}

// names lists the labels of a family without the bound of a histogram's buckets.
func (f *family) names() []string {
	var out []string
	for name := range f.labels {
		if name != "le" || f.kind != "histogram" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// closed lists the words of a label that docs/METRICS.md says are all there are.
func closed(t testing.TB) map[[2]string][]string {
	t.Helper()
	out := map[[2]string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` of `(ramjet_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(read(t, "docs/METRICS.md"), -1) {
		out[[2]string{m[2], m[1]}] = strings.Fields(strings.ReplaceAll(m[3], "`", ""))
	}
	if len(out) < 10 {
		t.Fatalf("docs/METRICS.md lists %d closed labels; its shape has changed", len(out))
	}
	return out
}

// TestMetricsPage: every promised family is on a fresh process's page, with TYPE, HELP and its labels, and every word of
// a closed list at 0, so that a rate sees the first event.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	a, b := startEngine(t, withEvents...), startEngine(t)
	p := startProxy(t, proxyOptions{engines: []*engine{a, b}})
	p.ready()
	fresh := readPage(t, p.metrics())
	for label, words := range closed(t) {
		f := fresh[label[0]]
		if f == nil {
			t.Errorf("a fresh process has no %s", label[0])
			continue
		}
		for _, w := range words {
			if !f.labels[label[1]][w] {
				t.Errorf("a fresh process has no %s{%s=%q}", label[0], label[1], w)
			}
		}
		if got, want := len(f.labels[label[1]]), len(words); got != want {
			t.Errorf("%s has %d words of %s, docs/METRICS.md %d", label[0], got, label[1], want)
		}
		if f.kind == "counter" && label[0] != "ramjet_tokenize_total" && label[0] != "ramjet_handoff_total" && !f.zero {
			t.Errorf("%s of a fresh process is not 0", label[0])
		}
	}
	p.trusts("a")
	chat(context.Background(), p, question(1), 3)
	ask(context.Background(), p, question(2))
	served := readPage(t, p.metrics())
	for name, want := range families {
		f := served[name]
		switch {
		case f == nil || f.series == 0 && name != "ramjet_kv_lag_seconds":
			t.Errorf("/metrics has no %s", name)
		case f.kind != want.kind || !f.help:
			t.Errorf("%s has type %q and help %v, want %q and help", name, f.kind, f.help, want.kind)
		case f.series > 0 && !slices.Equal(f.names(), want.labels):
			t.Errorf("%s has labels %v, want %v", name, f.names(), want.labels)
		}
	}
	documented := read(t, "docs/METRICS.md")
	for name, f := range served {
		if strings.HasPrefix(name, "ramjet_") && !strings.Contains(documented, "| `"+name+"` | "+f.kind+" |") {
			t.Errorf("docs/METRICS.md does not list %s (%s)", name, f.kind)
		}
	}
}

// TestPrometheusReadsMetrics: Prometheus's own parser, in promtool, reads the page, also with names that a hostile
// client chose, and finds nothing to say about Ramjet's families. What it says about the Go runtime's is the library's.
func TestPrometheusReadsMetrics(t *testing.T) {
	t.Parallel()
	dir := prometheusTools(t)
	p := startProxy(t, proxyOptions{engines: []*engine{startEngine(t, "--model=a\"b\\c,ü\u2028<script>")}})
	p.ready()
	for _, model := range []string{`a\"b\\c`, `ü\u2028<script>`, `nobody serves this\n`} {
		send(context.Background(), p, `{"model":"`+model+`","max_tokens":2,"messages":[{"role":"user","content":"hello"}]}`)
	}
	text := p.metrics()
	cmd := exec.Command(filepath.Join(dir, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) { // 3 = it read everything, and has advice
		t.Fatalf("promtool check metrics: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "go_") {
			t.Errorf("promtool check metrics: %s", line)
		}
	}
	if f := readPage(t, text)["ramjet_requests_total"]; !f.labels["model"]["unknown"] || f.labels["model"][`nobody serves this\n`] {
		t.Errorf("models that are labels: %v", f.labels["model"])
	}
}
