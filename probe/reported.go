package probe

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"ramjet/engine"
)

// Reported is what an engine's own /metrics page said (names of vLLM 0.32). A
// value is -1 where the page has none.
type Reported struct {
	Time             time.Time // when it was read
	Running          float64   // requests in the batch
	Waiting          float64   // requests queued
	KVUsage          float64   // share of the KV cache in use, 0..1, the fullest rank's
	GenerationTokens float64   // tokens generated since start
	StartTime        float64   // Unix time of the process start in seconds; 0 unknown
	// PrefixQueries and PrefixHits are prompt tokens looked up in the cache,
	// and found there, since start.
	PrefixQueries, PrefixHits float64
	KVBlocks                  float64 // blocks that its cache holds
	KVBlockTokens             float64 // tokens in one of them, for models of one kind of layer
}

// Reported returns the last reading of an engine's own figures, nil if there
// is none.
func (m *Monitor) Reported(e *engine.Engine) *Reported {
	if w := m.table.Load().byPtr[e]; w != nil {
		return w.reported.Load()
	}
	return nil
}

// parseMetrics picks the few samples it knows from a Prometheus text page and
// adds them up over label sets (data-parallel ranks). Lines that it cannot
// read are skipped: a foreign engine's page is no fault.
func parseMetrics(page []byte) Reported {
	r := Reported{Running: -1, Waiting: -1, KVUsage: -1, GenerationTokens: -1, PrefixQueries: -1, PrefixHits: -1, KVBlocks: -1, KVBlockTokens: -1}
	for line := range bytes.Lines(page) {
		name, value, ok := parseSample(line)
		if !ok {
			continue
		}
		switch string(name) {
		case "vllm:num_requests_running":
			r.Running = max(r.Running, 0) + value
		case "vllm:num_requests_waiting":
			r.Waiting = max(r.Waiting, 0) + value
		case "vllm:kv_cache_usage_perc":
			r.KVUsage = max(r.KVUsage, value)
		case "vllm:generation_tokens_total":
			r.GenerationTokens = max(r.GenerationTokens, 0) + value
		case "vllm:prefix_cache_queries_total":
			r.PrefixQueries = max(r.PrefixQueries, 0) + value
		case "vllm:prefix_cache_hits_total":
			r.PrefixHits = max(r.PrefixHits, 0) + value
		case "vllm:cache_config_info":
			// The geometry stands in the labels, once for each rank.
			r.KVBlocks = max(r.KVBlocks, 0) + labelNumber(line, "num_gpu_blocks")
			r.KVBlockTokens = labelNumber(line, "block_size")
		case "process_start_time_seconds":
			r.StartTime = max(r.StartTime, value)
		}
	}
	// Samples are finite, their sums need not be; nothing real is near that.
	for _, v := range []*float64{&r.Running, &r.Waiting, &r.GenerationTokens, &r.PrefixQueries, &r.PrefixHits, &r.KVBlocks, &r.KVBlockTokens} {
		if math.IsInf(*v, 0) || math.IsNaN(*v) {
			*v = -1
		}
	}
	return r
}

// labelNumber returns the value of a label that holds a number, 0 if there is
// none.
func labelNumber(line []byte, name string) float64 {
	_, rest, found := bytes.Cut(line, []byte(name+`="`))
	if !found {
		return 0
	}
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || v != v || v < 0 || v > math.MaxInt32 {
		return 0
	}
	return v
}

// parseSample splits one line into its metric's name, without labels, and its
// value. A label value may hold anything but an unescaped quote, a brace too,
// so the end of the labels is the last brace of the line.
func parseSample(line []byte) (name []byte, value float64, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' {
		return nil, 0, false
	}
	var rest []byte
	if i := bytes.IndexAny(line, "{ \t"); i < 0 {
		return nil, 0, false
	} else if name, rest = line[:i], line[i:]; rest[0] == '{' {
		rest = rest[bytes.LastIndexByte(rest, '}')+1:]
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 { // a time stamp may follow
		return nil, 0, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	if err != nil || v != v || v < 0 || math.IsInf(v, 0) {
		return nil, 0, false
	}
	return name, v, true
}
