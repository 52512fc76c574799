package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/telemetry"
)

// bench is a router whose engines a, b, c .. have these profiles and whose
// caches a test fills.
type bench struct {
	*Router
	book *lease.Book
	x    Explanation
}

func newBench(t *testing.T, s Settings, profiles ...string) *bench {
	t.Helper()
	states := make([]telemetry.State, len(profiles))
	for i := range states {
		states[i] = ready
	}
	r, book := fixture(t, PolicyLatency, states...)
	for i, p := range profiles {
		m := &r.Members().Members[i]
		m.Engine.SetSettings(engine.Settings{Profile: p})
		m.Account = lease.NewAccount(p)
	}
	r.SetSettings(s)
	return &bench{Router: r, book: book}
}

// defaults are the settings of a configuration that sets nothing.
func defaults() Settings {
	return Settings{Policy: PolicyLatency, Profile: ProfileRule, Threshold: 256, Exact: ExactPercent, Percent: 100, Tie: 0.02}
}

// ids makes the ids of a prompt: equal seeds begin equally.
func ids(seed uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = seed<<20 + uint32(i)
	}
	return out
}

const blockTokens = 16

// request is a chat of these ids.
func request(prompt []uint32, limit int64) *Request {
	keys := radix.AppendKeys(nil, radix.Root("", "", ""), prompt, blockTokens)
	return &Request{
		Prompt: Prompt{
			Tokens: int64(len(prompt)), Exact: true, First: len(prompt), IDs: prompt,
			Sets:  []KeySet{{BlockTokens: blockTokens, Keys: keys}},
			Chain: keys[:(len(prompt)-1)/blockTokens], ChainTokens: blockTokens,
		},
		Cap: limit, Sequences: 1,
	}
}

// resident puts a prompt into an engine's cache, as its events would.
func (b *bench) resident(slot int, prompt []uint32) {
	prompt = prompt[:len(prompt)/blockTokens*blockTokens]
	hashes := make([]uint64, len(prompt)/blockTokens)
	for i := range hashes {
		hashes[i] = rand.Uint64()
	}
	b.index.Engine(slot).Store(&radix.Store{BlockTokens: blockTokens, Root: radix.Root("", "", ""), Hashes: hashes, IDs: prompt})
}

func (b *bench) pick(t *testing.T, q *Request, l *lease.Lease) Decision {
	t.Helper()
	d, err := b.Pick(q, l, &b.x)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *bench) want(t *testing.T, q *Request, engine string, reason telemetry.Reason) Decision {
	t.Helper()
	d, err := b.Explain(q, &b.x)
	if err != nil {
		t.Fatal(err)
	}
	if d.Member.Engine.Name != engine || d.Reason != reason {
		t.Errorf("chose %s (%s), want %s (%s): %+v", d.Member.Engine.Name, d.Reason, engine, reason, b.x.Candidates)
	}
	return d
}

// TestOwnersRule: cache, then load, then the answer's length.
func TestOwnersRule(t *testing.T) {
	b := newBench(t, defaults(), profileMTP, profileStandard)
	short := ids(1, 100)
	b.want(t, request(short, 256), "a", telemetry.ReasonProfile)
	b.want(t, request(short, 257), "b", telemetry.ReasonProfile)
	b.want(t, request(short, 0), "b", telemetry.ReasonProfile)
	b.want(t, request(short, -1), "b", telemetry.ReasonProfile)

	warm := ids(2, 4000)
	b.resident(1, warm)
	d := b.want(t, request(warm, 64), "b", telemetry.ReasonExact)
	if d.Match != 3984 || d.Keys != telemetry.KeysExact { // the last token is computed
		t.Errorf("match %d by %v", d.Match, d.Keys)
	}
	b.resident(0, warm[:3200])
	b.want(t, request(warm, 64), "b", telemetry.ReasonExact)

	// Load beats the profile, and a warm prompt beats some load.
	var busy lease.Lease
	b.pick(t, request(ids(3, 30_000), 100), &busy)
	if busy.Phase() != lease.PhasePrefill || b.book.Load(b.Members().Members[0].Account).Requests() != 1 {
		t.Fatal("the long prompt is not on a")
	}
	b.want(t, request(short, 64), "b", telemetry.ReasonLoad)
	busy.Release(0)
}

