package tokens

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowEngine answers when it is told to.
type slowEngine struct {
	fakeEngine
	gate          chan struct{}
	mu            sync.Mutex
	present, most int
}

func (e *slowEngine) Post(ctx context.Context, path string, body []byte, limit int64) (int, []byte, error) {
	e.mu.Lock()
	e.present++
	e.most = max(e.most, e.present)
	e.mu.Unlock()
	defer func() { e.mu.Lock(); e.present--; e.mu.Unlock() }()
	select {
	case <-e.gate:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	return e.fakeEngine.Post(ctx, path, body, limit)
}

// at returns how many questions it holds, and the most that it held.
func (e *slowEngine) at() (present, most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.present, e.most
}

// tally is a Counts.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) Tokenized(source, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	if !slices.Contains(TokenizeSources(), source) || !slices.Contains(TokenizeOutcomes(), outcome) {
		c.seen["unknown word"]++
	}
	c.seen[source+" "+outcome]++
}

func (c *tally) of(word string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[word]
}

// turnsOf is a conversation of n long messages and a question.
func turnsOf(name string, n int, more string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"role":"%s","content":"%s %d %s"}`, []string{"user", "assistant"}[i%2], name, i, strings.Repeat("and more of it ", 100)))
	}
	return `{"messages":[` + strings.Join(list, ",") + `]` + more + `}`
}

// TestEngineSource: questions are bounded in number, in time and at once, none is asked twice, and no request waits.
func TestEngineSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &slowEngine{fakeEngine: fakeEngine{source: testSource(t)}, gate: make(chan struct{})}
		busy := false
		counts := &tally{}
		s := NewEngineSource(EngineSourceOptions{Pick: func(model string) Asker {
			if busy || model != "m" {
				return nil
			}
			return engine
		}, Queue: 3, Timeout: time.Second, Cache: 8 << 20, Counts: counts})
		m := NewModel(ModelOptions{Engines: s, Counts: counts})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		var p Prepared
		ask := func(name string, n int, more string) {
			t.Helper()
			prepare(t, m, &p, EndpointChat, "m", turnsOf(name, n, more))
			synctest.Wait()
		}
		for i := range 2 { // both askers have one
			ask(fmt.Sprint("a", i), 3, "")
		}
		for i := range 10 { // three wait
			ask(fmt.Sprint("b", i), 3, "")
		}
		ask("b0", 3, "") // waits already
		if got := counts.of("engine dropped"); got != 7 || len(s.queue) != 3 || second(engine.at()) != 2 {
			t.Errorf("%d dropped, %d wait, %d at once", got, len(s.queue), second(engine.at()))
		}
		for range 5 {
			engine.gate <- struct{}{}
			synctest.Wait()
		}
		if got := counts.of("engine kept"); got != 5 || len(s.asked) != 0 {
			t.Errorf("%d kept, %d still asked", got, len(s.asked))
		}
		// A longer turn finds the beginning, and little that is new is not worth a question.
		ask("a0", 4, `,"temperature":1`)
		want, _ := testSource(t).afresh(EndpointChat, []byte(turnsOf("a0", 3, `,"add_generation_prompt":false`)))
		if p.Note != notePrefix || !slices.Equal(p.Prefix, want) || counts.of("engine found") != 1 {
			t.Errorf("%q, %d ids, wanted %d", p.Note, len(p.Prefix), len(want))
		}
		ask("a0", 3, "") // nothing new
		if first(engine.at()) != 0 || len(s.queue) != 0 || len(p.Prefix) != len(want) {
			t.Errorf("%d questions, %d wait", first(engine.at()), len(s.queue))
		}
		ask("a0", 6, "") // much is
		ask("a0", 6, "") // but once is enough
		if first(engine.at()) != 1 || len(s.queue) != 0 || len(p.Prefix) != len(want) {
			t.Errorf("%d questions, %d wait", first(engine.at()), len(s.queue))
		}
		// An engine that does not answer in time, or is saturated.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := counts.of("engine failed"); got != 1 || first(engine.at()) != 0 {
			t.Errorf("%d failed, %d are there", got, first(engine.at()))
		}
		busy = true
		before := counts.of("engine dropped")
		ask("c", 3, "")
		if counts.of("engine dropped") != before+1 || len(s.asked) != 0 {
			t.Error("a saturated engine is asked")
		}
		busy = false
		// Of these nothing is asked: media, what the engine refuses, other dialects, other members that change the prompt.
		for _, body := range []string{
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]}`,
			`{"messages":[]}`, `{"messages":[{"role":"user","content":"x"}],"chat_template":"x"}`,
		} {
			prepare(t, m, &p, EndpointChat, "m", body)
		}
		prepare(t, m, &p, EndpointMessages, "m", hello)
		prepare(t, m, &p, EndpointCompletions, "m", `{"prompt":"x"}`)
		synctest.Wait()
		if len(s.queue) != 0 || first(engine.at()) != 0 || len(s.asked) != 0 {
			t.Error("something was asked")
		}
		for _, other := range []string{`,"tools":[]`, `,"chat_template_kwargs":{"x":1}`, `,"reasoning_effort":"low"`} {
			if prepare(t, m, &p, EndpointChat, "m", turnsOf("a0", 4, other)); len(p.Prefix) != 0 {
				t.Errorf("%s: a prefix of another prompt", other)
			}
		}
		if prepare(t, m, &p, EndpointChat, "n", turnsOf("a0", 4, "")); len(p.Prefix) != 0 {
			t.Error("a prefix of another model")
		}
		cancel()
		running.Wait()
	})
}

