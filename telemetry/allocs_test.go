//go:build !race

package telemetry

import (
	"io"
	"testing"
)

func TestRequestAllocatesNothing(t *testing.T) {
	m := NewMetrics("v", "g")
	m.Request("qwen", 200, EndDone)
	if n := testing.AllocsPerRun(1000, func() { m.Request("qwen", 200, EndDone) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHandlesAllocateNothing(t *testing.T) {
	m := NewMetrics("v", "g")
	e := m.Engine("a")
	if n := testing.AllocsPerRun(1000, func() {
		e.TTFT.Update(0.1)
		e.TPOT.Update(0.01)
		e.Decision(ReasonLoad)
		e.PromptTokens.Add(3)
		m.Duration.Update(1)
		m.Retry(RetryReset)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAccessLineAllocatesNothing(t *testing.T) {
	for _, format := range []string{FormatJSON, FormatConsole} {
		a := NewAccessLog(io.Discard, format)
		r := fullRecord()
		a.Write(r)
		if n := testing.AllocsPerRun(2000, func() { a.Write(r) }); n != 0 {
			t.Errorf("%s: %v allocations per line", format, n)
		}
		_ = a.Close()
	}
}

func BenchmarkAccessLine(b *testing.B) {
	for _, format := range []string{FormatJSON, FormatConsole} {
		b.Run(format, func(b *testing.B) {
			a := NewAccessLog(io.Discard, format)
			r := fullRecord()
			b.ReportAllocs()
			for b.Loop() {
				a.Write(r)
			}
			_ = a.Close()
		})
	}
}

// BenchmarkAccessLineAlone is without what passes it on: a writer that was closed takes nothing.
func BenchmarkAccessLineAlone(b *testing.B) {
	a := NewAccessLog(io.Discard, FormatJSON)
	_ = a.Close()
	r := fullRecord()
	b.ReportAllocs()
	for b.Loop() {
		a.Write(r)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := NewMetrics("v", "g")
	b.ReportAllocs()
	for b.Loop() {
		m.Request("qwen", 200, EndDone)
	}
}