// TestLoadBeatsTheCacheWhenThatPays: the least predicted cost wins, and what
// is given up is told.
func TestLoadBeatsTheCacheWhenThatPays(t *testing.T) {
	b := newBench(t, defaults(), "none", "none")
	warm := ids(1, 4000)
	b.resident(0, warm)
	var busy lease.Lease
	on := func(l *lease.Lease, tried uint64, q *Request) {
		t.Helper()
		q.Tried = tried
		b.pick(t, q, l)
	}
	on(&busy, 1<<1, request(ids(2, 3500), 0))
	defer busy.Release(0)
	// Waiting for 3,500 tokens takes 0.35 s and counts half as much again;
	// computing 4,000 takes 0.4 s and counts 0.2 s more on an idle engine, since
	// another holds them.
	b.want(t, request(warm, 0), "a", telemetry.ReasonExact)
	var more, other lease.Lease
	on(&more, 1<<1, request(ids(3, 3000), 0))
	b.want(t, request(warm, 0), "b", telemetry.ReasonLoad)
	// Where b has work too, computing delays others, and counts 0.8 s more.
	on(&other, 1<<0, request(ids(4, 100), 0))
	other.Decoding(0, false)
	b.want(t, request(warm, 0), "a", telemetry.ReasonExact)
	other.Release(0)
	more.Release(0)
	on(&more, 1<<1, request(ids(3, 8000), 0))
	defer more.Release(0)
	b.want(t, request(warm, 0), "b", telemetry.ReasonLoad)
	if b.x.ForgoneTokens != 3984 || b.x.Duplicate() != 3984 {
		t.Errorf("forgone %d, computed again %d", b.x.ForgoneTokens, b.x.Duplicate())
	}
}

// TestSingleFlight: requests with a new prompt follow the one that is
// computing it, and are not stranded when it fails.
func TestSingleFlight(t *testing.T) {
	for _, exact := range []bool{true, false} {
		b := newBench(t, defaults(), "none", "none")
		ask := func(tail uint32) *Request {
			q := request(append(ids(1, 16_000), ids(tail, 200)...), 0)
			if !exact {
				q.Prompt.Exact, q.Prompt.Sets = false, nil
			}
			return q
		}
		var l [6]lease.Lease
		first := b.pick(t, ask(2), &l[0])
		for i := range l[1:] {
			d := b.pick(t, ask(uint32(3+i)), &l[i+1])
			if d.Member != first.Member || d.Reason != telemetry.ReasonSingleFlight {
				t.Errorf("exact %v: follower %d went to %s (%s)", exact, i, d.Member.Engine.Name, d.Reason)
			}
			if d.Match != 0 || d.InFlight != 16_000 {
				t.Errorf("match %d, in flight %d", d.Match, d.InFlight)
			}
		}
		for i := range l {
			l[i].Release(0)
		}
		d, err := b.Explain(ask(20), &b.x)
		if err != nil || d.Reason != telemetry.ReasonRotation || d.InFlight != 0 {
			t.Errorf("after the leader failed: %s, %d tokens in flight, %v", d.Reason, d.InFlight, err)
		}
	}
}

// TestHotPrefixReplicates: one prefix that everybody shares does not pin all
// requests to one engine.
func TestHotPrefixReplicates(t *testing.T) {
	b := newBench(t, defaults(), "none", "none")
	hot := ids(1, 16_000)
	b.resident(0, hot)
	counts := map[string]int{}
	leases := make([]lease.Lease, 400)
	for i := range leases {
		d := b.pick(t, request(append(ids(1, 16_000), ids(uint32(i+5), 100)...), 0), &leases[i])
		leases[i].Decoding(0, false)
		if counts[d.Member.Engine.Name]++; counts["b"] == 1 && d.Slot == 1 {
			b.resident(1, hot)
		}
	}
	if counts["b"] < 100 {
		t.Errorf("400 requests under way are spread as %v", counts)
	}
	for i := range leases {
		leases[i].Release(0)
	}
}

