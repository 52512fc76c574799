package route

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"unicode/utf8"

	"ramjet/lease"
	"ramjet/telemetry"
)

// randomSettings draws from all that a configuration can say.
func randomSettings(rng *rand.Rand) Settings {
	s := Settings{
		Policy:    []Policy{PolicyLatency, PolicyLatency, PolicyLatency, PolicyLeastTokens, PolicyRoundRobin, PolicySession}[rng.IntN(6)],
		Profile:   []Profile{ProfileRule, ProfileLearned, ProfileOff}[rng.IntN(3)],
		Threshold: []int64{64, 256, 1000}[rng.IntN(3)],
		Exact:     []Exact{ExactPercent, ExactPercent, ExactShadow, ExactOff}[rng.IntN(4)],
		Percent:   []float64{0, 0.5, 12.5, 50, 100}[rng.IntN(5)],
		CohortKey: 77,
		Tie:       []float64{0, 0.02, 0.3}[rng.IntN(3)], DelayWeight: []float64{0, 0.1, 1}[rng.IntN(3)],
	}
	return s
}

// world is a router in a random state, with requests under way.
type world struct {
	*bench
	rng    *rand.Rand
	leases []*lease.Lease
}

func newWorld(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test's chance
	profiles := make([]string, 1+rng.IntN(5))
	for i := range profiles {
		profiles[i] = []string{profileMTP, profileStandard, ""}[rng.IntN(3)]
	}
	return &world{bench: newBench(t, defaults(), profiles...), rng: rng}
}

// stir changes states, trust, caches and loads.
func (w *world) stir() {
	members := w.Members().Members
	m := &members[w.rng.IntN(len(members))]
	switch w.rng.IntN(7) {
	case 0:
		m.Engine.SetState(telemetry.States()[w.rng.IntN(len(telemetry.States()))], "test")
	case 1, 2:
		m.Engine.SetState(ready, "test")
	case 3:
		m.Engine.SetTrust(telemetry.Trusts()[w.rng.IntN(3)], "test")
	case 4:
		m.Engine.SetTrust(telemetry.TrustExact, "test")
	case 5:
		w.resident(w.rng.IntN(len(members)), ids(uint32(w.rng.IntN(4)), 16*(1+w.rng.IntN(200)))) //nolint:gosec // small
	case 6:
		w.book.Lock()
		m.Account.RatesLocked().Observed(float64(w.rng.IntN(9000)), 1, float64(1+w.rng.IntN(20)))
		w.book.Unlock()
	}
	for len(w.leases) > w.rng.IntN(12) { // mostly little to do, so that caches decide too
		w.leases[0].Release(0)
		w.leases = w.leases[1:]
	}
	if len(w.leases) > 0 && w.rng.IntN(2) == 0 {
		w.leases[w.rng.IntN(len(w.leases))].Decoding(1, true)
	}
}

func (w *world) request() *Request {
	q := request(ids(uint32(w.rng.IntN(4)), 1+w.rng.IntN(3000)), int64(w.rng.IntN(600))-1) //nolint:gosec // small
	q.Session = uint64(w.rng.IntN(20))
	q.Sequences = int64(w.rng.IntN(3))
	q.Tried = []uint64{0, 0, 0, 0, 1, 2, 3}[w.rng.IntN(7)]
	q.Light = w.rng.IntN(10) == 0
	switch w.rng.IntN(6) {
	case 0:
		q.Stored = string(rune('a' + w.rng.IntN(5)))
	case 1:
		q.Prompt.Exact, q.Prompt.Note = false, "no tokenizer"
	case 2:
		q.Prompt = Prompt{Tokens: int64(w.rng.IntN(500)), Note: "no tokenizer"}
	}
	return q
}

