package vllm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/tokens"
)

// The bounds for a session of 93,000 tokens that comes back with one short message: what a request costs with ids
// handed over against what it costs without Ramjet, in the same run.
const (
	maxFirstToken = 0.5  // of the time to the first token
	maxServerCPU  = 0.35 // of the CPU time of the engine's API process
)

// session is a long conversation.
type session struct {
	history []string // JSON of the messages
	size    int      // tokens
}

var vocabularyOfTalk = strings.Fields(`the a of and to in that we report committee member value index request engine cache block token prompt
	answer question before after because however therefore number table column function returns error message stream reader writer
	buffer limit second minute hour memory process thread network server client user system model context window layer attention
	always never sometimes often rarely nobody everybody something nothing looks seems reads writes holds keeps drops counts`)

// prose is text of ordinary words.
func (w writer) prose(words int) string {
	var b strings.Builder
	for i := range words {
		if i > 0 {
			b.WriteString([]string{" ", " ", " ", " ", " ", ", ", ". "}[w.IntN(7)])
		}
		b.WriteString(vocabularyOfTalk[w.IntN(len(vocabularyOfTalk))])
	}
	return b.String()
}

// longSession makes a conversation of about that many tokens, by Ramjet's own count.
func longSession(t *testing.T, folder string, size int) *session {
	t.Helper()
	p, w := newPrompts(t, folder), newWriter(6)
	s := &session{history: []string{`{"role":"system","content":"You are careful."}`}}
	for s.size < size {
		for range 20 {
			s.history = append(s.history, fmt.Sprintf(`{"role":"user","content":%q}`, w.prose(180)), fmt.Sprintf(`{"role":"assistant","content":%q}`, w.prose(180)))
		}
		ids, note := p.ids(t, tokens.EndpointChat, s.turn(0, 1, false))
		if note != "" {
			t.Fatal(note)
		}
		s.size = len(ids)
	}
	return s
}

// turn is the conversation with one more short message.
func (s *session) turn(i, maxTokens int, stream bool) string {
	options := ""
	if stream {
		options = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return fmt.Sprintf(`{"model":"tiny","temperature":0,"max_tokens":%d%s,"messages":[%s,{"role":"user","content":"Question %d: what does it hold?"}]}`, maxTokens, options, strings.Join(s.history, ","), i)
}

// testHandoff: ids that Ramjet hands over make the first token come sooner than without Ramjet, spare the engine's API
// process most of its work, and change no answer.
func testHandoff(t *testing.T, e *engine) {
	s := longSession(t, model(t, e.options.model), 93000)
	r := startRamjet(t, []*engine{e}, "--handoff.mode=auto",
		// A machine that runs a server beside us may take the processor away for longer than the usual 20 ms.
		"--tokens.max-time=1s")
	const path = "/v1/chat/completions"
	direct := func(body string) *answer { return post(t, e.url+path, body).ok(t, "direct") }

	began := time.Now()
	direct(s.turn(0, 1, true))
	t.Logf("%d tokens, cold and direct: %.1f s", s.size, time.Since(began).Seconds())
	turn := 0
	eventually(t, patience, "ids are handed over", func() string {
		turn++
		x := r.explain(r.send(path, s.turn(turn, 1, true)).id)
		if !x.Handoff {
			return fmt.Sprintf("keys %s (%s), %s prompt tokens", x.Keys, orNull(x.KeysNote), orNull(x.PromptTokens))
		}
		return ""
	})

	const rounds = 16
	var plain, handed measured
	before := r.metric("ramjet_handoff_total", `outcome="sent"`)
	for i := range rounds {
		for k := range 2 {
			turn++
			body, from := s.turn(turn, 1, true), e.cpu()
			if (i+k)%2 == 0 {
				plain.add(t, direct(body), e, from)
			} else {
				handed.add(t, r.send(path, body).answer, e, from)
			}
		}
	}
	if n := r.metric("ramjet_handoff_total", `outcome="sent"`) - before; n != rounds {
		t.Errorf("ids were handed over in %.0f of %d requests", n, rounds)
	}
	first, cpu := handed.median()/plain.median(), handed.cpu.Seconds()/plain.cpu.Seconds()
	t.Logf("%d tokens: first token after %.0f ms direct, %.0f ms through Ramjet, ratio %.2f; CPU of the API process %.0f ms and %.0f ms a request, ratio %.2f",
		s.size, 1000*plain.median(), 1000*handed.median(), first, 1000*plain.cpu.Seconds()/rounds, 1000*handed.cpu.Seconds()/rounds, cpu)
	if first > maxFirstToken {
		t.Errorf("first token: %.2f of direct, more than %.2f", first, maxFirstToken)
	}
	if cpu > maxServerCPU {
		t.Errorf("CPU of the engine's API process: %.2f of direct, more than %.2f", cpu, maxServerCPU)
	}
	for range 4 {
		turn++
		body := s.turn(turn, 12, true)
		direct(body) // from here on both find the same cache, and with it the same arithmetic
		want, wantUsage := streamed(t, direct(body).body)
		through := r.send(path, body)
		got, gotUsage := streamed(t, through.body)
		if got != want || gotUsage != wantUsage {
			t.Errorf("the answer differs: %q %+v through Ramjet, %q %+v direct", got, gotUsage, want, wantUsage)
		}
		if !r.explain(through.id).Handoff {
			t.Error("ids were not handed over")
		}
	}
}

// measured is what one way of sending cost.
type measured struct {
	first []float64 // seconds
	cpu   time.Duration
}

func (m *measured) add(t *testing.T, a *answer, e *engine, from time.Duration) {
	if _, u := streamed(t, a.body); u.Cached < u.Prompt-2*e.options.blockSize {
		t.Errorf("%d of %d prompt tokens were cached: this is no returning session", u.Cached, u.Prompt)
	}
	m.first = append(m.first, a.ttft.Seconds())
	m.cpu += e.cpu() - from
}

func (m *measured) median() float64 {
	s := slices.Sorted(slices.Values(m.first))
	return s[len(s)/2]
}
