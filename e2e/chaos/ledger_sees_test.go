package chaos

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// goodBooks are those of a small run in which every promise was kept: answers
// that succeeded, an error, clients that left, a request whose bytes were
// changed on the wire.
func goodBooks() *books {
	w := newWitness()
	b := &books{
		witness: w,
		body:    func(o *outcome) []byte { return []byte(o.ID) },
		expected: func(_ string, body []byte) (string, error) {
			return "the text of " + string(body), nil
		},
		before: figures{goroutines: 40, descriptors: 18, upstream: 4, heap: 4 << 20},
		after: figures{goroutines: 38, descriptors: 18, upstream: 2, heap: 9 << 20, requests: 8, linesInLog: 8,
			index: map[string]int{"a": 12, "b": 0}, cached: map[string]int{"a": 12, "b": 0}},
	}
	add := func(o outcome, ends ...string) {
		o.Path = "/v1/chat/completions"
		if o.Text == "whole" {
			o.Text = "the text of " + o.ID
		}
		b.outcomes = append(b.outcomes, o)
		for _, end := range ends {
			b.lines = append(b.lines, line{ID: o.ID, End: end, Status: o.Status})
		}
		w.arrived(o.ID, sha256.Sum256([]byte(o.ID)))
	}
	add(outcome{ID: "x-stream", HeadID: "x-stream", Sent: true, Stream: true, Status: 200, Whole: true, Success: true, Text: "whole"}, "done")
	add(outcome{ID: "x-plain", HeadID: "x-plain", Sent: true, Status: 200, Whole: true, Success: true, Text: "whole"}, "done")
	add(outcome{ID: "x-died", HeadID: "x-died", Sent: true, Stream: true, Status: 200, Whole: true, Code: "engine_died", Text: "the te"}, "engine-died")
	add(outcome{ID: "x-left", HeadID: "x-left", Sent: true, Stream: true, Status: 200, Left: "fin", Text: "the text"}, "client-gone-streaming")
	add(outcome{ID: "x-changed", HeadID: "x-changed", Sent: true, Stream: true, Status: 200, Whole: true, Success: true, Text: "thE text of x-changed"}, "done")
	add(outcome{ID: "x-reset", Sent: true, Left: "rst"}) // taken back before it was read
	add(outcome{ID: "x-refused", HeadID: "x-refused", Sent: true, Status: 502, Whole: true, Code: "engine_unreachable"}, "engine-unreachable")
	// The engine died behind [DONE], where this client stopped reading.
	add(outcome{ID: "x-sdk", HeadID: "x-sdk", Sent: true, SDK: true, Stream: true, Status: 200, Whole: true, Success: true, Text: "whole"}, "engine-died")
	w.taint("x-changed")
	return b
}

func (b *books) outcome(id string) *outcome {
	i := slices.IndexFunc(b.outcomes, func(o outcome) bool { return o.ID == id })
	return &b.outcomes[i]
}

func (b *books) line(id string) *line {
	i := slices.IndexFunc(b.lines, func(l line) bool { return l.ID == id })
	return &b.lines[i]
}

func TestLedgerFindsNothingInGoodBooks(t *testing.T) {
	t.Parallel()
	for _, v := range goodBooks().judge() {
		t.Errorf("%v", v)
	}
}