// shown is the explanation as users see it.
func shown(t *testing.T, x *Explanation) string {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func reread(t *testing.T, x *Explanation) *Record {
	t.Helper()
	r, err := ReadRecord(x.AppendRecord(nil))
	if err != nil {
		t.Fatalf("%v: %s", err, x.AppendRecord(nil))
	}
	return r
}

// apart shows where two texts part.
func apart(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	i = max(i-100, 0)
	return fmt.Sprintf("\n%.300s\n%.300s", a[i:], b[i:])
}

// TestAgainDecidesAsTheRouterDid: of a record everything can be decided again,
// and with other settings it is decided as the router would have with those, at
// the same moment.
func TestAgainDecidesAsTheRouterDid(t *testing.T) {
	t.Parallel()
	reasons := map[Word]int{}
	moved := 0
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		for range 150 {
			w.stir()
			q := w.request()
			was, would := randomSettings(w.rng), randomSettings(w.rng)
			x, other, again := Explanation{Attempts: []Attempt{}}, Explanation{Attempts: []Attempt{}}, Explanation{}
			w.SetSettings(would)
			if _, err := w.Explain(q, &other); err != nil {
				continue
			}
			w.SetSettings(was)
			l := &lease.Lease{}
			if _, err := w.Pick(q, l, &x); err != nil {
				t.Fatal(err)
			}
			w.leases = append(w.leases, l)
			reasons[x.Reason]++
			r := reread(t, &x)
			s := r.Settings()
			if was.CohortKey = 0; !reflect.DeepEqual(s, was) {
				t.Fatalf("settings %+v, want %+v", s, was)
			}
			r.Again(&s, r.Rotation(), &again)
			if got, want := shown(t, &again), shown(t, &x); got != want || again.Rotated() != x.Rotated() {
				t.Fatalf("seed %d: decided again %v, recorded %v: %s", seed, again.Rotated(), x.Rotated(), apart(got, want))
			}
			r.Again(&would, r.Rotation(), &again)
			other.KeysNote, again.KeysNote = "", "" // why ids are not known is not known anew
			if got, want := shown(t, &again), shown(t, &other); got != want {
				t.Fatalf("seed %d: %+v to %+v: again, and as the router would: %s", seed, was, would, apart(got, want))
			}
			if again.Engine != x.Engine {
				moved++
			}
		}
	}
	t.Logf("%v, %d moved", reasons, moved)
	for _, r := range telemetry.Reasons() {
		if reasons[Word(r.String())] == 0 {
			t.Errorf("no decision was made for the reason %v", r)
		}
	}
	if moved < 100 {
		t.Errorf("only %d decisions moved", moved)
	}
}

// TestRecordHoldsWhatUsersSee: a line of the journal is the Explanation, and
// more.
func TestRecordHoldsWhatUsersSee(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(t, 100+seed)
		for range 20 {
			w.stir()
			if _, err := w.Explain(w.request(), &w.x); err != nil {
				continue
			}
			x := &w.x
			x.RequestID, x.Path, x.Model, x.Dialect, x.Stream, x.Time = Text("r-1"), Text("/v1/chat/completions"), Text(`m "é"`), "openai", true, 1_700_000_000_123
			x.Attempts = []Attempt{{"a", "engine-died"}, {"b", "done"}}
			x.Result = Result{Ended: seed%2 == 0, Status: 200, End: telemetry.EndDone, PromptTokens: 5, CachedTokens: -1, RouteSeconds: 1e-5, TTFTSeconds: -1}
			var api, line map[string]any
			if err := json.Unmarshal([]byte(shown(t, x)), &api); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(x.AppendRecord(nil), &line); err != nil {
				t.Fatal(err)
			}
			if missing := without(api, line); missing != "" {
				t.Fatalf("the record is without %s:\n%s\n%s", missing, shown(t, x), x.AppendRecord(nil))
			}
			if line["rotation"] == nil || line["settings"] == nil {
				t.Errorf("the record is without rotation or settings: %v", line)
			}
		}
	}
}

// without names a place where have is not a part of has.
func without(have, has any) string {
	switch v := have.(type) {
	case map[string]any:
		other, ok := has.(map[string]any)
		if !ok {
			return "an object"
		}
		for k, item := range v {
			there, ok := other[k]
			if !ok {
				return k
			}
			if p := without(item, there); p != "" {
				return k + "." + p
			}
		}
	case []any:
		other, ok := has.([]any)
		if !ok || len(other) != len(v) {
			return "a list"
		}
		for i := range v {
			if p := without(v[i], other[i]); p != "" {
				return fmt.Sprint(i, ".", p)
			}
		}
	default:
		if have != has {
			return fmt.Sprint(have)
		}
	}
	return ""
}