// TestRestartedMemory: a memory without keys keeps a session together, until
// the engine's cache is lost.
func TestSessionsWithoutKeysStayTogether(t *testing.T) {
	b := newBench(t, defaults(), "none", "none", "none")
	q := &Request{Session: 77, Prompt: Prompt{Tokens: 300}, Sequences: 1}
	var l lease.Lease
	home := b.pick(t, q, &l).Member
	l.Release(0)
	for range 5 {
		if d := b.pick(t, q, &l); d.Member != home || d.Reason != telemetry.ReasonApproximate {
			t.Fatalf("the session moved from %s to %s (%s)", home.Engine.Name, d.Member.Engine.Name, d.Reason)
		}
		l.Release(0)
	}
	b.Forget(home)
	if d, _ := b.Explain(q, &b.x); d.Reason != telemetry.ReasonRotation {
		t.Errorf("after its cache was lost: %s", d.Reason)
	}
}

// TestExactNeedsTrustOfAllCandidates, else the approximate match decides and
// says why.
func TestExactNeedsTrustOfAllCandidates(t *testing.T) {
	b := newBench(t, defaults(), "none", "none")
	warm := ids(1, 4000)
	b.resident(0, warm)
	q := request(warm, 0)
	b.memory.Learn(1, q.Prompt.Chain, blockTokens)
	b.want(t, q, "a", telemetry.ReasonExact)
	if b.x.Shadow.Engine != "b" || b.x.Shadow.Agreement != telemetry.AgreementWouldMove {
		t.Errorf("shadow %+v", b.x.Shadow)
	}
	b.Members().Members[1].Engine.SetTrust(telemetry.TrustDegraded, "a gap")
	b.want(t, q, "b", telemetry.ReasonApproximate)
	if b.x.Keys != "approximate" || b.x.KeysNote != noteTrust || b.x.Shadow.Agreement != telemetry.AgreementUntrusted {
		t.Errorf("keys %s (%s), shadow %+v", b.x.Keys, b.x.KeysNote, b.x.Shadow)
	}
	// An engine that cannot be picked does not matter.
	b.Members().Members[1].Engine.SetState(down, "test")
	b.want(t, q, "a", telemetry.ReasonOnlyOne)
	if b.x.Keys != "exact" {
		t.Errorf("keys %s (%s)", b.x.Keys, b.x.KeysNote)
	}
}

func TestShadowDecidesNothing(t *testing.T) {
	s := defaults()
	s.Exact = ExactShadow
	b := newBench(t, s, "none", "none")
	warm := ids(1, 4000)
	b.resident(0, warm)
	q := request(warm, 0)
	b.memory.Learn(1, q.Prompt.Chain, blockTokens)
	b.want(t, q, "b", telemetry.ReasonApproximate)
	if b.x.Shadow.Engine != "a" || b.x.Shadow.Reason != telemetry.ReasonExact || b.x.Shadow.Agreement != telemetry.AgreementWouldMove {
		t.Errorf("shadow %+v", b.x.Shadow)
	}
	s.Exact = ExactOff
	b.SetSettings(s)
	b.want(t, q, "b", telemetry.ReasonApproximate)
	if b.x.Shadow.Agreement != telemetry.AgreementUntrusted || b.x.KeysNote != noteOff {
		t.Errorf("switched off: shadow %+v, note %s", b.x.Shadow, b.x.KeysNote)
	}
}

// TestCohorts: 10,000 sessions, shares within three sigma, each cohort inside
// the larger ones, and another key draws others.
func TestCohorts(t *testing.T) {
	t.Parallel()
	const n = 10_000
	in := func(percent float64, key, session uint64) bool {
		s := Settings{Exact: ExactPercent, Percent: percent, CohortKey: key}
		return s.In(session)
	}
	same := 0
	for _, percent := range []float64{0.5, 1, 10, 50, 100} {
		count := 0
		for i := range uint64(n) {
			session := mix(i + 1)
			if !in(percent, 1, session) {
				continue
			}
			count++
			for _, larger := range []float64{1, 10, 50, 100} {
				if larger >= percent && !in(larger, 1, session) {
					t.Fatalf("session %d is in %v %% and not in %v %%", i, percent, larger)
				}
			}
			if percent == 10 && in(percent, 2, session) {
				same++
			}
		}
		share := percent / 100
		if sigma := math.Sqrt(n * share * (1 - share)); math.Abs(float64(count)-n*share) > 3*sigma {
			t.Errorf("%v %%: %d of %d sessions", percent, count, n)
		}
	}
	if same < 50 || same > 150 {
		t.Errorf("two keys share %d of 1,000 sessions, want about 100", same)
	}
}

