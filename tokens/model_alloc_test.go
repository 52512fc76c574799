//go:build !race

package tokens

import (
	"context"
	"testing"

	"ramjet/radix"
	"ramjet/wire"
)

// nothing is an Asker for what must not be asked.
type nothing struct{}

func (nothing) Post(context.Context, string, []byte, int64) (int, []byte, error) { panic("asked") }

// TestPreparingAllocatesNothing: peek, ids, keys, chunks and the plan of a conversation that comes back.
func TestPreparingAllocatesNothing(t *testing.T) {
	h, _ := proven(t, nil, nil)
	m := h.o.Model
	body, model := []byte(longChat(60)), []byte("m")
	var peek wire.Peeked
	var p Prepared
	var keys, chunks []uint64
	var out []byte
	run := func() {
		if err := peek.Peek(body); err != nil {
			t.Fatal(err)
		}
		m.Prepare(&p, EndpointChat, model, body, &peek)
		root := p.Root("m", "")
		keys = p.AppendKeys(keys[:0], root, 16)
		chunks = p.AppendChunks(chunks[:0], root, body, &peek)
		m.Observe(p.Class, "a", p.Predicted, p.Predicted)
		m.ObserveTokens(p.Bytes, p.Tokens)
		splice, ok := h.Plan(0, &p, &peek)
		if !ok || !p.Exact || len(keys) == 0 || len(chunks) == 0 {
			t.Fatalf("%q, %d keys, %d chunks, handed over %v", p.Note, len(keys), len(chunks), ok)
		}
		out, _ = wire.AppendEdits(out[:0], body, &peek, wire.Edits{Tokens: splice})
		p.Release()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestKnownPrefixAllocatesNothing: the same without a tokenizer.
func TestKnownPrefixAllocatesNothing(t *testing.T) {
	engine := &fakeEngine{source: testSource(t)}
	s := NewEngineSource(EngineSourceOptions{Pick: func(string) Asker { return engine }, Cache: 8 << 20})
	m := NewModel(ModelOptions{Engines: s})
	var peek wire.Peeked
	var p Prepared
	var keys []uint64
	body, model := []byte(turnsOf("a", 30, "")), []byte("m")
	run := func() {
		if err := peek.Peek(body); err != nil {
			t.Fatal(err)
		}
		m.Prepare(&p, EndpointChat, model, body, &peek)
		keys = p.AppendKeys(keys[:0], radix.Root("m", "", ""), 16)
	}
	run()
	s.answer(t.Context(), <-s.queue)
	s.o.Pick = func(string) Asker { return nothing{} }
	run()
	if p.Note != notePrefix || len(keys) == 0 {
		t.Fatalf("%q, %d keys", p.Note, len(keys))
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkPrepare is all that is done with a returning conversation of 100,000 tokens before it is routed, in parts.
func BenchmarkPrepare(b *testing.B) {
	r := newReturning(b, testTokenizer(b), simTemplate(), 400, 0)
	m := NewModel(ModelOptions{Source: r.s})
	body, model := r.bodies[0], []byte("m")
	var p Prepared
	var keys, chunks []uint64
	m.Prepare(&p, EndpointChat, model, body, &r.p)
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"peek", func() { _ = r.p.Peek(body) }},
		{"prepare", func() { m.Prepare(&p, EndpointChat, model, body, &r.p) }},
		{"keys", func() { keys = p.AppendKeys(keys[:0], 7, 16) }},
		{"chunks", func() { chunks = p.AppendChunks(chunks[:0], 7, body, &r.p) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				part.run()
			}
			b.ReportMetric(float64(len(p.IDs)), "tokens")
		})
	}
}
