package telemetry

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/METRICS.md")

const docsPath = "../docs/METRICS.md"

// metricsDoc writes docs/METRICS.md from what the code registers.
func metricsDoc() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the code by `go test ./telemetry -run TestMetricsDoc -update`; a test compares the two.\n\n" +
		"`GET /metrics` on the admin port, Prometheus text format. Every family has HELP and TYPE. Families with closed labels are there at 0\n" +
		"from the start, so that a rate sees the first event. Names given by clients never become labels: a model that no engine serves counts\n" +
		"as `model=\"" + ModelUnknown + "\"`. Quotes, backslashes and line feeds in names are escaped as the format demands; other control characters and\n" +
		"line separators are spelled out (`\\u2028`), and names are cut to " + strconv.Itoa(maxLabel) + " bytes.\n\n" +
		"| family | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	families := NewMetrics("", "").Families()
	for _, f := range families {
		labels := "-"
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, labels, f.Help)
	}
	b.WriteString("| `process_*`, `go_*` | | | CPU time, memory, descriptors and the Go runtime, as the operating system and the runtime report them. |\n")
	b.WriteString("\n## Closed lists\n\n| label | words |\n| --- | --- |\n")
	for _, l := range []struct {
		name  string
		words []string
	}{
		{"`end` of `ramjet_requests_total`", texts(Ends())},
		{"`reason` of `ramjet_route_decisions_total`", texts(Reasons())},
		{"`reason` of `ramjet_retries_total`", texts(Retries())},
		{"`reason` of `ramjet_ejections_total`", texts(Ejections())},
		{"`state` of `ramjet_engine_state`", texts(States())},
		{"`trust` of `ramjet_residency_trust`", texts(Trusts())},
		{"`outcome` of `ramjet_handoff_total`", texts(Handoffs())},
		{"`kind` of `ramjet_kv_events_total`", texts(KVEvents())},
		{"`outcome` of `ramjet_single_flight_total`", texts(SingleFlights())},
		{"`outcome` of `ramjet_exact_agreement_total`", texts(Agreements())},
		{"`source` of `ramjet_tokenize_total`", texts(list[TokenizeSource](int(sourceCount)))},
		{"`outcome` of `ramjet_tokenize_total`", texts(list[Tokenized](int(tokenizedCount)))},
		{"`phase` of `ramjet_leases`", []string{"decode", "prefill"}},
	} {
		fmt.Fprintf(&b, "| %s | `%s` |\n", l.name, strings.Join(l.words, "` `"))
	}
	b.WriteString("\n## Buckets\n\nUpper bounds in seconds. They hold every bound of vLLM's own histogram of the same quantity, so that both can be laid over each\n" +
		"other, and go on upward, since a proxy also waits; time per token also goes on downward, since speculative decoding is faster than\nvLLM's first bound. All engines share them.\n\n| family | bounds |\n| --- | --- |\n")
	for _, f := range families {
		if f.Type != "histogram" {
			continue
		}
		bounds := make([]string, len(f.Bounds))
		for i, v := range f.Bounds {
			bounds[i] = strconv.FormatFloat(v, 'f', -1, 64)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Name, strings.Join(bounds, " "))
	}
	return b.String()
}

func TestMetricsDoc(t *testing.T) {
	t.Parallel()
	want := metricsDoc()
	if *update {
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not say what the code does; run go test ./telemetry -run TestMetricsDoc -update", docsPath)
	}
}
