package probe

import (
	"bytes"
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
}

// Reported returns the last reading of an engine's own figures, nil if there
// is none.
func (m *Monitor) Reported(e *engine.Engine) *Reported {
	if w := m.byPtr[e]; w != nil {
		return w.reported.Load()
	}
	return nil
}

// parseMetrics picks the few samples it knows from a Prometheus text page and
// adds them up over label sets (data-parallel ranks). Lines that it cannot
// read are skipped: a foreign engine's page is no fault.
func parseMetrics(page []byte) Reported {
	r := Reported{Running: -1, Waiting: -1, KVUsage: -1, GenerationTokens: -1}
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
		case "process_start_time_seconds":
			r.StartTime = max(r.StartTime, value)
		}
	}
	return r
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
	if err != nil || v != v || v < 0 {
		return nil, 0, false
	}
	return name, v, true
}
