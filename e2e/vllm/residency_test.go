package vllm

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ngram makes a server guess tokens from its own text, so that it decodes in bursts. It is the one way of speculation
// that works on a CPU; it drops no block of a hit, unlike multi-token prediction (docs/VLLM.md).
var ngram = []string{"--speculative-config", `{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4,"prompt_lookup_min":1}`}

// TestResidency: two servers publish what they cache, and Ramjet's match of each request is the number of prompt tokens
// that the server then reports as cached, through restarts, departures and evictions.
func TestResidency(t *testing.T) {
	installed(t)
	t.Run("dense", func(t *testing.T) {
		testResidency(t, shape{model: "dense", words: 60, blocks: 40, context: 1024})
	})
	t.Run("hybrid", func(t *testing.T) {
		testResidency(t, shape{model: "hybrid", words: 260, blocks: 36, context: 4096})
	})
}

// shape is what differs between the kinds of model.
type shape struct {
	model   string
	words   int // of a message, so that a turn fills a block or more
	blocks  int // of the small cache
	context int // of the server with the small cache
}

func testResidency(t *testing.T, s shape) {
	plain := options{model: s.model, events: true, arguments: chatArguments}
	guessing := plain
	if s.model == "dense" { // hybrids that speculate copy their state with a Triton kernel, which a CPU does not have
		guessing.arguments = append(append([]string{}, chatArguments...), ngram...)
	}
	engines := startEngines(t, plain, guessing)
	t.Run("chats", func(t *testing.T) { testChats(t, engines[0], 100) })
	r := startRamjet(t, engines, "--health.interval=200ms", "--health.stable=1s", "--health.slow-start=1s",
		"--tokens.max-time=1s") // a starting server may take the processor away for longer than the usual 20 ms
	c := &crowd{t: t, r: r, w: newWriter(7), shape: s, served: map[string]int{}}
	defer func() { c.on(t) }() // what follows the subtests is said to this test
	c.turns(4, newcomers)      // the first events show what each server's blocks are
	r.awaitTrust()
	c.proven = true

	t.Run("turns", func(t *testing.T) { c.on(t).steady(100) })
	t.Run("departure", func(t *testing.T) { c.on(t).departure(engines) })
	t.Run("clients", func(t *testing.T) { c.on(t).clients() })
	t.Run("restart", func(t *testing.T) { c.on(t).restart(engines[0]) })
	t.Run("eviction", func(t *testing.T) { c.on(t).eviction(engines[0]) })
}

// talk is a conversation that goes on.
type talk struct {
	messages []string
	engine   string // of the last turn
}

// crowd sends the turns of many conversations, one after the other, and compares.
type crowd struct {
	t      *testing.T
	r      *ramjet
	w      writer
	shape  shape
	talks  []*talk
	proven bool // both servers have published something
	served map[string]int
	same   int // turns that landed where the turn before them did
	moved  int // turns that did not, although some of their prefix was there
	cold   int // turns that did not, because none was
	hits   int // cached tokens
}

// on makes a subtest the one to be told of failures.
func (c *crowd) on(t *testing.T) *crowd {
	c.t, c.r.t = t, t
	c.served, c.same, c.moved, c.cold, c.hits = map[string]int{}, 0, 0, 0, 0
	return c
}

// pick says whose turn it is.
type pick func(c *crowd) *talk

// newcomers start a new conversation each.
func newcomers(c *crowd) *talk {
	k := &talk{messages: []string{fmt.Sprintf(`{"role":"system","content":%q}`, c.w.prose(c.shape.words))}}
	c.talks = append(c.talks, k)
	return k
}

// mixed goes on with an old conversation mostly, or forks one, or starts a new one.
func mixed(c *crowd) *talk {
	old := c.talks[c.w.IntN(len(c.talks))]
	switch n := c.w.IntN(10); {
	case n == 0:
		return newcomers(c)
	case n <= 2:
		at := len(old.messages) - 2*c.w.IntN((len(old.messages)+1)/2)
		fork := &talk{messages: append([]string{}, old.messages[:at]...), engine: old.engine}
		c.talks = append(c.talks, fork)
		return fork
	}
	return old
}

// short goes on with conversations of up to that many messages, which the server with the small cache has room for.
func short(most int) pick {
	return func(c *crowd) *talk {
		if k := c.talks[c.w.IntN(len(c.talks))]; len(k.messages) <= most {
			return k
		}
		return newcomers(c)
	}
}

func (c *crowd) turns(n int, next pick) {
	for range n {
		c.turn(next(c))
	}
}

// body is a conversation's next request.
func (c *crowd) body(k *talk, question string, maxTokens int, more string) string {
	return fmt.Sprintf(`{"model":"tiny","temperature":0,"max_tokens":%d%s,"messages":[%s,%s]}`, maxTokens, more, strings.Join(k.messages, ","), question)
}

