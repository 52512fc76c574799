package route

import "math/bits"

// Until answers were seen, one is taken to hold this many tokens, and a new one
// moves the mean by this share (DESIGN section 6 and the simulations behind it).
const (
	priorLength = 300
	lengthShare = 0.02
)

// largestCap is beyond every context there is: a larger cap or answer says no
// more.
const largestCap = 1 << 24

// lengths learns how long answers become: the mean without a cap, and what
// share of their cap they use, for caps of each power of two by itself, since
// a cap of 64,000 says less than one of 64.
type lengths struct {
	free   mean
	capped [25]mean // the last is of largestCap
}

type mean struct {
	value float64
	count int
}

func (m *mean) add(v float64) {
	m.count++
	m.value += (v - m.value) * max(lengthShare, 1/float64(m.count+priorWeight))
}

// priorWeight is how many answers the prior counts for.
const priorWeight = 4

func (l *lengths) add(limit, tokens int64) {
	if tokens <= 0 {
		return
	}
	tokens = min(tokens, largestCap) // beyond it an engine miscounts, and one such answer must not outweigh all others
	if limit < 1 {
		if l.free.count == 0 {
			l.free.value = priorLength
		}
		l.free.add(float64(tokens))
		return
	}
	limit = min(limit, largestCap)
	m := &l.capped[bucket(limit)]
	if m.count == 0 {
		m.value = priorShare(limit)
	}
	m.add(min(float64(tokens)/float64(limit), 1))
}

// expected returns how many tokens an answer will hold.
func (l *lengths) expected(limit int64) float64 {
	if limit < 1 {
		if l.free.count == 0 {
			return priorLength
		}
		return l.free.value
	}
	limit = min(limit, largestCap)
	m := &l.capped[bucket(limit)]
	if m.count == 0 {
		return priorShare(limit) * float64(limit)
	}
	return m.value * float64(limit)
}

func priorShare(limit int64) float64 { return min(1, priorLength/float64(limit)) }

func bucket(limit int64) int { return bits.Len64(uint64(limit)) - 1 }