// TestLedgerSees breaks each promise in turn: every rule can fail.
func TestLedgerSees(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		spoil func(b *books)
		rule  string
	}{
		{"a request without a line", func(b *books) { b.lines = b.lines[1:] }, ruleOnce},
		{"a client that left a new connection, without a line", func(b *books) {
			b.outcomes = append(b.outcomes, outcome{ID: "x-new", Sent: true, Left: "fin"})
		}, ruleOnce},
		{"a client that left a kept connection, without a line", func(b *books) {
			b.outcomes = append(b.outcomes, outcome{ID: "x-next", Sent: true, Left: "fin", Nth: 3})
		}, ruleOnce},
		{"a client that left, without a line", func(b *books) { b.line("x-left").ID = "x-stream-2" }, ruleOnce},
		{"two lines", func(b *books) { b.lines = append(b.lines, *b.line("x-plain")) }, ruleOnce},
		{"two lines for a reset one", func(b *books) {
			b.lines = append(b.lines, line{ID: "x-reset", End: "client-gone-waiting"}, line{ID: "x-reset", End: "client-gone-waiting"})
		}, ruleOnce},
		{"a new word", func(b *books) { b.line("x-died").End = "gone" }, ruleWord},
		{"an invented request", func(b *books) { b.lines = append(b.lines, line{ID: "x-ghost", End: "done"}) }, ruleKnown},
		{"a lost token", func(b *books) { b.outcome("x-stream").Text = "the text x-stream" }, ruleText},
		{"a doubled token", func(b *books) { b.outcome("x-plain").Text += "x" }, ruleText},
		{"another's answer", func(b *books) { b.outcome("x-stream").Text = b.outcome("x-plain").Text }, ruleText},
		{"an answer whose truth is unknown", func(b *books) { b.expected = func(string, []byte) (string, error) { return "", errors.New("no") } }, ruleText},
		{"a foreign byte in a cut answer", func(b *books) { b.outcome("x-died").Text = "the tX" }, rulePart},
		{"a foreign byte for one who left", func(b *books) { b.outcome("x-left").Text = "canary" }, rulePart},
		{"another's id", func(b *books) { b.outcome("x-plain").HeadID = "x-stream" }, ruleOwn},
		{"another's body", func(b *books) { b.witness.arrived("x-plain", sha256.Sum256([]byte("x-stream"))) }, ruleBody},
		{"a success that the log does not know", func(b *books) { b.line("x-stream").End = "engine-died" }, ruleAgree},
		{"a failure that the log does not know", func(b *books) { b.line("x-died").End = "done" }, ruleAgree},
		{"an SDK that has all, called gone", func(b *books) {
			b.outcome("x-stream").SDK, b.line("x-stream").End = true, "client-gone-streaming"
		}, ruleAgree},
		{"an abort that the log does not know", func(b *books) {
			o := b.outcome("x-died")
			o.Path, o.Code, b.line("x-died").End = "/v1/responses", abortCode, "done"
		}, ruleAgree},
		{"another status", func(b *books) { b.line("x-refused").Status = 503 }, ruleAgree},
		{"a client gone that stayed", func(b *books) { b.line("x-died").End = "client-gone-streaming" }, ruleAgree},
		{"a silent end", func(b *books) { b.outcome("x-died").Code = "" }, ruleSilent},
		{"a wait for ever", func(b *books) { o := b.outcome("x-left"); o.Hung, o.Took = true, time.Minute }, ruleHang},
		{"a request not counted", func(b *books) { b.after.requests-- }, ruleCounted},
		{"a lease", func(b *books) { b.after.leases = 1 }, ruleLeases},
		{"tokens of no lease", func(b *books) { b.after.leaseTokens = 3 }, ruleLeases},
		{"a goroutine", func(b *books) { b.after.goroutines = 41 }, ruleResources},
		{"a descriptor", func(b *books) { b.after.descriptors++ }, ruleResources},
		{"a connection to an engine", func(b *books) { b.after.upstream = 5 }, ruleResources},
		{"buffers", func(b *books) { b.after.heap += heapRoom }, ruleResources},
		{"a block too many in the index", func(b *books) { b.after.index["b"] = 1 }, ruleIndex},
		{"a race", func(b *books) { b.output = "==================\nWARNING: DATA RACE\nRead at" }, ruleCrash},
		{"a panic", func(b *books) { b.output = "panic: runtime error" }, ruleCrash},
	}
	seen := map[string]bool{}
	for _, c := range cases {
		b := goodBooks()
		c.spoil(b)
		found := b.judge()
		if !slices.ContainsFunc(found, func(v violation) bool { return v.rule == c.rule }) {
			t.Errorf("%s: not seen; found %v", c.name, found)
		}
		seen[c.rule] = true
	}
	for _, rule := range []string{ruleOnce, ruleWord, ruleKnown, ruleText, rulePart, ruleOwn, ruleBody, ruleAgree, ruleSilent, ruleHang, ruleCounted, ruleLeases, ruleResources, ruleIndex, ruleCrash} {
		if !seen[rule] {
			t.Errorf("no case breaks %q", rule)
		}
	}
}

// TestShrinkFindsTheCause: of all that a scenario holds, what the failure needs
// is left.
func TestShrinkFindsTheCause(t *testing.T) {
	t.Parallel()
	runs := 0
	least := shrink(fullScenario(5, time.Minute), 60, func(s scenario) bool {
		runs++
		return slices.Contains(s.deeds, "freeze") && slices.Contains(s.wires, "slice")
	})
	if !slices.Equal(least.deeds, []string{"freeze"}) || !slices.Equal(least.wires, []string{"slice"}) || len(least.leaves) > 0 || least.sdks || least.length > 15*time.Second || least.engines != 2 {
		t.Errorf("%d runs, and left is\n%v", runs, least)
	}
	if runs > 60 {
		t.Errorf("%d runs, 60 were allowed", runs)
	}
	whole := fullScenario(5, time.Minute)
	if same := shrink(whole, 60, func(scenario) bool { return false }); same.String() != whole.String() {
		t.Errorf("what never fails again was made smaller:\n%v", same)
	}
}

// TestScenarioIsItsSeed: the same seed draws the same fates, requests and
// deeds, another one others.
func TestScenarioIsItsSeed(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) string {
		s := fullScenario(seed, time.Minute)
		f := newFates(s)
		var b strings.Builder
		for _, d := range s.timetable() {
			b.WriteString(d.kind)
		}
		for _, id := range []string{"x-1-1", "x-1-1", "x-2-9", "x-3-5", "x-9-9"} {
			b.WriteString(f.draw(id).kind + string(newAsk(s, id).body))
		}
		return b.String()
	}
	if first, again := draw(7), draw(7); first != again {
		t.Error("a seed does not repeat itself")
	}
	if draw(7) == draw(8) {
		t.Error("two seeds draw the same")
	}
	kinds := map[string]bool{}
	for _, d := range fullScenario(1, 10*time.Minute).timetable() {
		kinds[d.kind] = true
	}
	for _, kind := range deedKinds {
		if !kinds[kind] {
			t.Errorf("ten minutes never %s", kind)
		}
	}
}
