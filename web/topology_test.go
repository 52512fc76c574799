package web

import (
	"encoding/json"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// topologyKeys are the names of CONTRACT section 5, by object.
var topologyKeys = map[string][]string{
	"":        {"time", "version", "uptime_s", "status", "models", "policy", "exact", "traffic", "agreement", "engines", "transitions"},
	"traffic": {"in_flight", "requests_per_s", "prompt_tokens_per_s", "cached_tokens_per_s", "output_tokens_per_s"},
	"engine": {"name", "profile", "state", "state_reason", "state_since", "trust", "trust_reason", "models", "block_tokens", "kv_blocks",
		"kv_capacity_tokens", "index_blocks", "leases", "lease_tokens", "queue_tokens", "prefill_tokens_per_s", "seconds_per_token",
		"match_tokens_total", "cached_tokens_total", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "errors_per_s", "reported", "gpus"},
	"transition": {"time", "engine", "from", "to", "reason"},
}

func has(t *testing.T, what string, object map[string]any) {
	t.Helper()
	for _, k := range topologyKeys[what] {
		if _, ok := object[k]; !ok {
			t.Errorf("%q has no %q", what, k)
		}
	}
}

func readTopology(t *testing.T, r *rig) map[string]any {
	t.Helper()
	w := r.ask("GET", "/api/v1/topology")
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return v
}

func TestTopologyHasEveryKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	_ = r.monitor.Drain("b")
	v := readTopology(t, r)
	has(t, "", v)
	has(t, "traffic", v["traffic"].(map[string]any))
	engines := v["engines"].([]any)
	if len(engines) != 2 {
		t.Fatalf("%d engines", len(engines))
	}
	a := engines[0].(map[string]any)
	has(t, "engine", a)
	for _, unknown := range []string{"models", "leases", "lease_tokens", "reported", "gpus", "ttft_p50_s", "block_tokens"} {
		if a[unknown] != nil {
			t.Errorf("%s is %v though nobody knows it", unknown, a[unknown])
		}
	}
	if a["trust"] != "blind" || a["trust_reason"] != "no events" {
		t.Errorf("trust %v: %v", a["trust"], a["trust_reason"])
	}
	tr := v["transitions"].([]any)[0].(map[string]any)
	has(t, "transition", tr)
	if tr["engine"] != "b" || tr["to"] != "draining" || v["status"] != "unhealthy" || v["version"] != "1.0" || v["policy"] != "latency" {
		t.Errorf("%v", v)
	}
	for _, stamp := range []any{v["time"], tr["time"], a["state_since"]} {
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", stamp.(string)); err != nil {
			t.Error(err)
		}
	}
}

func TestTopologyShowsWhatIsKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Leases = func(name string) (int, int, int64) { return 1, len(name), 2210 }
		o.Started = time.Now().Add(-90 * time.Second)
	})
	r.engines[0].SetModels(engine.NewModels([]string{"m", `l"1`}, [][]byte{nil, nil}, nil))
	r.engines[1].SetModels(engine.NewModels([]string{"m"}, [][]byte{nil}, nil))
	r.o.Metrics.Engine("a").CachedTokens.Add(805)
	v := readTopology(t, r)
	a := v["engines"].([]any)[0].(map[string]any)
	leases := a["leases"].(map[string]any)
	if leases["prefill"] != 1.0 || leases["decode"] != 1.0 || a["lease_tokens"] != 2210.0 || a["cached_tokens_total"] != 805.0 || a["profile"] != "mtp" {
		t.Errorf("%v", a)
	}
	if m := v["models"].([]any); len(m) != 2 || m[0] != `l"1` || m[1] != "m" {
		t.Errorf("models %v", m)
	}
	if v["traffic"].(map[string]any)["in_flight"] != 4.0 || v["uptime_s"].(float64) < 90 || v["uptime_s"].(float64) > 99 {
		t.Errorf("%v", v)
	}
	if known(telemetry.Unknown) != nil || *known(0) != 0 {
		t.Error("unknown and 0 are mixed up")
	}
}
