package probe

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestParseModels(t *testing.T) {
	t.Parallel()
	raw := `{"id":"a\"b","object":"model","max_model_len":32768,"permission":[{"x":1.0e5}],"new_key":null}`
	m, err := parseModels([]byte(`{"object":"list","data":[` + raw + `,{"id":""},{"no":"id"},17,{"id":"lora","parent":"a"}],"extra":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.IDs) != 2 || m.IDs[0] != `a"b` || m.IDs[1] != "lora" {
		t.Errorf("ids %q", m.IDs)
	}
	if string(m.Object(`a"b`)) != raw {
		t.Errorf("object %s, want its bytes untouched", m.Object(`a"b`))
	}
	if empty, err := parseModels([]byte(`{"data":[]}`)); err != nil || len(empty.IDs) != 0 || empty.Serves([]byte("x")) {
		t.Errorf("an empty list: %v %v", empty, err)
	}
	for _, bad := range []string{"", "{}", "[]", `{"data":null}`, `{"data":{}}`, `{"data":[}`, "<html>", `{"error":"x"}`} {
		if _, err := parseModels([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"a"}]}`))
	f.Add([]byte(`{"data":[{"ID":"a"},null,[]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseModels(body)
		if err != nil {
			return
		}
		for _, id := range m.IDs {
			if id == "" || !m.Serves([]byte(id)) || !json.Valid(m.Object(id)) {
				t.Errorf("%q: id %q", body, id)
			}
		}
	})
}

const metricsPage = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a} 9"} 3.0
vllm:num_requests_running{engine="1",model_name="a\"b"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
vllm:prefix_cache_queries_total{engine="0"} 900
vllm:prefix_cache_hits_total{engine="0"} 500
vllm:prefix_cache_hits_total{engine="1"} 50
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100",num_gpu_blocks_override="None"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="120",num_gpu_blocks_override="None"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.41
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_total{engine="1",model_name="m"} 4 1700000000000
vllm:generation_tokens_created{engine="0"} 1.7e9
process_start_time_seconds 1.79601882056e+09
python_gc_objects_collected_total{generation="0"} NaN
vllm:num_requests_swapped +Inf
`

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	want := Reported{Running: 5, Waiting: 0, KVUsage: 0.41, GenerationTokens: 1500004, StartTime: 1.79601882056e+09,
		PrefixQueries: 900, PrefixHits: 550, KVBlocks: 220, KVBlockTokens: 16}
	if got := parseMetrics([]byte(metricsPage)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := parseMetrics([]byte(metricsPage[:len(metricsPage)-1])); got != want {
		t.Errorf("without the last line end: %+v", got)
	}
	unknown := Reported{Running: -1, Waiting: -1, KVUsage: -1, GenerationTokens: -1, PrefixQueries: -1, PrefixHits: -1, KVBlocks: -1, KVBlockTokens: -1}
	for _, page := range []string{"", "\n\n", "<html>", "vllm:generation_tokens_total", "vllm:generation_tokens_total{", "vllm:generation_tokens_total{} x",
		"vllm:generation_tokens_total NaN", "vllm:generation_tokens_total -5", "vllm:generation_tokens_total 1 2 3"} {
		if got := parseMetrics([]byte(page)); got != unknown {
			t.Errorf("%q: %+v", page, got)
		}
	}
}

// TestParseMetricsCutAnywhere reads every prefix of the page: a page cut by a
// limit is no fault.
func TestParseMetricsCutAnywhere(t *testing.T) {
	t.Parallel()
	for i := range len(metricsPage) {
		got := parseMetrics([]byte(metricsPage[:i]))
		if got.GenerationTokens > 1500004 || math.IsNaN(got.Running) {
			t.Fatalf("cut at %d: %+v", i, got)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(metricsPage))
	f.Fuzz(func(t *testing.T, page []byte) {
		got := parseMetrics(page)
		for _, v := range []float64{got.Running, got.Waiting, got.KVUsage, got.GenerationTokens, got.StartTime} {
			if math.IsNaN(v) || v < -1 {
				t.Errorf("%q: %+v", page, got)
			}
		}
	})
}

// TestParseMetricsBoundsSums: samples are finite and their sums are not.
func TestParseMetricsBoundsSums(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	for _, name := range []string{"num_requests_running", "num_requests_waiting", "generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total"} {
		for rank := range 2 {
			fmt.Fprintf(&page, "vllm:%s{engine=\"%d\"} 1.7e308\n", name, rank)
		}
	}
	r := parseMetrics([]byte(page.String()))
	for name, v := range map[string]float64{"running": r.Running, "waiting": r.Waiting, "tokens": r.GenerationTokens, "queries": r.PrefixQueries, "hits": r.PrefixHits} {
		if v != -1 {
			t.Errorf("%s: %v, want unknown", name, v)
		}
	}
}