// TestEngineSourceKeepsTurnsOnce: a conversation's turns share what they have in common, and the memory is bounded.
func TestEngineSourceKeepsTurnsOnce(t *testing.T) {
	t.Parallel()
	engine := &fakeEngine{source: testSource(t)}
	const limit = 200 << 10
	s := NewEngineSource(EngineSourceOptions{Pick: func(string) Asker { return engine }, Cache: limit})
	m := NewModel(ModelOptions{Engines: s})
	var p Prepared
	turn := func(name string, n int) {
		prepare(t, m, &p, EndpointChat, "m", turnsOf(name, n, ""))
		for len(s.queue) > 0 {
			s.answer(t.Context(), <-s.queue)
		}
	}
	total := 0
	for n := 2; n < 12; n++ {
		turn("a", n)
		total += len(p.Prefix)
	}
	kept := 0
	for _, e := range s.cache.entries {
		kept += len(e.ids)
	}
	if kept == 0 || kept >= total || kept > 12*500 {
		t.Errorf("%d ids are kept for turns of %d together", kept, total)
	}
	for i := range 60 {
		turn(fmt.Sprint("other", i), 3)
	}
	s.cache.check(t)
	if st := s.cache; st.bytes > limit || st.evicted == 0 {
		t.Errorf("%d bytes, %d evicted", st.bytes, st.evicted)
	}
}

// TestQueueIsBoundedInBytes: however few the questions are. One of any length is asked.
func TestQueueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	engine := &fakeEngine{source: testSource(t)}
	counts := &tally{}
	size := len(turnsOf("a0", 3, ""))
	s := NewEngineSource(EngineSourceOptions{Pick: func(string) Asker { return engine }, Queue: 100, QueueBytes: 5*size + size/2, Cache: 8 << 20, Counts: counts})
	m := NewModel(ModelOptions{Engines: s})
	var p Prepared
	for range 2 {
		for i := range 9 {
			prepare(t, m, &p, EndpointChat, "m", turnsOf(fmt.Sprint("a", i), 3, ""))
		}
		if len(s.queue) != 5 || s.held != 5*size {
			t.Fatalf("%d wait with %d bytes, of questions of %d", len(s.queue), s.held, size)
		}
	}
	for len(s.queue) > 0 {
		s.answer(t.Context(), <-s.queue)
	}
	if s.held != 0 || len(s.asked) != 0 {
		t.Errorf("%d bytes are held by nobody, %d", s.held, len(s.asked))
	}
	for _, name := range []string{"long", "longer"} {
		prepare(t, m, &p, EndpointChat, "m", turnsOf(name, 50, ""))
	}
	if len(s.queue) != 1 || counts.of("engine dropped") != 2*4+1 {
		t.Errorf("%d long ones wait, %d dropped", len(s.queue), counts.of("engine dropped"))
	}
}

// TestOneMemory: what is made here and what engines made is kept within one limit, and both are found.
func TestOneMemory(t *testing.T) {
	t.Parallel()
	const limit = 300 << 10
	engine := &fakeEngine{source: testSource(t)}
	e := NewEngineSource(EngineSourceOptions{Pick: func(string) Asker { return engine }, Cache: limit})
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: limit, Beside: e})
	asking := NewModel(ModelOptions{Engines: e})
	var scr Scratch
	var p Prepared
	for i := range 40 {
		body := turnsOf(fmt.Sprint("a", i), 5, "")
		for range 2 {
			checked(t, s, EndpointChat, []byte(body), &scr)
			prepare(t, asking, &p, EndpointChat, "m", body)
			for len(e.queue) > 0 {
				e.answer(t.Context(), <-e.queue)
			}
		}
		if scr.Way() != WaySame || p.Note != notePrefix {
			t.Fatalf("conversation %d: way %d, %q", i, scr.Way(), p.Note)
		}
	}
	s.cache.check(t)
	if st := s.Stats(); s.cache != e.cache || st.Bytes > limit || st.Evicted == 0 {
		t.Errorf("%+v", st)
	}
}

func first(n, _ int) int  { return n }
func second(_, n int) int { return n }
