package telemetry

import (
	"bytes"

	"github.com/VictoriaMetrics/metrics"
)

// Family describes one metric family for documentation and tests.
type Family struct {
	Name   string
	Type   string   // counter, gauge or histogram
	Labels []string // names, in order
	Help   string   // one sentence without line breaks
	Bounds []float64
}

// family is a described family and the way to write its samples: a set of its
// own for handles, a function for values that are read at scrape time. A set
// for each family makes it possible to put HELP and TYPE in front: the
// library writes an empty HELP, and only under a process-wide switch.
type family struct {
	Family
	set   *metrics.Set
	write func(b *bytes.Buffer, name string)
}

func (f *family) writeTo(b *bytes.Buffer) {
	writeHeader(b, f.Name, f.Type, f.Help)
	if f.write != nil {
		f.write(b, f.Name)
		return
	}
	f.set.WritePrometheus(b)
}

func writeHeader(b *bytes.Buffer, name, kind, help string) {
	b.WriteString("# HELP ")
	b.WriteString(name)
	b.WriteByte(' ')
	b.WriteString(help)
	b.WriteString("\n# TYPE ")
	b.WriteString(name)
	b.WriteByte(' ')
	b.WriteString(kind)
	b.WriteByte('\n')
}

// counter registers a counter with these labels.
func (f *family) counter(labels ...string) *metrics.Counter {
	if len(labels) == 0 {
		return f.set.GetOrCreateCounter(f.Name)
	}
	return f.set.GetOrCreateCounter(series(f.Name, labels...))
}

// histogram registers a histogram with these labels and the family's bounds.
func (f *family) histogram(labels ...string) *metrics.PrometheusHistogram {
	name := f.Name
	if len(labels) > 0 {
		name = series(f.Name, labels...)
	}
	return f.set.GetOrCreatePrometheusHistogramExt(name, f.Bounds)
}

// drop forgets the series with these labels.
func (f *family) drop(labels ...string) { f.set.UnregisterMetric(series(f.Name, labels...)) }