// turn sends a conversation's next message and compares the match with what the server reports.
func (c *crowd) turn(k *talk) *sent {
	c.t.Helper()
	question := fmt.Sprintf(`{"role":"user","content":%q}`, c.w.prose(c.shape.words/3))
	body := c.body(k, question, 24, "")
	c.r.settled()
	s := c.r.send("/v1/chat/completions", body)
	u := usageOf(c.t, "", s.body)
	x := c.r.explain(s.id)
	if c.proven && x.Keys != "exact" || s.match != u.Cached {
		c.t.Errorf("%s: match %d on %s, the server says that %d of %d prompt tokens were cached; keys %s (%s), reason %s", s.id, s.match, s.engine, u.Cached, u.Prompt, x.Keys, orNull(x.KeysNote), x.Reason)
	}
	home := 0 // what the server of the turn before holds; nothing after a hybrid's first fork
	for _, other := range x.Candidates {
		if other.Match == nil {
			continue
		}
		if other.Usable && *other.Match > s.match {
			c.t.Errorf("%s went to %s with a match of %d although %s has %d", s.id, s.engine, s.match, other.Engine, *other.Match)
		}
		if other.Engine == k.engine {
			home = *other.Match
		}
	}
	switch {
	case k.engine == s.engine:
		c.same++
	case home > 0:
		c.moved++
	case k.engine != "":
		c.cold++
	}
	c.served[s.engine]++
	c.hits += u.Cached
	k.engine = s.engine
	k.messages = append(k.messages, question, c.answered(s.body))
	return s
}

// answered is the assistant's message of an answer, as a client puts it into the next request.
func (c *crowd) answered(body []byte) string {
	m := decode[struct {
		Choices []struct {
			Message struct{ Content, Reasoning *string }
		}
	}](c.t, body).Choices[0].Message
	text := ""
	for _, part := range []*string{m.Reasoning, m.Content} {
		if part != nil {
			text += *part
		}
	}
	return fmt.Sprintf(`{"role":"assistant","content":%s}`, c.w.quote(text))
}

// report logs what the turns came to.
func (c *crowd) report() {
	c.t.Logf("served by %v; %d turns where the turn before was, %d elsewhere, %d where nothing of them was left; %d tokens from the cache", c.served, c.same, c.moved, c.cold, c.hits)
}

// steady: with room for everything each turn lands where the one before it did.
func (c *crowd) steady(n int) {
	c.turns(n, mixed)
	c.report()
	if c.moved > 0 || c.cold > 0 && c.shape.model == "dense" {
		c.t.Errorf("%d turns did not land where their conversation was", c.moved+c.cold)
	}
	for _, name := range []string{"a", "b"} {
		if c.served[name] < n/5 {
			c.t.Errorf("server %s had %d of %d requests: the test shows little", name, c.served[name], n)
		}
	}
	if c.hits == 0 {
		c.t.Error("nothing was cached")
	}
}

// departure: clients that leave in the middle of an answer; what the server had filled until then stays cached.
func (c *crowd) departure(engines []*engine) {
	for i := range 6 {
		k := c.talks[i%len(c.talks)]
		question := fmt.Sprintf(`{"role":"user","content":%q}`, c.w.prose(c.shape.words/3))
		ctx, leave := context.WithCancel(c.t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.r.public+"/v1/chat/completions", strings.NewReader(c.body(k, question, 3000, `,"stream":true,"ignore_eos":true`)))
		if err != nil {
			c.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			c.t.Fatal(err)
		}
		buf := make([]byte, 512) // two tokens or three
		for range 4 + 8*i {
			if n, err := resp.Body.Read(buf); err != nil {
				c.t.Fatalf("a long answer (%s) ended by itself: %v %s", resp.Status, err, buf[:n])
			}
		}
		leave()
		resp.Body.Close()
		for _, e := range engines {
			c.idle(e)
		}
		c.turn(&talk{messages: k.messages, engine: k.engine})
	}
	c.report()
}

// idle waits until the server works on nothing any more.
func (c *crowd) idle(e *engine) {
	c.t.Helper()
	eventually(c.t, patience, "vLLM "+e.name+" is idle", func() string {
		a, err := client.Get(e.url + "/metrics")
		if err != nil {
			return err.Error()
		}
		defer a.Body.Close()
		return running(a.Body)
	})
}

// restart: a server is killed under a client's eyes and comes back with a small cache, its old blocks gone.
func (c *crowd) restart(e *engine) {
	defer func(t *testing.T) { e.t = t }(e.t)
	e.t = c.t
	e.kill()
	began := time.Now()
	c.r.awaitState(e.name, "down")
	c.t.Logf("%s was down %.1f s after it was killed", e.name, time.Since(began).Seconds())
	c.turnsElsewhere(8, e.name)
	e.options.blocks, e.options.context = c.shape.blocks, c.shape.context
	e.start()
	e.awaitHealthy()
	c.r.awaitState(e.name, "ready")
	c.r.awaitTrust()
	// Conversations that lived there have to be cold there: a match would be one of blocks that are gone.
	c.turns(20, short(9))
	c.report()
}

// turnsElsewhere sends turns that the server of that name must not get.
func (c *crowd) turnsElsewhere(n int, name string) {
	c.t.Helper()
	for range n {
		if s := c.turn(mixed(c)); s.engine == name {
			c.t.Errorf("%s went to %s, which is dead", s.id, name)
		}
	}
}

// eviction: a server whose cache holds a few conversations (restart made it small) drops the older ones, and Ramjet knows
// which blocks are left.
func (c *crowd) eviction(e *engine) {
	c.talks = nil
	removed := c.r.metric("ramjet_kv_events_total", fmt.Sprintf("engine=%q", e.name), `kind="removed"`)
	c.turns(8, newcomers)
	c.turns(50, short(5))
	c.report()
	if removed = c.r.metric("ramjet_kv_events_total", fmt.Sprintf("engine=%q", e.name), `kind="removed"`) - removed; removed == 0 {
		c.t.Error("nothing was evicted: the test shows nothing")
	}
	c.t.Logf("%.0f blocks of %s were evicted", removed, e.name)
}
