package route

import (
	"math"
	"testing"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/telemetry"
)

// TestCapsBeyondAnyContext: a cap in the billions says no more than one of a
// million, and must not make its engine look busy for years.
func TestCapsBeyondAnyContext(t *testing.T) {
	var l lengths
	for range 50 {
		l.add(math.MaxInt32+1, 300)
	}
	if got := l.expected(math.MaxInt64); got > 1000 {
		t.Errorf("a cap of 2^63 makes %v tokens", got)
	}
	if got := (&lengths{}).expected(math.MaxInt64); got < 299 || got > 301 {
		t.Errorf("a cap of 2^63 makes %v tokens at first", got)
	}
}

// TestAbsurdUsage: an engine that miscounts once, or a request for a million
// answers, must not make a claim that wraps around or that stands for years.
func TestAbsurdUsage(t *testing.T) {
	for _, limit := range []int64{0, 100, math.MaxInt64} {
		var l lengths
		l.add(limit, math.MaxInt64)
		if got := l.expected(limit); got <= 0 || got > largestCap {
			t.Errorf("cap %d: %v tokens expected after one absurd usage", limit, got)
		}
	}
	b := newBench(t, defaults(), "", "")
	for range 3 {
		b.Answered(0, math.MaxInt64)
	}
	for _, sequences := range []int64{1, 1 << 20, 1 << 45} {
		q := request(ids(1, 40), 0)
		q.Sequences = sequences
		var l lease.Lease
		m := b.pick(t, q, &l).Member
		if load := b.book.Load(m.Account); load.Tokens <= 0 || load.Tokens > 1<<50 {
			t.Errorf("%d answers: a claim of %d tokens", sequences, load.Tokens)
		}
		l.Release(0)
		if load := b.book.Load(m.Account); load != (lease.Load{}) {
			t.Errorf("%d answers: left %+v", sequences, load)
		}
	}
}

// TestEmbeddingsAreNotKeptTogether: nothing of a request that generates nothing
// stays in a cache, so that a session of such weighs what it weighs, anywhere.
func TestEmbeddingsAreNotKeptTogether(t *testing.T) {
	b := newBench(t, defaults(), "", "")
	var l [4]lease.Lease
	for i := range l {
		q := &Request{Session: 7, Prompt: Prompt{Tokens: 50_000}}
		if d := b.pick(t, q, &l[i]); d.Match != 0 {
			t.Errorf("request %d: a match of %d tokens", i, d.Match)
		}
	}
	for _, m := range b.Members().Members {
		if load := b.book.Load(m.Account); load.Prefill != 2 {
			t.Errorf("%s holds %d of 4", m.Engine.Name, load.Prefill)
		}
	}
	for i := range l {
		l[i].Release(0)
	}
}

// TestPreflightsTakeNoTurn: a browser asks before each request, and would else
// send all requests to the one engine that its questions leave.
func TestPreflightsTakeNoTurn(t *testing.T) {
	s := defaults()
	s.Policy = PolicyRoundRobin
	b := newBench(t, s, "", "")
	served := map[string]int{}
	for range 10 {
		var l lease.Lease
		b.pick(t, &Request{Light: true}, &l)
		served[b.pick(t, request(ids(1, 40), 10), &l).Member.Engine.Name]++
		l.Release(0)
	}
	if served["a"] != 5 || served["b"] != 5 {
		t.Errorf("served %v", served)
	}
}

// TestFreshPromptsMatchNothing: an engine that computes a prompt whole saves
// nothing by what it holds of it.
func TestFreshPromptsMatchNothing(t *testing.T) {
	b := newBench(t, defaults(), "", "")
	prompt := ids(1, 2000)
	b.resident(1, prompt)
	q := request(prompt, 10)
	var l lease.Lease
	if d := b.pick(t, q, &l); d.Match == 0 {
		t.Fatal("the prompt is not resident")
	}
	q.Prompt.Fresh = true
	d, err := b.Explain(q, &b.x)
	if err != nil || d.Match != 0 || d.InFlight != 0 {
		t.Errorf("a match of %d and %d in flight (%v)", d.Match, d.InFlight, err)
	}
	l.Release(0)
}

// TestUntriedEnginesAreTried: the first engine that was seen to be faster than
// the prior must not get all new prompts for that.
func TestUntriedEnginesAreTried(t *testing.T) {
	b := newBench(t, defaults(), "", "")
	served := map[string]int{}
	now := 0.0
	for i := range uint32(10) {
		q := request(ids(i, 5000), 10)
		q.Now = now
		var l lease.Lease
		served[b.pick(t, q, &l).Member.Engine.Name]++
		now += 0.05 // 100,000 tokens a second
		l.Decoding(now, true)
		now++
		l.Release(now)
	}
	if served["a"] < 4 || served["b"] < 4 {
		t.Errorf("served %v", served)
	}
}

