package kvevents

import (
	"strings"
	"testing"
	"time"

	"ramjet/telemetry"
)

// said is a run of equal answers.
type said struct {
	n                            int
	prompt, predicted, reported  int
	inFlight                     bool
	removed, received, now, size int
	other                        int // 0: not at hand; below 0: none
}

func (s said) answer() Answer {
	size := s.size
	if size == 0 {
		size = 16
	}
	other := max(s.other, 0)
	if s.other == 0 {
		other = -1
	}
	return Answer{Prompt: s.prompt, Predicted: s.predicted, Reported: s.reported, Other: other, InFlight: s.inFlight, Removed: s.removed,
		BlockTokens: size, Received: uint64(s.received), receivedNow: uint64(s.now)}
}

func TestAuditJudges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []said
		want    telemetry.Trust
		words   string
		drop    int
		acts    Action // all that were asked for
	}{
		"right":                          {[]said{{n: 30, prompt: 600, predicted: 512, reported: 512, now: 1}}, exact, "", 0, 0},
		"claims too much, twice":         {[]said{{n: 2, prompt: 600, predicted: 512, now: 1}}, exact, "", 0, ActDropDoubtful},
		"claims too much":                {[]said{{n: 3, prompt: 600, predicted: 512, now: 1}}, degraded, "predicted 512 cached tokens of 600, and the engine reported 0", 0, ActDropDoubtful | ActResync},
		"claims too little":              {[]said{{n: 3, prompt: 600, predicted: 0, reported: 512, now: 1}}, degraded, "predicted 0", 0, ActResync},
		"a prefill explains more":        {[]said{{n: 9, prompt: 600, predicted: 0, reported: 512, inFlight: true, now: 1}}, exact, "", 0, 0},
		"a prefill explains no less":     {[]said{{n: 3, prompt: 600, predicted: 512, reported: 128, inFlight: true, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
		"removals explain less":          {[]said{{n: 9, prompt: 600, predicted: 512, reported: 352, removed: 10, now: 1}}, exact, "", 0, 0},
		"removals explain so much":       {[]said{{n: 3, prompt: 600, predicted: 512, reported: 256, removed: 10, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
		"a cold run proves nothing":      {[]said{{n: 2, prompt: 600, predicted: 512, now: 1}, {n: 50, prompt: 600, now: 1}, {n: 1, prompt: 600, predicted: 512, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
		"two in ten are races":           {[]said{{n: 2, prompt: 600, predicted: 512, now: 1}, {n: 8, prompt: 600, predicted: 512, reported: 512, now: 1}, {n: 2, prompt: 600, predicted: 512, now: 1}}, exact, "", 0, ActDropDoubtful},
		"recovers":                       {[]said{{n: 5, prompt: 600, predicted: 512, now: 1}, {n: 8, prompt: 600, predicted: 512, reported: 512, now: 1}}, exact, "", 0, ActDropDoubtful | ActResync},
		"not yet":                        {[]said{{n: 5, prompt: 600, predicted: 512, now: 1}, {n: 7, prompt: 600, predicted: 512, reported: 512, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
		"a lie among many":               {[]said{{n: 20, prompt: 600, predicted: 512, reported: 512, now: 1}, {n: 3, prompt: 600, predicted: 512, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
		"a block of a long prompt":       {[]said{{n: 9, prompt: 100_000, predicted: 99_968, reported: 99_936, now: 1}}, exact, "", 0, ActDropDoubtful},
		"MTP drops a block, not yet":     {[]said{{n: 3, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, now: 1}}, exact, "", 0, 0},
		"MTP drops a block":              {[]said{{n: 4, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, now: 1}}, exact, "", 1, ActSetDrop},
		"MTP drops a block, learnt":      {[]said{{n: 4, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, now: 1}, {n: 20, prompt: 2500, predicted: 800, reported: 800, other: 1600, size: 800, now: 1}}, exact, "", 1, ActSetDrop},
		"MTP drops a block in a burst":   {[]said{{n: 4, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, inFlight: true, now: 1}}, exact, "", 1, ActSetDrop},
		"a burst is no proof of less":    {[]said{{n: 4, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, now: 1}, {n: 9, prompt: 2500, predicted: 800, reported: 1600, other: 1600, size: 800, inFlight: true, now: 1}}, exact, "", 1, ActSetDrop},
		"0.33 drops none after all":      {[]said{{n: 4, prompt: 2500, predicted: 1600, reported: 800, other: 800, size: 800, now: 1}, {n: 4, prompt: 2500, predicted: 800, reported: 1600, other: 1600, size: 800, now: 1}}, exact, "", 0, ActSetDrop},
		"a checkpoint further back":      {[]said{{n: 2, prompt: 2500, predicted: 1600, reported: 0, other: -1, size: 800, now: 1}, {n: 9, prompt: 2500, predicted: 800, reported: 800, other: 800, size: 800, now: 1}, {n: 2, prompt: 2500, predicted: 1600, reported: 0, other: -1, size: 800, now: 1}}, exact, "", 1, ActSetDrop},
		"off by one now and then":        {[]said{{n: 3, prompt: 600, predicted: 512, reported: 496, other: 496, now: 1}, {n: 1, prompt: 600, predicted: 512, reported: 512, other: 496, now: 1}, {n: 3, prompt: 600, predicted: 512, reported: 496, other: 496, now: 1}}, exact, "", 0, 0},
		"no usage":                       {[]said{{n: 9, prompt: 600, predicted: 512, reported: Unreported, now: 1}}, exact, "", 0, 0},
		"no keys":                        {[]said{{n: 9, prompt: 600, predicted: -1, reported: 512, now: 1}}, exact, "", 0, 0},
		"whatever the size of the block": {[]said{{n: 3, prompt: 3000, predicted: 1568, reported: 0, size: 784, now: 1}}, degraded, "", 0, ActDropDoubtful | ActResync},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := NewAudit()
			var acts Action
			for _, s := range c.answers {
				for range s.n {
					acts |= a.Answer(s.answer())
				}
			}
			trust, reason := a.Verdict()
			if trust != c.want || !strings.Contains(reason, c.words) || a.Drop() != c.drop || acts != c.acts {
				t.Errorf("%s: %q, drop %d, acts %b; want %s: %q, %d, %b", trust, reason, a.Drop(), acts, c.want, c.words, c.drop, c.acts)
			}
			a.Restarted()
			if trust, _ := a.Verdict(); trust != exact || a.Drop() != c.drop {
				t.Errorf("after a restart %s, drop %d", trust, a.Drop())
			}
		})
	}
}

// An engine that lies, however often it also tells the truth on cold requests, is not believed within 20 requests.
func TestAuditEndsBeliefWithinTwentyRequests(t *testing.T) {
	t.Parallel()
	for _, liesEach := range []int{1, 2, 3} { // every request, every second, every third
		a := NewAudit()
		n := 0
		for ; n < 20; n++ {
			if n%liesEach == 0 {
				a.Answer(said{prompt: 600, predicted: 512, now: 1}.answer())
			} else {
				a.Answer(said{prompt: 600, predicted: 256, reported: 256, now: 1}.answer())
			}
			if trust, _ := a.Verdict(); trust == degraded {
				break
			}
		}
		if n == 20 {
			t.Errorf("believed after 20 requests with a lie in %d", liesEach)
		}
	}
}

// Reading the record anew is no use against a liar, and costs the engine.
func TestAuditAsksForFewResyncs(t *testing.T) {
	t.Parallel()
	a := NewAudit()
	n := 0
	for range 300 {
		if a.Answer(said{prompt: 600, predicted: 512, now: 1}.answer())&ActResync != 0 {
			n++
		}
	}
	if n < 2 || n > 6 {
		t.Errorf("%d resyncs in 300 wrong answers", n)
	}
}

func TestAuditHearsSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []said
		now     uint64
		want    telemetry.Trust
	}{
		"events":                        {[]said{{n: 9, prompt: 100, received: 4, now: 5}}, 5, exact},
		"one":                           {[]said{{n: 1, prompt: 100, received: 5, now: 5}}, 5, degraded},
		"two":                           {[]said{{n: 2, prompt: 100, received: 5, now: 5}}, 5, blind},
		"two, then an event":            {[]said{{n: 2, prompt: 100, received: 5, now: 5}}, 6, exact},
		"one, an event, one":            {[]said{{n: 1, prompt: 100, received: 5, now: 5}, {n: 1, prompt: 100, received: 6, now: 6}}, 6, degraded},
		"shorter than a block":          {[]said{{n: 9, prompt: 15, received: 5, now: 5}}, 5, exact},
		"shorter than a large block":    {[]said{{n: 9, prompt: 700, size: 784, received: 5, now: 5}}, 5, exact},
		"all cached but a tail":         {[]said{{n: 9, prompt: 110, predicted: 96, reported: 96, received: 5, now: 5}}, 5, exact},
		"no usage, all believed cached": {[]said{{n: 9, prompt: 110, predicted: 96, reported: Unreported, received: 5, now: 5}}, 5, exact},
		"no usage":                      {[]said{{n: 2, prompt: 110, predicted: 0, reported: Unreported, received: 5, now: 5}}, 5, blind},
		"no usage, a prefill there":     {[]said{{n: 9, prompt: 110, predicted: 0, reported: Unreported, inFlight: true, received: 5, now: 5}}, 5, exact},
		"no usage, no keys":             {[]said{{n: 9, prompt: 110, predicted: -1, reported: Unreported, received: 5, now: 5}}, 5, exact},
		"no usage, no keys, no event":   {[]said{{n: 2, prompt: 110, predicted: -1, reported: Unreported}}, 0, blind},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := NewAudit()
			for _, s := range c.answers {
				for range s.n {
					a.Answer(s.answer())
				}
			}
			trust, reason := a.Silence(c.now)
			if trust != c.want || (trust == blind) != (reason == "nothing received") {
				t.Errorf("%s: %q, want %s", trust, reason, c.want)
			}
		})
	}
}

// window is what happens between two readings of an engine's counters.
type windowOf struct {
	prompt, predicted int // of our answers
	queries, hits     float64
	usage             bool
}

func TestAuditInAggregate(t *testing.T) {
	t.Parallel()
	right := windowOf{30_000, 20_000, 30_000, 20_000, false}
	wrong := windowOf{30_000, 20_000, 30_000, 5_000, false}
	for name, c := range map[string]struct {
		windows []windowOf
		want    telemetry.Trust
	}{
		"right":                      {[]windowOf{right, right, right}, exact},
		"wrong once":                 {[]windowOf{right, wrong, right, wrong}, exact},
		"wrong":                      {[]windowOf{wrong, wrong}, degraded},
		"recovers":                   {[]windowOf{wrong, wrong, right, right}, exact},
		"not yet":                    {[]windowOf{wrong, wrong, right}, degraded},
		"too little claimed":         {[]windowOf{{30_000, 0, 30_000, 25_000, false}, {30_000, 0, 30_000, 25_000, false}}, degraded},
		"others use it too":          {[]windowOf{{30_000, 20_000, 90_000, 5_000, false}, {30_000, 20_000, 90_000, 5_000, false}}, exact},
		"answers said it themselves": {[]windowOf{{30_000, 20_000, 30_000, 5_000, true}, {30_000, 20_000, 30_000, 5_000, true}}, exact},
		"small windows add up":       {[]windowOf{{10_000, 8_000, 10_000, 0, false}, {10_000, 8_000, 10_000, 0, false}, {10_000, 8_000, 10_000, 0, false}, {10_000, 8_000, 10_000, 0, false}}, degraded},
		"too little to say":          {[]windowOf{{5_000, 4_000, 5_000, 0, false}, {5_000, 4_000, 5_000, 0, false}}, exact},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := NewAudit()
			hits, queries := 1000.0, 5000.0
			a.Totals(hits, queries)
			for _, w := range c.windows {
				reported := Unreported
				if w.usage {
					reported = w.predicted
				}
				a.Answer(Answer{Prompt: w.prompt, Predicted: w.predicted, Other: -1, Reported: reported, BlockTokens: 16, receivedNow: 1})
				hits, queries = hits+w.hits, queries+w.queries
				a.Totals(hits, queries)
			}
			trust, reason := a.Verdict()
			if trust != c.want || (trust == degraded) != strings.Contains(reason, "the engine counted") {
				t.Errorf("%s: %q, want %s", trust, reason, c.want)
			}
			// Counters that begin anew are another process.
			a.Totals(0, 0)
			a.Totals(10, 10)
		})
	}
}

// Case C26: endpoints swapped, and two feeds on one publisher.
func TestC26WiringFindsSwappedEvents(t *testing.T) {
	t.Parallel()
	w := NewWiring([]string{"a", "b", "c"})
	for range 3 {
		w.Answer(0, Answer{Prompt: 600, Predicted: 0, Reported: 512, Matches: []int32{0, 512, 256}})
		w.Answer(1, Answer{Prompt: 600, Predicted: 0, Reported: 512, Matches: []int32{512, 0, 0}})
		w.Answer(2, Answer{Prompt: 600, Predicted: 512, Reported: 512, Matches: []int32{0, 0, 512}})
	}
	for slot, want := range []string{"the events of engine b", "the events of engine a", ""} {
		if hint := w.Hint(slot); want == "" && hint != "" || !strings.Contains(hint, want) {
			t.Errorf("engine %d: %q", slot, hint)
		}
	}
	for range 9 { // an engine that lies: that nobody holds anything says nothing of the wiring
		w.Answer(2, Answer{Prompt: 600, Predicted: 512, Reported: 0, Matches: []int32{0, 0, 512}})
	}
	if hint := w.Hint(2); hint != "" {
		t.Errorf("of an engine that lies: %q", hint)
	}
	w.Answer(0, Answer{Prompt: 600, Predicted: 512, Reported: 512, Matches: []int32{512, 0, 0}})
	if hint := w.Hint(0); hint != "" {
		t.Errorf("after a right answer: %q", hint)
	}
	w.Forget(0)
	if hint := w.Hint(1); hint != "" {
		t.Errorf("after the endpoints changed: %q", hint)
	}
}

func TestC26WiringFindsSharedEvents(t *testing.T) {
	t.Parallel()
	w := NewWiring([]string{"a", "b", "c"})
	for n := range uint64(10_000) {
		w.Saw(0, 3*n)
		w.Saw(1, 3*n)
		w.Saw(2, 3*n+1)
	}
	if s := w.Same(0); !strings.Contains(s, "engine b") {
		t.Errorf("a: %q", s)
	}
	if s := w.Same(1); !strings.Contains(s, "engine a") {
		t.Errorf("b: %q", s)
	}
	if s := w.Same(2); s != "" || len(w.seen) > wiringPrints {
		t.Errorf("c: %q, %d remembered", s, len(w.seen))
	}
}

func TestC26FeedsOnOnePublisher(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		e := &fakeEngine{topic: "kv"}
		w := NewWiring([]string{"a", "b"})
		a := follow(t, e, func(o *Options) { o.Wiring = w })
		b := follow(t, e, func(o *Options) { o.Wiring, o.Slot, o.Name = w, 1, "b" })
		pass()
		for h := range uint64(5) {
			e.publish(stored(h))
			time.Sleep(time.Millisecond)
		}
		pass()
		a.is(degraded, "the same events come for engine b")
		b.is(degraded, "the same events come for engine a")
	})
}
