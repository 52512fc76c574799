package wire

import (
	"fmt"
	"testing"
)

func BenchmarkClassifyEvent(b *testing.B) {
	for _, c := range []struct {
		name  string
		d     Dialect
		event string
	}{
		{"chat-delta", DialectOpenAI, chatDelta},
		{"chat-role", DialectOpenAI, chatRole},
		{"chat-usage", DialectOpenAI, chatUsage},
		{"completions-delta", DialectOpenAI, textDelta},
		{"responses-delta", DialectResponses, responseDelta},
		{"anthropic-delta", DialectAnthropic, blockDelta},
		{"done", DialectOpenAI, "data: [DONE]\n\n"},
		{"comment", DialectOpenAI, ": keep-alive\n\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			event := []byte(c.event)
			var info EventInfo
			for b.Loop() {
				ClassifyEvent(c.d, event, &info)
			}
		})
	}
}

// streamRead is one read of an engine's answer: events in a chunk each.
func streamRead(events int) []byte {
	var out []byte
	for range events {
		out = fmt.Appendf(out, "%x\r\n%s\r\n", len(chatDelta), chatDelta)
	}
	return out
}

// relayRead does what a relay does with one read: chunk scan, event scan,
// classification.
func relayRead(raw []byte, chunks *ChunkScanner, events *EventScanner, info *EventInfo) (deltas int) {
	for len(raw) > 0 {
		n, data, err := chunks.Next(raw)
		if err != nil {
			return -1
		}
		piece := raw[:n]
		raw = raw[n:]
		for data && len(piece) > 0 {
			n, event, complete, _ := events.Next(piece)
			piece = piece[n:]
			if complete {
				ClassifyEvent(DialectOpenAI, event, info)
				if info.Delta {
					deltas++
				}
			}
		}
	}
	return deltas
}

func BenchmarkRelayRead(b *testing.B) {
	for _, events := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			raw := streamRead(events)
			var chunks ChunkScanner
			var scan EventScanner
			var info EventInfo
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if relayRead(raw, &chunks, &scan, &info) != events {
					b.Fatal("events lost")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
		})
	}
}

func BenchmarkEventScannerCutEvents(b *testing.B) {
	raw := []byte(chatDelta)
	var scan EventScanner
	b.ReportAllocs()
	for b.Loop() {
		scan.Next(raw[:100])
		if _, _, complete, _ := scan.Next(raw[100:]); !complete {
			b.Fatal("no event")
		}
	}
}

func BenchmarkClassifyAnswer(b *testing.B) {
	body := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"some text of an answer, with \"quotes\" in it","refusal":null,"tool_calls":[],"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"usage":{"prompt_tokens":150,"total_tokens":182,"completion_tokens":32,"prompt_tokens_details":{"cached_tokens":128}},"prompt_logprobs":null,"kv_transfer_params":null}`)
	var info AnswerInfo
	b.ReportAllocs()
	for b.Loop() {
		ClassifyAnswer(DialectOpenAI, body, &info)
	}
}
