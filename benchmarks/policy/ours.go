package policy

import (
	"fmt"

	"ramjet/route"
	"ramjet/telemetry"
)

const (
	profileMTP      = "mtp"
	profileStandard = "standard"
	profileNone     = "none"
)

// defaults are the settings of a configuration that sets nothing (CONTRACT section 1).
func defaults() route.Settings {
	return route.Settings{
		Policy: route.PolicyLatency, Profile: route.ProfileRule, Threshold: 256, Exact: route.ExactPercent, Percent: 100, Tie: 0.02,
	}
}

// ours places requests as proxy does.
type ours struct {
	x       route.Explanation
	alone   bool // no single flight: nobody is told what is being computed
	blinded bool // first tokens are not seen, so that no rate is learnt
	exact   int
	picks   int
}

func (o *ours) pick(w *world, f *flight) int {
	j, size := f.job, w.blockTokens
	keys := j.keys(size)
	q := route.Request{Now: w.clock(), Session: j.session, Cap: j.limit, Sequences: 1, Prompt: route.Prompt{
		Tokens: int64(j.in), Exact: true, First: j.in,
		Sets:  []route.KeySet{{BlockTokens: size, Keys: keys}},
		Chain: keys[:min(len(keys), (j.in-1)/size)], ChainTokens: size,
	}}
	if o.alone {
		q.Prompt.Chain = nil
	}
	// A proxy tells each lease of each token; only decisions read it.
	for _, m := range w.models {
		for _, r := range m.running {
			if r.generated > 0 {
				r.lease.Generated(int64(r.generated))
			}
		}
	}
	d, err := w.product.router.Pick(&q, &f.lease, &o.x)
	if err != nil {
		panic(fmt.Sprint("BUG: no engine could be picked: ", err))
	}
	f.sent = w.mark(d.Slot)
	c := &o.x.Candidates[d.Slot]
	f.predicted, f.followed = int(c.MatchExact), c.MatchInFlight > c.MatchExact
	o.picks++
	if d.Keys == telemetry.KeysExact {
		o.exact++
	}
	return d.Slot
}

// taughtBy is how long before a run rates can be taught: its leases' clock stands there when it begins.
const taughtBy = 1e6 // seconds

// clock is the leases' clock.
func (w *world) clock() float64 { return taughtBy + w.now }

func (w *world) mark(slot int) (m mark) {
	m.received, m.removed = w.product.feeds[slot].Mark()
	return m
}

func (o *ours) first(w *world, f *flight) {
	f.lease.Decoding(w.clock(), !o.blinded)
	f.mid = w.mark(f.slot)
	keys := f.job.keys(w.blockTokens)
	p := route.Prompt{Chain: keys[:min(len(keys), (f.job.in-1)/w.blockTokens)], ChainTokens: w.blockTokens}
	w.product.router.Learnt(&w.product.set.Members[f.slot], &p)
}

func (o *ours) done(w *world, f *flight) {
	w.audit(f)
	f.lease.Measured(int64(f.job.out), w.clock())
	w.product.router.Answered(f.job.limit, int64(f.job.out))
	f.lease.Release(w.clock())
}