// aRecord is the line of one decision.
func aRecord(t testing.TB) []byte {
	b := newBench(&testing.T{}, defaults(), profileMTP, profileStandard)
	b.x.RequestID = Text("r-1")
	if _, err := b.Explain(request(ids(1, 500), 64), &b.x); err != nil {
		t.Fatal(err)
	}
	return b.x.AppendRecord(nil)
}

func TestReadRecordRefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	line := aRecord(t)
	if _, err := ReadRecord(line); err != nil {
		t.Fatal(err)
	}
	for i := range line {
		if _, err := ReadRecord(line[:i]); err == nil {
			t.Errorf("a record cut at byte %d is read", i)
		}
	}
	for _, c := range []struct{ old, new string }{
		{`"v":1`, `"v":2`}, {`"v":1`, `"v":0`}, {`"settings":{`, `"setting":{`}, {`"policy":"latency","profile":"rule"`, `"policy":"best"`},
		{`"exact":"percent"`, `"exact":"all"`}, {`"state":"ready"`, `"state":"good"`}, {`"trust":"exact"`, `"trust":"some"`},
		{`"session":null`, `"session":"zz"`}, {`"engine":"a","reason"`, `"engine":"c","reason"`}, {`"usable":true`, `"usable":false`},
	} {
		bad := bytes.ReplaceAll(line, []byte(c.old), []byte(c.new))
		if bytes.Equal(bad, line) {
			t.Errorf("%s is not in the record", c.old)
		}
		if r, err := ReadRecord(bad); err == nil {
			t.Errorf("%s is read: %+v", c.new, r)
		}
	}
}

// TestRecordOfNoDecision: a request that no engine could take is told apart.
func TestRecordOfNoDecision(t *testing.T) {
	t.Parallel()
	r, _ := fixture(t, PolicyLatency, draining)
	var x Explanation
	if _, err := r.Explain(&Request{}, &x); err == nil {
		t.Fatal("an engine was chosen")
	}
	if reread(t, &x).Decided() {
		t.Error("a decision is read")
	}
}

// TestRecordKeepsTheLastDecision of a request that moved until no engine was
// left.
func TestRecordKeepsTheLastDecision(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaults(), "none")
	q := request(ids(1, 500), 64)
	b.want(t, q, "a", telemetry.ReasonOnlyOne)
	q.Tried = 1
	if _, err := b.Explain(q, &b.x); err == nil {
		t.Fatal("a tried engine was chosen")
	}
	if r := reread(t, &b.x); r.Engine != "a" || !r.Decided() {
		t.Errorf("%+v", r)
	}
}

// FuzzRecordText: whatever a client calls its model, a record is one line of
// JSON.
func FuzzRecordText(f *testing.F) {
	for _, s := range []string{"", "m", `a"b\c`, "\x00\n\r\u2028\x7f", "\xff\xfe", "é水", string(make([]byte, 1000))} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x := Explanation{Model: Text(s), basis: basis{settings: &Settings{Policy: PolicyLatency}}}
		line := x.AppendRecord(nil)
		if bytes.ContainsAny(line, "\n\r") || !utf8.Valid(line) {
			t.Fatalf("%q", line)
		}
		r, err := ReadRecord(line)
		if err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		want, _ := json.Marshal(Text(s))
		var text string
		if err := json.Unmarshal(want, &text); err != nil {
			t.Fatal(err)
		}
		if len(s) <= maxRecordText && string(r.Model) != text || len(r.Model) > 3*maxRecordText {
			t.Fatalf("%q is read as %q", s, r.Model)
		}
	})
}

// FuzzReadRecord: nothing that is read can make a decision panic.
func FuzzReadRecord(f *testing.F) {
	f.Add(aRecord(f))
	f.Add([]byte(`{"v":1,"settings":{"policy":"session","exact":"off"},"engine":"a","candidates":[{"engine":"a","usable":true,"state":"down","trust":"blind"}]}`))
	f.Fuzz(func(_ *testing.T, line []byte) {
		r, err := ReadRecord(line)
		if err != nil || !r.Decided() {
			return
		}
		var x Explanation
		s := r.Settings()
		r.Again(&s, r.Rotation(), &x)
	})
}
