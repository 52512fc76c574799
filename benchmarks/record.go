package benchmarks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// RunRecord is one visit of one target in one round.
type RunRecord struct {
	Kind     string     `json:"kind"` // "run"
	Round    int        `json:"round"`
	Scenario string     `json:"scenario"`
	Target   string     `json:"target"`
	CPUNanos int64      `json:"cpu_ns"` // of the proxy and its workers; 0 for direct
	Result   LoadResult `json:"result"`
}

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

// Records are all raw results of one call.
type Records struct {
	Meta     Meta
	Runs     []RunRecord
	Syscalls []SyscallRecord
	Memory   []MemoryRecord
}

// write saves the records as JSON lines, in place of those of an earlier call.
func (r Records) write(name string) (err error) {
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
	lines := []any{r.Meta}
	for _, x := range r.Runs {
		lines = append(lines, x)
	}
	for _, x := range r.Syscalls {
		lines = append(lines, x)
	}
	for _, x := range r.Memory {
		lines = append(lines, x)
	}
	for _, x := range lines {
		if err := enc.Encode(x); err != nil {
			return fmt.Errorf("cannot save the results: %w", err)
		}
	}
	return nil
}