// TestLearnedProfile: the engines' own speeds decide, with the reason
// profile where they differ by it.
func TestLearnedProfile(t *testing.T) {
	s := defaults()
	s.Profile = ProfileLearned
	b := newBench(t, s, profileMTP, profileStandard)
	q := request(ids(1, 100), 2000)
	b.want(t, q, "a", telemetry.ReasonProfile) // alone, mtp is 1.79 times as fast
	s.Profile = ProfileOff
	b.SetSettings(s)
	b.want(t, q, "a", telemetry.ReasonRotation)
}

// TestCostIsTheFormula compares every number of random decisions with DESIGN
// section 6, computed here term by term.
func TestCostIsTheFormula(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := defaults()
	s.DelayWeight = 0.1
	for range 200 {
		n := 2 + rnd.IntN(4)
		profiles := make([]string, n)
		for i := range profiles {
			profiles[i] = []string{profileMTP, profileStandard, "none"}[rnd.IntN(3)]
		}
		s.Profile = []Profile{ProfileRule, ProfileLearned, ProfileOff}[rnd.IntN(3)]
		b := newBench(t, s, profiles...)
		var held []*lease.Lease
		for range rnd.IntN(20) {
			l := &lease.Lease{}
			b.pick(t, request(ids(uint32(rnd.IntN(50)+10), 16+rnd.IntN(9000)), int64(rnd.IntN(900))), l)
			if rnd.IntN(2) == 0 {
				l.Decoding(rnd.Float64(), true)
			}
			held = append(held, l)
		}
		prompt := ids(1, 100+rnd.IntN(9000))
		for i := range n {
			if k := rnd.IntN(len(prompt)); k >= blockTokens {
				b.resident(i, prompt[:k])
			}
		}
		q := request(prompt, int64(rnd.IntN(2)*rnd.IntN(2000)))
		q.Now = 1 + rnd.Float64()
		if _, err := b.Explain(q, &b.x); err != nil {
			t.Fatal(err)
		}
		checkFormula(t, b, &s, q)
		for _, l := range held {
			l.Release(2)
		}
	}
}

func checkFormula(t *testing.T, b *bench, s *Settings, q *Request) {
	t.Helper()
	members := b.Members().Members
	rate, speeds := 0.0, make([]lease.Rates, len(members))
	seen, computed := 0.0, 0.0 // engines whose rate was measured, and the sum of those
	for i := range members {
		if speeds[i] = b.book.Rates(members[i].Account); speeds[i].Computed() {
			seen, computed = seen+1, computed+speeds[i].Prefill()
		}
	}
	prefill := func(i int) float64 {
		own := speeds[i].Prefill()
		switch {
		case !speeds[i].Computed() && seen > 0:
			return computed / seen
		case speeds[i].Computed() && seen > 1:
			return speeds[i].PrefillBeside((computed-own)/(seen-1), q.Now) // see lease
		}
		return own
	}
	for i := range members {
		rate += prefill(i) / float64(len(members))
	}
	b.book.Lock()
	defer b.book.Unlock()
	best, winner := math.Inf(1), ""
	fewest, here, follows := int64(math.MaxInt64), 0.0, false
	for i := range members {
		m, load := &b.x.Candidates[i], members[i].Account.LoadLocked()
		flying := members[i].Account.InFlightLocked(q.Prompt.Chain, blockTokens)
		if u := q.Prompt.Tokens - max(m.MatchExact, flying); u < fewest {
			fewest, follows = u, flying > m.MatchExact
		}
		here += float64(load.Sequences) / float64(len(members))
	}
	for i := range members {
		c, load := &b.x.Candidates[i], members[i].Account.LoadLocked()
		u := float64(q.Prompt.Tokens - max(c.MatchExact, members[i].Account.InFlightLocked(q.Prompt.Chain, blockTokens)))
		p, wait := prefill(i), members[i].Account.QueueLocked(q.Now)
		batch := float64(load.Sequences + 1)
		step := speeds[i].SecondsPerToken(batch)
		if s.Profile != ProfileLearned {
			step = 0
			for j := range speeds {
				step += speeds[j].SecondsPerToken(batch) / float64(len(speeds))
			}
		}
		length := b.lengths.expected(q.Cap)
		growth := max(speeds[i].SecondsPerToken(batch)-speeds[i].SecondsPerToken(batch-1), 0)
		delay := u/p*float64(load.Decoding) + growth*min(float64(load.Remaining), length*float64(load.Decoding))
		crowd := float64(load.Sequences) / max(here, 1e-9)
		cost := 1.5*wait/p + u/p + 0.25*length*step + s.DelayWeight*delay +
			u/rate*(0.04*float64(load.Sequences)+0.8*min(max(crowd-0.8, 0), 0.4))
		if miss := 2 * (u - float64(fewest)) / rate; follows {
			cost += miss
		} else {
			cost += miss * min(1, max(0.25, 4*crowd))
		}
		if math.Abs(cost-c.Cost) > 1e-9*cost || float64(c.Uncached) != u {
			t.Fatalf("engine %s costs %v with %d uncached, want %v with %v: %+v", c.Engine, c.Cost, c.Uncached, cost, u, c)
		}
		if cost < best {
			best, winner = cost, c.Engine
		}
	}
	chosen := b.x.Candidates[b.Members().Index(b.Members().Find(string(b.x.Engine)).Engine)].Cost
	if chosen > best+max(s.Tie, tieShare*best)+1e-12 {
		t.Errorf("%s costs %v and was chosen; %s costs %v", b.x.Engine, chosen, winner, best)
	}
}

