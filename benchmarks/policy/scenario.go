package policy

import (
	"math"
	"math/rand/v2"
)

// scenario is one kind of load on one set of engines.
type scenario struct {
	name     string
	profiles []string
	// make builds the load of a seed; short asks for a smoke test's.
	make func(t *traces, rng *rand.Rand, short bool) *workload
	// mixed says that the scenario is about the pair of unlike engines, so that `profile: learned` is judged.
	mixed bool
}

var pair = []string{profileMTP, profileStandard}

// traces are read once and shared by all runs.
type traces struct {
	conversation, synthetic []*job
	chat                    []*job
	sessions                [][]*job
}

// openTraces reads all that the scenarios need.
func openTraces(dir string) (*traces, error) {
	t := &traces{}
	var err error
	if t.conversation, err = mooncake(dir, "mooncake_conversation.jsonl.gz", 6000); err != nil {
		return nil, err
	}
	if t.synthetic, err = mooncake(dir, "mooncake_synthetic.jsonl.gz", math.MaxInt); err != nil {
		return nil, err
	}
	if t.chat, err = azure(dir, "azure_llm_2023_conv.csv.gz", 6000); err != nil {
		return nil, err
	}
	t.sessions, err = sessions(dir)
	return t, err
}

// capped gives half of the requests a cap: the next power of two.
func capped(j *job, rng *rand.Rand) {
	j.limit = 0
	if rng.IntN(2) == 0 {
		j.limit = 1
		for j.limit < int64(j.out) {
			j.limit *= 2
		}
	}
}

// replay plays a trace at a multiple of its speed, each stamp moved by up to jitter seconds: the conversation's stamps
// stand on a grid of 3 s.
func replay(jobs []*job, block int, speed, jitter float64, rng *rand.Rand, most int) *workload {
	l := &workload{blockTokens: block}
	for i, j := range jobs[:min(len(jobs), most)] {
		c := *j
		c.at = (j.at + rng.Float64()*jitter) / speed
		c.session = mix(uint64(i) + 1) //nolint:gosec // an index
		capped(&c, rng)
		l.jobs = append(l.jobs, &c)
	}
	return l
}

func shortened(short bool, whole, part int) int {
	if short {
		return part
	}
	return whole
}

func conversation(speed float64) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		return replay(t.conversation, mooncakeBlock, speed, 3, rng, shortened(short, 6000, 900))
	}
}

func synthetic(speed float64) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		return replay(t.synthetic, mooncakeBlock, speed, 0.5, rng, shortened(short, math.MaxInt, 900))
	}
}

func chat(speed float64) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		return replay(t.chat, azureBlock, speed, 0.5, rng, shortened(short, 6000, 1500))
	}
}

// coding is so many people at their coding agents, each in one session after the other.
func coding(users int, seconds float64) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		l := &workload{blockTokens: sessionBlock, until: seconds}
		if short {
			l.until = seconds / 4
		}
		order := rng.Perm(len(t.sessions))
		next := 0
		for range users {
			var jobs []*job
			for wait := 0.0; wait < l.until && next < len(order); next++ {
				var like *job
				for i, j := range t.sessions[order[next]] {
					c := *j
					c.like, like = like, &c
					capped(&c, rng)
					if i == 0 {
						c.at = rng.Float64() * longestThink
					}
					wait += c.at
					jobs = append(jobs, &c)
				}
			}
			if len(jobs) > 0 {
				l.users = append(l.users, jobs)
			}
		}
		return l
	}
}

// Hot documents: requests about some of 60 documents of 8,192 tokens.
const (
	documents      = 60
	documentTokens = 8192
	documentSkew   = 1.3 // of Zipf's law
	herdTokens     = 16384
	herdSize       = 24
	herdEvery      = 30.0
)

// hot asks about documents at a rate a second; with herds, every half minute two dozen requests on one new prefix come
// at once.
func hot(rate float64, herds bool) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		l := &workload{blockTokens: mooncakeBlock}
		seconds := float64(shortened(short, 600, 120))
		zipf := newZipf(documents, documentSkew)
		salt := rng.Uint64()
		for at := 0.0; at < seconds; at += rng.ExpFloat64() / rate {
			l.jobs = append(l.jobs, t.about(at, mix(salt+uint64(zipf.draw(rng))), documentTokens, 0, rng)) //nolint:gosec // small
		}
		if herds {
			for g := 1; float64(g)*herdEvery < seconds; g++ {
				for range herdSize {
					l.jobs = append(l.jobs, t.about(float64(g)*herdEvery, mix(salt-uint64(g)), herdTokens, g, rng)) //nolint:gosec // small
				}
			}
		}
		return l
	}
}

// single asks about one hot prefix.
func single(rate float64) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		l := &workload{blockTokens: mooncakeBlock}
		salt := rng.Uint64()
		for at := 0.0; at < float64(shortened(short, 600, 120)); at += rng.ExpFloat64() / rate {
			l.jobs = append(l.jobs, t.about(at, salt, herdTokens, 0, rng))
		}
		return l
	}
}

// unique asks nothing twice: prompts and answers of a chat's lengths, so many a second.
func unique(rate float64, requests int) func(*traces, *rand.Rand, bool) *workload {
	return func(t *traces, rng *rand.Rand, short bool) *workload {
		l := &workload{blockTokens: mooncakeBlock}
		at := 0.0
		for i := range shortened(short, requests, min(requests, 600)) {
			at += rng.ExpFloat64() / rate
			j := t.about(at, rng.Uint64(), 0, 0, rng)
			j.in = t.chat[rng.IntN(len(t.chat))].in
			j.words = j.words[:0]
			for k := range j.in / mooncakeBlock {
				j.words = append(j.words, mix(uint64(i+1)<<20+uint64(k))) //nolint:gosec // small
			}
			l.jobs = append(l.jobs, j)
		}
		return l
	}
}

// about is a request on a prefix, with a question of its own and an answer as long as one of the chat trace's.
func (t *traces) about(at float64, prefix uint64, tokens, group int, rng *rand.Rand) *job {
	j := &job{at: at, in: tokens + 50 + rng.IntN(300), out: t.chat[rng.IntN(len(t.chat))].out, group: group, shared: tokens, session: rng.Uint64()}
	for k := range tokens / mooncakeBlock {
		j.words = append(j.words, mix(prefix+uint64(k))) //nolint:gosec // small
	}
	capped(j, rng)
	return j
}

// zipf draws 0 .. n-1 with chances in proportion to 1/(k+1)^s.
type zipf struct{ sums []float64 }

func newZipf(n int, s float64) *zipf {
	z := &zipf{}
	sum := 0.0
	for k := range n {
		sum += 1 / math.Pow(float64(k+1), s)
		z.sums = append(z.sums, sum)
	}
	return z
}

func (z *zipf) draw(rng *rand.Rand) int {
	x := rng.Float64() * z.sums[len(z.sums)-1]
	for k, s := range z.sums {
		if x < s {
			return k
		}
	}
	return len(z.sums) - 1
}
