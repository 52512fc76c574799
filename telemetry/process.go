package telemetry

import (
	"bytes"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// processHelp describes what the metrics library knows about the process and
// the runtime. A name that a later release of it adds gets a general text
// until it is listed here.
var processHelp = map[string]string{
	"go_goroutines":                 "Goroutines that exist.",
	"go_gomaxprocs":                 "Threads that may run Go code at once.",
	"go_threads":                    "Operating system threads created.",
	"go_memstats_mallocs_total":     "Objects allocated since start.",
	"go_memstats_frees_total":       "Objects freed since start.",
	"go_memstats_alloc_bytes":       "Bytes of live objects.",
	"go_memstats_alloc_bytes_total": "Bytes allocated since start.",
	"go_gc_duration_seconds":        "Pauses of the garbage collector, as quantiles of the last 256.",
	"go_info":                       "Always 1; the label tells the Go version.",
	"process_cpu_seconds_total":     "User and system CPU time used since start.",
	"process_open_fds":              "File descriptors open.",
	"process_max_fds":               "Limit of open file descriptors.",
	"process_resident_memory_bytes": "Resident memory.",
	"process_start_time_seconds":    "Unix time at which the process started.",
	"process_virtual_memory_bytes":  "Virtual memory.",
}

// noSum are histograms that the library writes without _sum and _count: half
// a histogram is refused by strict parsers, and the same figures are in the
// runtime's own profiles.
var noSum = map[string]bool{"go_sched_latencies_seconds": true, "go_gc_pauses_seconds": true}

// writeProcess writes process_* and go_* with HELP and TYPE, which the
// library leaves out unless a process-wide switch is on.
func writeProcess(b *bytes.Buffer) {
	var raw bytes.Buffer
	metrics.WriteProcessMetrics(&raw)
	metrics.WriteFDMetrics(&raw)
	last := ""
	for line := range strings.Lines(raw.String()) {
		if line == "\n" || line[0] == '#' {
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		fam, kind := processFamily(name)
		if noSum[fam] {
			continue
		}
		if fam != last {
			help := processHelp[fam]
			if help == "" {
				help = "As the operating system or the Go runtime reports it."
			}
			writeHeader(b, fam, kind, help)
			last = fam
		}
		b.WriteString(line)
	}
}

// processFamily gives a sample's family and type by its name, as the naming
// rules of Prometheus spell them.
func processFamily(name string) (fam, kind string) {
	const summary = "go_gc_duration_seconds"
	switch {
	case strings.HasPrefix(name, summary):
		return summary, "summary"
	case strings.HasSuffix(name, "_bucket"):
		return strings.TrimSuffix(name, "_bucket"), "histogram"
	case strings.HasSuffix(name, "_total"), name == "go_cgo_calls_count", name == "go_gc_forced_count":
		return name, "counter"
	}
	return name, "gauge"
}