// TestExplainIsPick: the dry run and the decision of the same instant are
// equal, and the dry run changes nothing.
func TestExplainIsPick(t *testing.T) {
	b := newBench(t, defaults(), profileMTP, profileStandard, "none")
	rnd := rand.New(rand.NewPCG(3, 4))
	var l lease.Lease
	for i := range 300 {
		q := request(ids(uint32(rnd.IntN(5)), 16+rnd.IntN(3000)), int64(rnd.IntN(600)))
		q.Now = float64(i)
		dry, err := b.Explain(q, &b.x)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprintf("%+v", b.x)
		got := b.pick(t, q, &l)
		if dry != got || said != fmt.Sprintf("%+v", b.x) {
			t.Fatalf("the dry run says %+v, the decision is %+v", dry, got)
		}
		b.Learnt(got.Member, &q.Prompt)
		if rnd.IntN(3) > 0 {
			l.Release(q.Now)
		} else {
			l = lease.Lease{}
		}
	}
}

// TestSlowStartHasAShare of what the ready ones hold, and one request at
// least.
func TestSlowStartHasAShare(t *testing.T) {
	b := newBench(t, defaults(), "none", "none")
	b.Members().Members[1].Engine.SetSettings(engine.Settings{SlowStart: 1 << 40}) // a ramp that hardly moves
	b.Members().Members[1].Engine.SetState(slow, "test")
	counts := map[string]int{}
	leases := make([]lease.Lease, 100)
	for i := range leases {
		d := b.pick(t, request(ids(uint32(i+1), 200), 100), &leases[i])
		counts[d.Member.Engine.Name]++
	}
	if n := counts["b"]; n < 5 || n > 15 {
		t.Errorf("the starting engine has %d of 100 requests, want a tenth of the other's", n)
	}
	for i := range leases {
		leases[i].Release(0)
	}
}

func TestLengthsAreLearnt(t *testing.T) {
	t.Parallel()
	var l lengths
	for _, c := range []struct {
		limit int64
		want  float64
	}{{0, 300}, {-1, 300}, {100, 100}, {256, 256}, {1000, 300}, {1 << 40, 300}} {
		if got := l.expected(c.limit); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("before any answer, cap %d: %v, want %v", c.limit, got, c.want)
		}
	}
	for range 2000 {
		l.add(0, 50)
		l.add(1000, 250)
	}
	if got := l.expected(0); math.Abs(got-50) > 1 {
		t.Errorf("without a cap: %v, want 50", got)
	}
	if got := l.expected(900); math.Abs(got-225) > 2 {
		t.Errorf("with a cap of 900: %v, want a quarter", got)
	}
	if got := l.expected(100); got != 100 {
		t.Errorf("another cap learnt from it: %v", got)
	}
}
