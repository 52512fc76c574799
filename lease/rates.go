package lease

import (
	"math"
	"math/bits"
)

// What an engine is taken to do until it was seen (DESIGN section 6).
const (
	priorPrefill   = 10_000 // prompt tokens/s
	priorStep      = 9.5e-3 // seconds a token, of a batch of none
	priorPerAnswer = 0.24e-3
)

// speculation is how much faster than plain decoding three predicted tokens
// are, at batches of 1, 2, 4 .. 128: measured at 1, 8, 16 and 32 (DESIGN
// section 1), interpolated in the logarithm of the batch, and beyond it as the
// simulations of the policy took it.
var speculation = [buckets]float64{1.791, 1.644, 1.497, 1.350, 1.270, 1.075, 0.88, 0.72}

const (
	buckets = 8 // batches of 1, 2, 4 .. 128
	// leastPrefill is how many prompt tokens tell the rate: shorter ones are
	// mostly waiting.
	leastPrefill = 1024
	// leastSteps is how many decoding steps tell the time of one.
	leastSteps = 8
	// An average follows its newest value by this share, by more while it is
	// young.
	prefillShare = 0.1
	decodeShare  = 0.05
	// Once an average stands on this many values, one value counts as at most
	// so many times the average, or the same part of it: an answer whose client
	// took nothing for a minute, or a prompt that was cached after all, must not
	// outweigh a hundred others.
	settledCount = 4
	outlier      = 4
	// fastest is the least time of a prompt token in seconds: a tenth of what
	// the fastest accelerators of today take for small models.
	fastest = 1e-7
)

// average is an exponentially weighted mean.
type average struct {
	value float64
	count uint32
}

func (a *average) add(v, share float64) {
	if a.count < math.MaxUint32 {
		a.count++
	}
	if a.count > settledCount {
		v = min(max(v, a.value/outlier), a.value*outlier)
	}
	a.value += (v - a.value) * max(share, 1/float64(a.count))
}

// Rates are what an engine was seen to do. The zero value knows the priors of
// plain decoding.
type Rates struct {
	mtp bool
	// prefilledAt is when prefill was last added to.
	prefilledAt float64
	// prefill is the time of a prompt token. The mean is of times, not of
	// rates: two prompts that are computed in one step have their first tokens
	// a moment apart, and the second one's rate would be beyond all measure.
	prefill average
	// step holds for each bucket the time of a token as a share of its prior.
	step   [buckets]average
	shares [buckets]float64 // of every bucket, measured or near one that was
	known  bool             // something was measured
}

// Computed reports whether the engine was seen computing a prompt that tells
// its rate.
func (r *Rates) Computed() bool { return r.prefill.count > 0 }

// Prefill returns how many prompt tokens a second the engine computes, the
// wait for its batch included.
func (r *Rates) Prefill() float64 {
	if r.prefill.count == 0 {
		return priorPrefill
	}
	return 1 / r.prefill.value
}

// A rate that stands on so many prompts is mostly forgotten after so many
// seconds for each, and none stands on more than the most: older ones weigh
// next to nothing in it.
const (
	fadesAfter = 30
	mostStands = 1 / prefillShare
)

// PrefillBeside is Prefill at the time now, for an engine beside others that do
// others prompt tokens a second on average, 0 if that is not known. While no
// prompt comes, the rate of a slower engine fades into theirs, the sooner the
// fewer prompts it stands on. Without this one that was slow once, as the first
// prompts after a start are, would look slow for ever: while there is little to
// do it gets no other prompt.
func (r *Rates) PrefillBeside(others, now float64) float64 {
	own := r.Prefill()
	switch {
	case others <= 0:
		return own
	case r.prefill.count == 0:
		return others
	case own >= others:
		return own
	}
	lasts := fadesAfter * min(float64(r.prefill.count), mostStands)
	return others + (own-others)*math.Exp(-max(now-r.prefilledAt, 0)/lasts)
}

// SecondsPerToken returns the time between two tokens of one answer when batch
// answers are generated at once.
func (r *Rates) SecondsPerToken(batch float64) float64 {
	low, part := place(batch)
	share := r.share(low)
	if part > 0 {
		share += (r.share(low+1) - share) * part
	}
	return share * r.prior(batch)
}

