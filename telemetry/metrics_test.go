package telemetry

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPageIsStrictlyReadable(t *testing.T) {
	t.Parallel()
	m := NewMetrics("1.2.3", "go1.26")
	e := m.Engine("a")
	e.TTFT.Update(0.2)
	e.TPOT.Update(0.003)
	e.TTFT.Update(1e9)
	m.Duration.Update(3)
	m.Request("qwen", 200, EndDone)
	p := scrape(t, m)
	for _, f := range m.Families() {
		if p.kind[f.Name] != f.Type || p.help[f.Name] != f.Help {
			t.Errorf("%s: TYPE %q HELP %q, want %q %q", f.Name, p.kind[f.Name], p.help[f.Name], f.Type, f.Help)
		}
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
		"process_start_time_seconds", "go_goroutines", "go_memstats_mallocs_total"} {
		if p.help[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if v, n := p.find("ramjet_build_info", map[string]string{"version": "1.2.3", "goversion": "go1.26"}); v != 1 || n != 1 {
		t.Errorf("build info is %v, %d times", v, n)
	}
	if v, _ := p.find("ramjet_time_to_first_token_seconds_bucket", map[string]string{"engine": "a", "le": "0.25"}); v != 1 {
		t.Errorf("TTFT below 0.25 s: %v, want 1", v)
	}
	if v, _ := p.find("ramjet_time_to_first_token_seconds_count", map[string]string{"engine": "a"}); v != 2 {
		t.Errorf("TTFT count: %v, want 2", v)
	}
}

func TestClosedLabelsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	m.Engine("a")
	p := scrape(t, m)
	want := func(v float64, name string, labels map[string]string) {
		t.Helper()
		if got, n := p.find(name, labels); n != 1 || got != v {
			t.Errorf("%s%v: %d series, value %v, want one of %v", name, labels, n, got, v)
		}
	}
	for _, r := range Retries() {
		want(0, "ramjet_retries_total", map[string]string{"reason": r.String()})
	}
	for _, r := range Reasons() {
		want(0, "ramjet_route_decisions_total", map[string]string{"engine": "a", "reason": r.String()})
	}
	for _, r := range Ejections() {
		want(0, "ramjet_ejections_total", map[string]string{"engine": "a", "reason": r.String()})
	}
	for _, s := range States() {
		want(boolValue(s == StateDown), "ramjet_engine_state", map[string]string{"engine": "a", "state": s.String()})
	}
	for _, s := range Trusts() {
		want(boolValue(s == TrustBlind), "ramjet_residency_trust", map[string]string{"engine": "a", "trust": s.String()})
	}
	for _, phase := range []string{"prefill", "decode"} {
		want(0, "ramjet_leases", map[string]string{"engine": "a", "phase": phase})
	}
	for _, e := range Ends() {
		want(0, "ramjet_requests_total", map[string]string{"model": ModelUnknown,
			"code": fmt.Sprint(usualStatus[e]), "end": e.String()})
	}
	for _, name := range []string{"prompt_tokens", "output_tokens", "match_tokens", "cached_tokens",
		"duplicate_prefill_tokens", "forgone_cached_tokens", "warming_refusals"} {
		want(0, "ramjet_"+name+"_total", map[string]string{"engine": "a"})
	}
	want(1, "ramjet_config_reload_success", map[string]string{})
	want(0, "ramjet_log_dropped_total", map[string]string{})
}

func TestHandlesCount(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	e := m.Engine("a")
	if m.Engine("a") != e {
		t.Fatal("the second call made new handles")
	}
	e.Decision(ReasonSession)
	e.Decision(ReasonNone)
	e.Ejected(EjectReset)
	e.SetState(StateSuspect)
	e.SetTrust(TrustExact)
	e.PromptTokens.Add(7)
	m.Retry(RetryStale)
	m.SetLeaseSource(func(name string) (int, int, int64) { return len(name), 3, 2210 })
	m.SetLogDropped(func() uint64 { return 9 })
	m.SetReload(false, time.Unix(50, 0))
	p := scrape(t, m)
	a := func(k, v string) map[string]string { return map[string]string{"engine": "a", k: v} }
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"ramjet_route_decisions_total", a("reason", "session"), 1},
		{"ramjet_ejections_total", a("reason", "reset"), 1},
		{"ramjet_engine_state", a("state", "suspect"), 1},
		{"ramjet_engine_state", a("state", "down"), 0},
		{"ramjet_residency_trust", a("trust", "exact"), 1},
		{"ramjet_prompt_tokens_total", map[string]string{"engine": "a"}, 7},
		{"ramjet_retries_total", map[string]string{"reason": "stale-connection"}, 1},
		{"ramjet_leases", a("phase", "prefill"), 1},
		{"ramjet_leases", a("phase", "decode"), 3},
		{"ramjet_lease_tokens", map[string]string{"engine": "a"}, 2210},
		{"ramjet_log_dropped_total", map[string]string{}, 9},
		{"ramjet_config_reload_success", map[string]string{}, 0},
	} {
		if got, n := p.find(c.name, c.labels); got != c.want || n != 1 {
			t.Errorf("%s%v = %v (%d series), want %v", c.name, c.labels, got, n, c.want)
		}
	}
	if v, _ := p.find("ramjet_config_reload_timestamp_seconds", map[string]string{}); v == 50 {
		t.Error("a failed reload moved the time of the last good one")
	}
}

