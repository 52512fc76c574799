package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// meters holds what /metrics reports beyond the core's counters.
type meters struct {
	ttft, gap, latency, prefill, decode *histogram // seconds
	prompt, output                      *histogram // tokens

	mu       sync.Mutex        // guards below
	finished map[string]uint64 // sequences by finish reason
}

func newMeters() *meters {
	m := &meters{finished: map[string]uint64{}}
	for _, h := range []**histogram{&m.ttft, &m.gap, &m.latency, &m.prefill, &m.decode} {
		*h = newHistogram(secondBounds)
	}
	m.prompt, m.output = newHistogram(tokenBounds), newHistogram(tokenBounds)
	return m
}

// reset starts anew, as a restarted process does.
func (m *meters) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished = map[string]uint64{}
	for _, h := range []*histogram{m.ttft, m.gap, m.latency, m.prefill, m.decode, m.prompt, m.output} {
		h.reset()
	}
}

func (m *meters) finish(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished[reason]++
}

// Bucket bounds of vLLM's histograms.
var (
	secondBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBounds  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
)

// histogram counts observations in buckets; safe for concurrent use.
type histogram struct {
	bounds []float64

	mu     sync.Mutex // guards below
	counts []uint64   // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

func (h *histogram) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.counts)
	h.sum = 0
}

// page writes the Prometheus text format.
type page struct {
	b      strings.Builder
	labels string // model_name and engine, without braces
}