// place returns between which buckets a batch lies, in the logarithm.
func place(batch float64) (low int, part float64) {
	x := min(math.Log2(max(batch, 1)), buckets-1)
	low = int(x)
	return low, x - float64(low)
}

// Mean is the mean of several engines' rates. The zero value is of none; it
// allocates nothing.
type Mean struct {
	plain, mtp   [buckets]float64 // sums of shares
	plains, mtps float64
}

// Add puts one engine's rates into the mean.
func (m *Mean) Add(r *Rates) {
	sums, n := &m.plain, &m.plains
	if r.mtp {
		sums, n = &m.mtp, &m.mtps
	}
	*n++
	for i := range sums {
		sums[i] += r.share(i)
	}
}

// SecondsPerToken returns the mean of what the engines' own SecondsPerToken
// are at that batch.
func (m *Mean) SecondsPerToken(batch float64) float64 {
	low, part := place(batch)
	plain, mtp := m.plain[low], m.mtp[low]
	if part > 0 {
		plain += (m.plain[low+1] - plain) * part
		mtp += (m.mtp[low+1] - mtp) * part
	}
	step := priorStep + priorPerAnswer*batch
	return step * (plain + mtp/faster(low, part)) / max(m.plains+m.mtps, 1)
}

// Learnt returns the times per token that were measured, by the batch.
func (r *Rates) Learnt(each func(batch int, seconds float64)) {
	for i := range r.step {
		if r.step[i].count > 0 {
			batch := 1 << i
			each(batch, r.step[i].value*r.prior(float64(batch)))
		}
	}
}

// share returns the bucket's measured share of its prior, else the one of the
// nearest bucket that was measured: an engine twice as fast as expected at one
// batch is so at the next.
func (r *Rates) share(bucket int) float64 {
	if !r.known {
		return 1
	}
	return r.shares[bucket]
}

// spread fills shares from what was measured.
func (r *Rates) spread() {
	r.known = true
	for bucket := range r.shares {
		r.shares[bucket] = r.nearest(bucket)
	}
	// A batch takes no longer than a larger one. Without this a smaller batch
	// that was last seen at a bad moment, beside a long prefill, keeps that
	// time for ever, and its engine stays idle because it looks slow.
	for bucket := buckets - 2; bucket >= 0; bucket-- {
		larger := r.shares[bucket+1] * r.prior(float64(int(2)<<bucket))
		r.shares[bucket] = min(r.shares[bucket], larger/r.prior(float64(int(1)<<bucket)))
	}
}

func (r *Rates) nearest(bucket int) float64 {
	for d := range buckets {
		for _, i := range [...]int{bucket - d, bucket + d} {
			if i >= 0 && i < buckets && r.step[i].count > 0 {
				return r.step[i].value
			}
		}
	}
	panic("BUG: nothing was measured")
}

func (r *Rates) prior(batch float64) float64 {
	t := priorStep + priorPerAnswer*batch
	if !r.mtp {
		return t
	}
	return t / faster(place(batch))
}

// faster is the speed of speculation between two buckets.
func faster(low int, part float64) float64 {
	f := speculation[low]
	if part > 0 {
		f += (speculation[low+1] - f) * part
	}
	return f
}

// prefilled learns from a first token that came after seconds of computing.
func (r *Rates) prefilled(tokens int64, seconds, now float64) {
	if tokens < leastPrefill || seconds <= 0 {
		return
	}
	r.prefilledAt = now
	r.prefill.add(max(seconds/float64(tokens), fastest), prefillShare)
}

// decoded learns from steps tokens of one answer in that many seconds, among
// batch answers on average.
func (r *Rates) decoded(steps, seconds, batch float64) {
	if steps < leastSteps || batch <= 0 {
		return
	}
	bucket := min(bits.Len(uint(math.Round(max(batch, 1)*math.Sqrt2)))-1, buckets-1)
	// The batch is seldom the bucket's own; the prior's shape carries what was
	// measured there.
	r.step[bucket].add(seconds/steps/r.prior(batch), decodeShare)
	r.spread()
}

// Observed learns from the engine's own counters that it generated that many
// tokens in seconds, among batch answers on average. The book must be locked.
func (r *Rates) Observed(tokens, seconds, batch float64) {
	if batch > 0 {
		r.decoded(tokens/batch, seconds, batch)
	}
}