func TestDroppedEngineLeavesNoSeries(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	m.Engine("keep")
	m.Engine("gone").PromptTokens.Add(5)
	m.DropEngine("gone")
	m.DropEngine("gone")
	for series, l := range scrape(t, m).labels {
		if l["engine"] == "gone" {
			t.Errorf("%s is still there", series)
		}
	}
	m.Engine("gone")
	if v, n := scrape(t, m).find("ramjet_prompt_tokens_total", map[string]string{"engine": "gone"}); v != 0 || n != 1 {
		t.Errorf("an engine that came back counts from %v (%d series), want 0", v, n)
	}
}

// TestC34OddNames is the case of names that break a scrape: every one is
// readable, and the value reads back as the text itself or, where a character
// could end a line for some reader, as its spelled-out form.
func TestC34OddNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		`a"b\c`:                     `a"b\c`,
		"line\nbreak":               "line\nbreak",
		"cr\rtab\t":                 `cr\u000dtab\u0009`,
		"sep\u2028\u2029":           `sep\u2028\u2029`,
		"next\u0085line":            `next\u0085line`,
		"rtl\u202eoverride":         `rtl\u202eoverride`,
		"bad\xff\xfeutf8":           "bad\ufffd\ufffdutf8",
		"e=\"x\",le=\"1\"}":         "e=\"x\",le=\"1\"}",
		"öß漢🙂":                      "öß漢🙂",
		`\`:                         `\`,
		strings.Repeat("x", 64<<10): strings.Repeat("x", maxLabel),
		strings.Repeat("漢", 200):    strings.Repeat("漢", maxLabel/3),
		"\x00\x1b[31m":              `\u0000\u001b[31m`,
	} {
		m := NewMetrics(name, "g")
		m.Request(name, 200, EndDone)
		m.Engine(name).TTFT.Update(1)
		p := scrape(t, m)
		if v, n := p.find("ramjet_requests_total", map[string]string{"model": want, "code": "200", "end": "done"}); v != 1 || n != 1 {
			t.Errorf("model %.20q: value %v in %d series, want 1 in one", name, v, n)
		}
		if v, n := p.find("ramjet_time_to_first_token_seconds_count", map[string]string{"engine": want}); v != 1 || n != 1 {
			t.Errorf("engine %.20q: value %v in %d series, want 1 in one", name, v, n)
		}
		m.DropEngine(name)
		if _, n := scrape(t, m).find("ramjet_prompt_tokens_total", map[string]string{"engine": want}); n != 0 {
			t.Errorf("engine %.20q cannot be dropped", name)
		}
	}
}

func TestRequestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	const calls = maxRequestSeries + 100
	for i := range calls {
		m.Request(fmt.Sprint("model-", i), 200, EndDone)
	}
	if n := len(*m.requests.current.Load()); n > maxRequestSeries+1 {
		t.Errorf("%d series", n)
	}
	p := scrape(t, m)
	var sum float64
	for series, v := range p.value {
		if strings.HasPrefix(series, "ramjet_requests_total{") {
			sum += v
		}
	}
	if sum != calls {
		t.Errorf("the series add up to %v, want %d", sum, calls)
	}
	if v, _ := p.find("ramjet_requests_total", map[string]string{"model": "unknown", "code": "200", "end": "done"}); v < 100 {
		t.Errorf("unknown has %v, want at least 100", v)
	}
}

func TestOddStatusAndModelAreClamped(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	for _, status := range []int{-1, 0, 99, 600, 1 << 40} {
		m.Request("", status, EndInternal)
	}
	if v, _ := scrape(t, m).find("ramjet_requests_total", map[string]string{"model": "unknown", "code": "500", "end": "internal"}); v != 5 {
		t.Errorf("counted %v, want 5", v)
	}
}

// TestBoundsHoldThoseOfTheEngine compares with the bounds in
// vllm/v1/metrics/loggers.py.
func TestBoundsHoldThoseOfTheEngine(t *testing.T) {
	t.Parallel()
	latency := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	for _, c := range []struct {
		name      string
		got, want []float64
	}{
		{"ttft", ttftBounds, []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}},
		{"tpot", tpotBounds, []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}},
		{"duration", durationBounds, latency},
		{"queue", queueBounds, latency},
	} {
		for _, b := range c.want {
			if !slices.Contains(c.got, b) {
				t.Errorf("%s has no bound at %v s", c.name, b)
			}
		}
		if !slices.IsSorted(c.got) || len(slices.Compact(slices.Clone(c.got))) != len(c.got) {
			t.Errorf("%s: bounds do not rise", c.name)
		}
	}
}

func TestMetricsOfTwoProxiesAreApart(t *testing.T) {
	t.Parallel()
	a, b := NewMetrics("v", "g"), NewMetrics("v", "g")
	a.Retry(RetryDied)
	if v, _ := scrape(t, b).find("ramjet_retries_total", map[string]string{"reason": "died"}); v != 0 {
		t.Errorf("the other proxy counted %v", v)
	}
}

func FuzzLabel(f *testing.F) {
	for _, s := range []string{"a", `"`, `\`, "\n", "\u2028", "\xff", `\n`, `"}`, "漢"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := "# HELP x y\n# TYPE x counter\nx{" + label("l", s) + "} 1\n"
		p, err := parsePage(text)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if len(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029\x1c\x1d\x1e", r) })) != 3 {
			t.Errorf("%q breaks a line for some reader: %q", s, text)
		}
		if len(p.value) != 1 {
			t.Errorf("%q gives %d series", s, len(p.value))
		}
	})
}

func TestStrictReaderRefuses(t *testing.T) {
	t.Parallel()
	head := "# HELP x y\n# TYPE x counter\n"
	for _, bad := range []string{
		"x 1\n", head + "x 1", head + "x 1\nx 2\n", head + "y 1\n", head + "x{a=\"\\q\"} 1\n", head + "x{a=\"1\",a=\"2\"} 1\n",
		head + "x  1\n", head + "x{a=\"\n\"} 1\n", head + head, "# HELP x \n# TYPE x counter\nx 1\n", head + "x -1\n",
		"# HELP h y\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
		"# HELP h y\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
	} {
		if _, err := parsePage(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	var b bytes.Buffer
	NewMetrics("v", "g").WritePrometheus(&b)
	if _, err := parsePage(b.String()); err != nil {
		t.Error(err)
	}
}