func (p *page) head(name, kind, help string) {
	fmt.Fprintf(&p.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// one writes a family of one sample.
func (p *page) one(name, kind, help string, v float64) {
	p.head(name, kind, help)
	p.sample(name, "", v)
}

func (p *page) sample(name, more string, v float64) {
	labels := p.labels
	if more != "" {
		labels += "," + more
	}
	p.b.WriteString(name + "{" + labels + "} " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

func (p *page) histogram(name, help string, h *histogram) {
	h.mu.Lock()
	counts, sum := slices.Clone(h.counts), h.sum
	h.mu.Unlock()
	p.head(name, "histogram", help)
	var n uint64
	for i, b := range h.bounds {
		n += counts[i]
		p.sample(name+"_bucket", `le="`+strconv.FormatFloat(b, 'f', -1, 64)+`"`, float64(n))
	}
	n += counts[len(h.bounds)]
	p.sample(name+"_bucket", `le="+Inf"`, float64(n))
	p.sample(name+"_count", "", float64(n))
	p.sample(name+"_sum", "", sum)
}

// metrics answers GET /metrics under vLLM 0.32's names.
func (s *Server) metrics(_ context.Context, w *responder) {
	p := &page{labels: `engine="0",model_name="` + s.models[0] + `"`}
	st := s.core.Stats()
	s.writeGauges(p, st)
	s.writeCounters(p, st)
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", s.meters.ttft)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", s.meters.gap)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", s.meters.latency)
	p.histogram("vllm:request_prefill_time_seconds", "Histogram of time spent until the first token.", s.meters.prefill)
	p.histogram("vllm:request_decode_time_seconds", "Histogram of time spent in decode phase.", s.meters.decode)
	p.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", s.meters.prompt)
	p.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", s.meters.output)
	s.writeProcess(p)
	w.reply(200, "text/plain; version=0.0.4; charset=utf-8", []byte(p.b.String()))
}

func (s *Server) writeGauges(p *page, st Stats) {
	p.one("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(st.Running))
	p.one("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(st.Waiting))
	p.head("vllm:num_requests_waiting_by_reason", "gauge", "Number of requests waiting to be processed, by reason.")
	p.sample("vllm:num_requests_waiting_by_reason", `reason="capacity"`, float64(st.Waiting))
	p.sample("vllm:num_requests_waiting_by_reason", `reason="deferred"`, 0)
	p.one("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", st.KVUsage())
	p.head("vllm:engine_sleep_state", "gauge", "Engine sleep state.")
	p.sample("vllm:engine_sleep_state", `sleep_state="awake"`, 1)
	p.sample("vllm:engine_sleep_state", `sleep_state="weights_offloaded"`, 0)
	p.sample("vllm:engine_sleep_state", `sleep_state="discard_all"`, 0)
	p.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	o := s.core.Options()
	p.sample("vllm:cache_config_info", fmt.Sprintf(`block_size="%d",enable_prefix_caching="True",num_gpu_blocks="%d"`, o.BlockTokens, o.KVBlocks), 1)
}

func (s *Server) writeCounters(p *page, st Stats) {
	count := func(name, help string, n uint64) { p.one(name, "counter", help, float64(n)) }
	count("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", st.Preempted)
	count("vllm:prompt_tokens_total", "Number of prefill tokens processed.", st.PromptTokens)
	count("vllm:prompt_tokens_cached_total", "Number of prompt tokens taken from a cache.", st.CachedTokens+st.LoadedTokens)
	count("vllm:generation_tokens_total", "Number of generation tokens processed.", st.OutputTokens)
	count("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", st.QueryTokens)
	count("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", st.CachedTokens)
	queries := uint64(0)
	if s.core.Options().OffloadBlocks > 0 || s.handsToConnector() {
		queries = st.QueryTokens - st.CachedTokens
	}
	count("vllm:external_prefix_cache_queries_total", "External prefix cache queries, in tokens.", queries)
	count("vllm:external_prefix_cache_hits_total", "External prefix cache hits, in tokens.", st.LoadedTokens)
	p.head("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.")
	p.sample("vllm:prompt_tokens_by_source_total", `source="local_compute"`, float64(st.PromptTokens-min(st.CachedTokens+st.LoadedTokens, st.PromptTokens)))
	p.sample("vllm:prompt_tokens_by_source_total", `source="local_cache_hit"`, float64(st.CachedTokens))
	p.sample("vllm:prompt_tokens_by_source_total", `source="external_kv_transfer"`, float64(st.LoadedTokens))
	p.head("vllm:prompt_tokens_cached_by_source_total", "counter", "Number of cached prompt tokens by source.")
	p.sample("vllm:prompt_tokens_cached_by_source_total", `source="device"`, float64(st.CachedTokens))
	p.sample("vllm:prompt_tokens_cached_by_source_total", `source="host"`, float64(st.LoadedTokens))
	for _, source := range []string{"p2p", "disk", "external_unspecified"} {
		p.sample("vllm:prompt_tokens_cached_by_source_total", `source="`+source+`"`, 0)
	}
	p.head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	s.meters.mu.Lock()
	for _, reason := range []string{FinishStop, FinishLength, FinishAbort, "error", "repetition"} {
		p.sample("vllm:request_success_total", `finished_reason="`+reason+`"`, float64(s.meters.finished[reason]))
	}
	s.meters.mu.Unlock()
	if s.core.Options().Profile != ProfileMTP {
		return
	}
	count("vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.", st.Drafts)
	count("vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.", st.DraftTokens)
	count("vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", st.AcceptedTokens)
	p.head("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position.")
	for i, n := range st.AcceptedPerPos {
		p.sample("vllm:spec_decode_num_accepted_tokens_per_pos_total", `position="`+strconv.Itoa(i)+`"`, float64(n))
	}
}

func (s *Server) writeProcess(p *page) {
	const started = "process_start_time_seconds"
	p.head(started, "gauge", "Start time of the process since unix epoch in seconds.")
	fmt.Fprintf(&p.b, "%s %.2f\n", started, float64(s.started.Load())/1e9)
	p.head("http_requests_total", "counter", "Total number of requests by method, status and handler.")
	_, requests, _, _ := s.journal.counts()
	fmt.Fprintf(&p.b, "http_requests_total{handler=\"generate\",method=\"POST\",status=\"2xx\"} %d\n", requests)
}
