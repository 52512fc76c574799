package tokens

import (
	"testing"

	"ramjet/wire"
)

// BenchmarkPrepareShort is what every request costs where no tokenizer is at hand.
func BenchmarkPrepareShort(b *testing.B) {
	body := []byte(`{"model":"bench-model","messages":[{"role":"user","content":"Tell me about the number 123456000100017, please."}],"stream":false,` +
		`"max_tokens":2,"seed":123456000100017,"pace_us":0,"first_us":0}`)
	var peek wire.Peeked
	if err := peek.Peek(body); err != nil {
		b.Fatal(err)
	}
	m, model := NewModel(ModelOptions{}), []byte("bench-model")
	var p Prepared
	b.ReportAllocs()
	for b.Loop() {
		m.Prepare(&p, EndpointChat, model, body, &peek)
	}
}
