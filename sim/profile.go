package sim

import (
	"math"
	"time"
)

// The clockwork of the two profiles. All figures are of one replica (tensor parallel over four GPUs) of the reference
// deployment, as far as a client can see them:
//
//	a step of the standard profile with n decoding sequences   9.5 ms + 0.24 ms x n + 20 ns per token of their context
//	a prefilled token                                          0.1 ms more
//
// which gives 17.35 ms a step and 1,844 tok/s at n = 32 with outputs of 512 tokens behind short prompts.
//
// The MTP profile is known by its speed-up over that, r(n) = 1.791 / 1.350 / 1.270 / 1.075 at n = 1 / 8 / 16 / 32 with
// outputs of 256 tokens, and 1,759.2 / 1,844.1 = 0.954 at n = 32 with 512 tokens. Two numbers for one batch size cannot
// come from the batch alone: 512 tokens in 1/0.954 of the standard time, of which the first 256 took 1/1.075 of half
// of it, leave 512/0.954 - 256/1.075 = 298.5 units for the last 256, a speed-up of 0.857 = 0.797 x 1.075. So
// predictions are accepted less often late in an output. Here a step yields 2.5 tokens on average in the first 256 and
// 2.0 (0.8 x) behind, in windows of four steps that add up exactly, and its duration is what makes that the speed-up:
// 2.5 / r'(n) of a standard step. r' is the speed-up while decoding. It is a little more than r(n), which covers whole
// requests: one token of 256 comes from the prefill's step, at standard speed, and the last step gives on average one
// token beyond the cap, so 255 + 1 tokens must be decoded in the time of 256/r - 1: r' = 256 r / (256 - r). That it is
// the same for any context is a simplification.
const (
	stepBase       = 9.5e-3 // seconds
	stepPerDecode  = 0.24e-3
	stepPerKVToken = 20e-9
	prefillRate    = 10_000.0 // tokens a second

	// What the API process spends on a prompt token, in seconds, as measured with vLLM 0.32 and 92,900 tokens: 138 ms of
	// CPU for a chat request, 38.5 ms of them still if its token ids come along.
	frontendCost = 38.5e-3 / 92_900
	tokenizeCost = 138e-3/92_900 - frontendCost

	draftTokens  = 3   // predicted ahead by the MTP profile
	lateOutput   = 256 // output position from which fewer predictions are accepted
	meanAccepted = 2.5 // tokens a step before that
)

// speedup is r(n), the reference's ratios, by batch size; between the points it is linear in log2(n). The reference ends
// at 32; the two last values go on as the cost of verification grows (routing simulations of this pair use the same).
var speedup = []struct{ n, r float64 }{{1, 1.791}, {8, 1.350}, {16, 1.270}, {32, 1.075}, {64, 0.88}, {128, 0.72}}

func speedupAt(n int) float64 {
	at := float64(n)
	if at <= speedup[0].n {
		return speedup[0].r
	}
	for i := 1; i < len(speedup); i++ {
		lo, hi := speedup[i-1], speedup[i]
		if at <= hi.n {
			return lo.r + (hi.r-lo.r)*math.Log2(at/lo.n)/math.Log2(hi.n/lo.n)
		}
	}
	return speedup[len(speedup)-1].r
}

// stepLoad is what one step computes.
type stepLoad struct {
	decodes       int // sequences that decode
	prefillTokens int
	kvTokens      int // context of the decoding sequences
}

// stepSeconds is how long a step takes at speed 1.
func stepSeconds(mtp bool, l stepLoad) float64 {
	decode := stepBase + stepPerDecode*float64(l.decodes) + stepPerKVToken*float64(l.kvTokens)
	if mtp && l.decodes > 0 {
		r := speedupAt(l.decodes)
		decode *= meanAccepted / (lateOutput * r / (lateOutput - r))
	}
	return decode + float64(l.prefillTokens)/prefillRate
}

func (c *Core) stepTime(l stepLoad) time.Duration {
	return time.Duration(stepSeconds(c.mtp, l) / c.o.Speed * float64(time.Second))
}

// FrontendTime is how long the frontend takes for a request of n prompt tokens at this speed, rendering and tokenizing
// left out.
func (c *Core) FrontendTime(n int) time.Duration {
	return time.Duration(float64(n) * frontendCost / c.o.Speed * float64(time.Second))
}

// TokenizeTime is how long the frontend takes to render and tokenize n prompt tokens at this speed. Handed-over ids
// save it.
func (c *Core) TokenizeTime(n int) time.Duration {
	return time.Duration(float64(n) * tokenizeCost / c.o.Speed * float64(time.Second))
}

// acceptance says how many tokens each decoding step of one sequence yields: a pure function of seed and prompt.
type acceptance struct {
	key    uint64
	steps  uint64
	window [4]uint8
}

// Four steps yield 10 tokens early and 8 tokens late in an output, in an order that changes from window to window.
// Short windows keep equal requests close together, so that a burst has no long tail.
var (
	earlyWindow = [4]uint8{1, 2, 3, 4}
	lateWindow  = [4]uint8{1, 1, 2, 4}
)

// next returns the tokens of the next step, 1 to draftTokens + 1, for a sequence that has produced so many.
func (a *acceptance) next(produced int) int {
	at := a.steps % uint64(len(a.window))
	if at == 0 {
		a.window = earlyWindow
		if produced >= lateOutput {
			a.window = lateWindow
		}
		x := mix(a.key, a.steps)
		for i := len(a.window) - 1; i > 0; i-- {
			j := x % uint64(i+1)
			x /= uint64(i + 1)
			a.window[i], a.window[j] = a.window[j], a.window[i]
		}
	}
	a.steps++
	return int(a.window[at])
}
