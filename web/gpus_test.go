package web

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramjet/gpu"
)

// fakeGPUs is what a sampler would tell.
type fakeGPUs struct {
	devices []gpu.Device
	series  []gpu.Series
	note    string
}

func (f *fakeGPUs) Snapshot() []gpu.Device { return f.devices }
func (f *fakeGPUs) Series(since time.Time) (list []gpu.Series) {
	for _, one := range f.series {
		from := 0
		for from < len(one.Times) && !one.Times[from].After(since) {
			from++
		}
		one.Times, one.Utilization, one.PowerW, one.MemoryUsedBytes = one.Times[from:], one.Utilization[from:], one.PowerW[from:], one.MemoryUsedBytes[from:]
		if len(one.Times) > 0 {
			list = append(list, one)
		}
	}
	return list
}
func (f *fakeGPUs) Interval() time.Duration { return 500 * time.Millisecond }
func (f *fakeGPUs) Note() string            { return f.note }

func TestTopologyShowsGPUs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := &fakeGPUs{devices: []gpu.Device{
		{Engine: "a", Index: 0, Name: "H200", Utilization: 0.93, MemoryUsedBytes: 1, MemoryTotalBytes: 2, PowerW: 280, PowerLimitW: 300, TemperatureC: 61, SMClockHz: 2400000000, At: now, Source: "nvidia-smi", Interval: time.Second},
		{Engine: "a", Index: 1, Utilization: math.NaN(), MemoryUsedBytes: -1, MemoryTotalBytes: -1, PowerW: math.NaN(), PowerLimitW: math.NaN(), TemperatureC: math.NaN(), SMClockHz: -1, Throttle: []string{"hw_slowdown"}, At: now.Add(-3 * time.Second)},
	}}
	r := newRig(t, func(o *Options) { o.GPUs = g })
	v := readTopology(t, r)
	engines := v["engines"].([]any)
	list := engines[0].(map[string]any)["gpus"].([]any)
	if len(list) != 2 || len(engines[1].(map[string]any)["gpus"].([]any)) != 0 {
		t.Fatalf("%v", list)
	}
	first, second := list[0].(map[string]any), list[1].(map[string]any)
	for _, k := range []string{"index", "name", "utilization", "memory_used_bytes", "memory_total_bytes", "power_w", "power_limit_w", "temperature_c", "sm_clock_hz", "throttle", "age_s"} {
		if _, ok := second[k]; !ok || first[k] == nil {
			t.Errorf("%s: %v and %v", k, first[k], second[k])
		}
	}
	if first["utilization"] != 0.93 || first["sm_clock_hz"] != 2.4e9 || len(first["throttle"].([]any)) != 0 || second["power_w"] != nil || second["memory_used_bytes"] != nil || second["name"] != nil || second["age_s"].(float64) < 3 {
		t.Errorf("%v\n%v", first, second)
	}
	g.devices = nil
	if v := readTopology(t, r); v["engines"].([]any)[0].(map[string]any)["gpus"] != nil {
		t.Error("no device is known, but the list is empty, not null")
	}
}

func TestGPUHistory(t *testing.T) {
	t.Parallel()
	base := time.Now().Truncate(time.Second).Add(-3 * time.Second)
	g := &fakeGPUs{note: "set gpu.dcgm", series: []gpu.Series{{Engine: "a", Index: 3, Source: "nvidia-smi", Interval: 500 * time.Millisecond,
		Times: []time.Time{base, base.Add(time.Second), base.Add(2 * time.Second)}, Utilization: []float64{0.123456, math.NaN(), 1}, PowerW: []float64{100, 200, math.NaN()}, MemoryUsedBytes: []int64{5, -1, 7}}}}
	r := newRig(t, func(o *Options) { o.GPUs = g })
	r.step(base, false)
	r.step(base.Add(sampleEvery), false)
	get := func(query string) map[string]any {
		t.Helper()
		w := r.ask("GET", "/api/v1/gpu"+query)
		var v map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return v
	}
	v := get("")
	s := v["series"].([]any)[0].(map[string]any)
	if v["interval_s"] != 0.5 || v["note"] != "set gpu.dcgm" || s["engine"] != "a" || s["index"] != 3.0 {
		t.Errorf("%v", v)
	}
	if text, _ := json.Marshal([]any{s["time"].([]any)[0], s["utilization"], s["power_w"], s["memory_used_bytes"]}); string(text) != `["`+base.UTC().Format("2006-01-02T15:04:05.000Z")+`",[0.1235,null,1],[100,200,null],[5,null,7]]` {
		t.Errorf("%s", text)
	}
	tokens := v["tokens"].(map[string]any)
	if len(tokens["time"].([]any)) != 2 || len(tokens["engines"].([]any)) != 2 {
		t.Errorf("%v", tokens)
	}
	v = get("?engine=b&since=" + url.QueryEscape(base.UTC().Format(time.RFC3339Nano)))
	if len(v["series"].([]any)) != 0 || len(v["tokens"].(map[string]any)["time"].([]any)) != 1 || len(v["tokens"].(map[string]any)["engines"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	// Stamps are cut: who sends the newest back gets nothing twice.
	for i := range g.series[0].Times {
		g.series[0].Times[i] = g.series[0].Times[i].Add(123456 * time.Nanosecond)
	}
	stamped := base.Add(2 * time.Second).UTC().Format("2006-01-02T15:04:05.000Z")
	if v = get("?since=" + stamped); len(v["series"].([]any)) != 0 {
		t.Errorf("after %s comes %v", stamped, v["series"])
	}
	before := base.Add(2*time.Second - time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z")
	if v = get("?since=" + before); len(v["series"].([]any)) != 1 {
		t.Errorf("after %s comes nothing", before)
	}
	wantError(t, r.ask("GET", "/api/v1/gpu?since=yesterday"), 400, "invalid_request")
	if w := newRig(t, nil).ask("GET", "/api/v1/gpu"); !strings.Contains(w.Body.String(), "gpu.source") {
		t.Errorf("without a sampler: %s", w.Body)
	}
}

// An exporter whose clock is late is told too: every series is followed by its
// own stamps.
func TestNewsFollowEachSeriesByItsOwnClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	late := now.Add(-30 * time.Second)
	one := gpu.Series{Engine: "a", Times: []time.Time{late}, Utilization: []float64{1}, PowerW: []float64{1}, MemoryUsedBytes: []int64{1}}
	g := &fakeGPUs{series: []gpu.Series{one}}
	r := newRig(t, func(o *Options) { o.GPUs = g })
	if v := r.news(now); len(v.Series[0].Time) != 1 {
		t.Fatalf("%v", v.Series)
	}
	if v := r.news(now.Add(sampleEvery)); len(v.Series[0].Time) != 0 {
		t.Error("the same sample was told twice")
	}
	one.Times = append(one.Times, late.Add(sampleEvery))
	one.Utilization, one.PowerW, one.MemoryUsedBytes = []float64{1, 0.5}, []float64{1, 2}, []int64{1, 2}
	g.series[0] = one
	if v := r.news(now.Add(2 * sampleEvery)); len(v.Series[0].Time) != 1 || v.Series[0].Utilization[0] != 0.5 {
		t.Errorf("%+v", v.Series[0])
	}
}