// TestSlowStartsAreForgiven: an engine whose first prompt took long, as a
// process's first do, gets others though nothing else makes it: there is so
// little to do that the other engine is always idle. One that is slow for good
// is tried seldom.
func TestSlowStartsAreForgiven(t *testing.T) {
	for _, c := range []struct {
		what   string
		steady float64 // prompt tokens/s of a after its first prompt
		least  int     // of 1,000 prompts, one in 20 s
		most   int
	}{
		{"a slow first prompt", 10_000, 60, 700},
		{"slow for good", 1_000, 4, 40},
	} {
		b := newBench(t, defaults(), "", "")
		served := map[string]int{}
		now := 0.0
		for i := range uint32(1000) {
			q := request(ids(i, 5000), 10)
			q.Now = now
			var l lease.Lease
			name := b.pick(t, q, &l).Member.Engine.Name
			served[name]++
			rate := 10_000.0
			if name == "a" {
				if rate = c.steady; served[name] == 1 {
					rate = 1_000
				}
			}
			l.Decoding(now+5000/rate, true)
			l.Release(now + 5000/rate)
			now += 20
		}
		if n := served["a"]; n < c.least || n > c.most {
			t.Errorf("%s: a got %d of 1,000 prompts, want %d to %d", c.what, n, c.least, c.most)
		}
	}
}

// TestNoSessionIsNobodysHome: under policy session, requests without a session
// are taken in turn; as one session they would all be one engine's.
func TestNoSessionIsNobodysHome(t *testing.T) {
	s := defaults()
	s.Policy = PolicySession
	b := newBench(t, s, "", "", "")
	served := map[string]int{}
	for range 9 {
		var l lease.Lease
		d := b.pick(t, &Request{}, &l)
		l.Release(0)
		if served[d.Member.Engine.Name]++; d.Reason != telemetry.ReasonRotation {
			t.Errorf("%s for %s", d.Member.Engine.Name, d.Reason)
		}
	}
	if served["a"] != 3 || served["b"] != 3 || served["c"] != 3 {
		t.Errorf("served %v", served)
	}
}

// TestNoteWithoutPrompt: keys_note says why keys are not exact, also where
// there is nothing to match (CONTRACT section 4).
func TestNoteWithoutPrompt(t *testing.T) {
	b := newBench(t, defaults(), "", "")
	for _, c := range []struct {
		what string
		q    *Request
		note Word
	}{
		{"a request without a prompt", &Request{}, notePrompt},
		{"embeddings weigh something", &Request{Prompt: Prompt{Tokens: 700}}, notePrompt},
		{"a prompt that could not be read", &Request{Prompt: Prompt{Tokens: 700, Note: "media"}, Sequences: 1}, "media"},
		{"ids", request(ids(1, 700), 0), ""},
	} {
		if _, err := b.Explain(c.q, &b.x); err != nil || b.x.KeysNote != c.note || (b.x.Keys == "exact") != (c.note == "") {
			t.Errorf("%s: keys %q, note %q, want %q (%v)", c.what, b.x.Keys, b.x.KeysNote, c.note, err)
		}
	}
}

// TestWholeAnswersAreBooked as such, so that streams beside them learn what a
// batch with them costs; what generates nothing is in no batch.
func TestWholeAnswersAreBooked(t *testing.T) {
	for _, c := range []struct {
		q     Request
		batch int
	}{
		{Request{Whole: true, Sequences: 7}, 8},
		{Request{Whole: true}, 1},
		{Request{Sequences: 7}, 1}, // a stream that has no token yet
	} {
		b := newBench(t, defaults(), "")
		var other, stream lease.Lease
		b.pick(t, &c.q, &other)
		b.pick(t, &Request{Sequences: 1}, &stream)
		stream.Decoding(1, true)
		stream.Measured(101, 5)
		learnt := 0
		rates := b.book.Rates(b.Members().Members[0].Account)
		rates.Learnt(func(batch int, _ float64) { learnt = batch })
		if learnt != c.batch {
			t.Errorf("%+v beside a stream: learnt for a batch of %d, want %d", c.q, learnt, c.batch)
		}
		stream.Release(5)
		other.Release(5)
	}
}

// TestCountedTeaches: an engine's own total reaches its account; one that is
// not in the set, or says nothing, teaches nothing.
func TestCountedTeaches(t *testing.T) {
	b := newBench(t, defaults(), "", "")
	m := &b.Members().Members[1]
	var l lease.Lease
	q := &Request{Sequences: 4, Tried: 1}
	b.pick(t, q, &l)
	l.Decoding(0, true)
	stranger := engine.New(engine.Options{Name: "c"})
	for i := range 20 {
		now := float64(i+1) * 2
		b.Counted(m.Engine, -1, -1, now)
		b.Counted(stranger, 1e9*now, 4, now)
		b.Counted(m.Engine, 50*now, 4, now) // 50 tokens a second, of four answers
	}
	l.Release(50)
	rates := b.book.Rates(m.Account)
	if got := rates.SecondsPerToken(4); math.Abs(got-4.0/50) > 1e-9 {
		t.Errorf("%v seconds a token, want %v", got, 4.0/50)
	}
}
