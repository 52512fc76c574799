package benchmarks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// RunRecord is one visit of one target in one round.
type RunRecord struct {
	Kind     string     `json:"kind"`  // "run"
	Round    int        `json:"round"` // counts on over the turns of a scenario
	Scenario string     `json:"scenario"`
	Target   string     `json:"target"`
	CPUNanos int64      `json:"cpu_ns"` // of the proxy and its workers; 0 for direct
	Result   LoadResult `json:"result"`
	// Decisions is what our own record says about the prompts of the run.
	Decisions *Decisions `json:"decisions,omitempty"`
}

// Decisions sums up our own decision records.
type Decisions struct {
	Seen  int `json:"seen"`
	Exact int `json:"exact"` // routed by exact keys
	// Notes counts the reasons why keys were not exact.
	Notes map[string]int `json:"notes,omitempty"`
	// Route is the time from the request's last byte to the decision, making the keys included.
	Route Quantiles `json:"route"`
}

// IdleRecord is one window in which nobody asks a proxy anything.
type IdleRecord struct {
	Kind     string  `json:"kind"` // "idle"
	Target   string  `json:"target"`
	Window   int     `json:"window"`
	Seconds  float64 `json:"seconds"`
	CPUNanos int64   `json:"cpu_ns"` // of the proxy and its workers
}

// share returns the processors in use, 1 = one core.
func (r IdleRecord) share() float64 { return float64(r.CPUNanos) / 1e9 / max(r.Seconds, 1e-9) }

// SyscallRecord is one window under strace.
type SyscallRecord struct {
	Kind        string             `json:"kind"` // "syscalls"
	Target      string             `json:"target"`
	Window      int                `json:"window"`
	Seconds     float64            `json:"seconds"`
	Tokens      int64              `json:"tokens"`
	Calls       map[string]int64   `json:"calls"`
	IdleSeconds float64            `json:"idle_seconds"`
	IdleCalls   map[string]int64   `json:"idle_calls"`
	PerToken    map[string]float64 `json:"per_token"` // idle calls of the same time taken out
	Errors      int64              `json:"errors"`
}

// schedulerCalls are those with which Go's runtime wakes and parks threads.
var schedulerCalls = []string{"futex", "nanosleep", "clock_nanosleep", "sched_yield"}

// total returns all system calls per token. Of the scheduler's calls an idle process may make more than a busy one;
// those which traffic displaces must not be set off against those that it causes, so they count as 0 then.
func (r SyscallRecord) total() float64 {
	sum := r.difference()
	for _, name := range schedulerCalls {
		sum -= min(0, r.PerToken[name])
	}
	return sum
}

// difference returns all calls less all idle calls, per token.
func (r SyscallRecord) difference() float64 {
	var sum float64
	for _, v := range r.PerToken {
		sum += v
	}
	return sum
}

// scheduler returns the futex and nanosleep calls per token, counted as in total.
func (r SyscallRecord) scheduler() float64 {
	return max(0, r.PerToken["futex"]) + max(0, r.PerToken["nanosleep"]) + max(0, r.PerToken["clock_nanosleep"])
}

// keptPace says whether the traced proxy wrote each token on its own. A proxy that the tracer slows down below the pace
// relays several tokens in one piece, and its count per token flatters it.
func (r SyscallRecord) keptPace() bool {
	const least = 0.95 // the window's edges are worth some tokens
	return r.PerToken["write"]+r.PerToken["writev"]+r.PerToken["sendto"]+r.PerToken["sendmsg"] >= least
}

// MemoryRecord is one step of held streams.
type MemoryRecord struct {
	Kind      string     `json:"kind"` // "memory"
	Target    string     `json:"target"`
	Round     int        `json:"round,omitempty"` // of a side-by-side
	Streams   HoldReport `json:"streams"`
	BaseBytes int64      `json:"base_bytes"` // resident before the first stream, after a warm-up
	RSSBytes  int64      `json:"rss_bytes"`
}

// perStream returns bytes a live stream.
func (r MemoryRecord) perStream() float64 {
	if r.Streams.Live < 1 {
		return 0
	}
	return float64(r.RSSBytes-r.BaseBytes) / float64(r.Streams.Live)
}

// ContenderRecord is one proxy of a side-by-side.
type ContenderRecord struct {
	Kind    string `json:"kind"` // "contender"
	Name    string `json:"name"`
	Version string `json:"version"`
	SetUp   string `json:"set_up"`
	Ours    bool   `json:"ours,omitempty"`
	Router  bool   `json:"router,omitempty"` // for language models
	Reason  string `json:"reason,omitempty"` // why it was not measured, or not to the end
}

// PartRecord says how long a part of a side-by-side took.
type PartRecord struct {
	Kind    string  `json:"kind"` // "part"
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Cut     string  `json:"cut,omitempty"`   // where it ran out of its time
	Error   string  `json:"error,omitempty"` // why it stopped
}

// RouteRecord is one run of the benchmark of the decision.
type RouteRecord struct {
	Kind    string  `json:"kind"` // "route"
	Engines int     `json:"engines"`
	Round   int     `json:"round"`
	Nanos   float64 `json:"ns"`
}

// CapacityRecord is the KV cache of one engine as Ramjet came to know it.
type CapacityRecord struct {
	Kind        string `json:"kind"` // "capacity"
	Engine      string `json:"name"`
	Profile     string `json:"profile"`
	BlockTokens int    `json:"block_tokens"`
	Blocks      int    `json:"kv_blocks"`
	Tokens      int    `json:"kv_capacity_tokens"`
}

// Records are all raw results of one call.
type Records struct {
	Meta       Meta
	Runs       []RunRecord
	Idle       []IdleRecord
	Syscalls   []SyscallRecord
	Memory     []MemoryRecord
	Contenders []ContenderRecord
	Parts      []PartRecord
	Routes     []RouteRecord
	Capacities []CapacityRecord
}

// write saves the records in place of those of an earlier call.
func (r Records) write(name string) error {
	lines := []any{r.Meta}
	for _, x := range r.Runs {
		lines = append(lines, x)
	}
	for _, x := range r.Idle {
		lines = append(lines, x)
	}
	for _, x := range r.Syscalls {
		lines = append(lines, x)
	}
	for _, x := range r.Memory {
		lines = append(lines, x)
	}
	for _, x := range r.Contenders {
		lines = append(lines, x)
	}
	for _, x := range r.Parts {
		lines = append(lines, x)
	}
	for _, x := range r.Routes {
		lines = append(lines, x)
	}
	for _, x := range r.Capacities {
		lines = append(lines, x)
	}
	return writeLines(name, lines)
}

// writeLines saves one JSON object a line.
func writeLines(name string, lines []any) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("cannot save the results: %w", err)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("cannot save the results: %w", err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("cannot save the results: %w", closeErr)
		}
	}()
	enc := json.NewEncoder(f)
	for _, x := range lines {
		if err := enc.Encode(x); err != nil {
			return fmt.Errorf("cannot save the results: %w", err)
		}
	}
	return nil
}
