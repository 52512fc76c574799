package probe

import (
	"math/rand/v2"
	"slices"
	"time"
)

// moment is a time at which the checks of some engines are due. What a quiet
// process pays for a check is mostly its wake-up, with its caches cold and the
// runtime's monitor thread awake beside it, so engines share one: be it that
// traffic brings it or their timers, which are set for the same instant.
type moment struct {
	at   time.Time // from then on traffic may take the checks
	late time.Time // when the timers do
	n    int       // engines that are due then, no more than maxChecks
}

// How early and late a check may be due, in parts of the interval from the end
// of the last one. The end leaves a timer its slack. A moment that is chosen
// anew is a little later than it might be, so that a check that ends after the
// one that chose it can still join, and a little apart from every other, since
// two full ones side by side would be one that is too full.
const (
	soonest = 0.8
	latest  = 1.2 - 1./checkSlack
	room    = 0.02
	apart   = 0.005
)

// meet chooses when w's next check is due: with those of other engines if such
// a moment lies in its range, else at random.
func (m *Monitor) meet(w *watch, interval time.Duration) (due, late time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked(w)
	now := time.Now()
	m.moments = slices.DeleteFunc(m.moments, func(o *moment) bool { return o.n == 0 || !o.at.After(now) })
	to := m.joinableLocked(now.Add(part(interval, soonest)), now.Add(part(interval, latest+1./checkSlack)))
	if to == nil {
		at := m.freshLocked(now, interval)
		to = &moment{at: at, late: at.Add(interval / checkSlack)}
		m.moments = append(m.moments, to)
	}
	to.n++
	w.meets = to
	return to.at, to.late
}

// leave takes w out of the moment at which it was due.
func (m *Monitor) leave(w *watch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked(w)
}

func (m *Monitor) leaveLocked(w *watch) {
	if w.meets != nil {
		w.meets.n--
		w.meets = nil
	}
}

// joinableLocked returns the fullest moment between two times that has room,
// or nil.
func (m *Monitor) joinableLocked(from, to time.Time) *moment {
	var best *moment
	for _, o := range m.moments {
		if o.n < maxChecks && !o.at.Before(from) && !o.late.After(to) && (best == nil || o.n > best.n) {
			best = o
		}
	}
	return best
}

// freshLocked chooses a moment for an engine that found none, where those can
// join that are checked before it.
func (m *Monitor) freshLocked(now time.Time, interval time.Duration) time.Time {
	soon, end := part(interval, soonest+room), now.Add(part(interval, latest))
	from := now.Add(soon)
	for _, o := range m.moments {
		if t := o.at.Add(soon); o.n < maxChecks && t.After(from) && t.Before(end) {
			from = t
		}
	}
	at := jitter(from, end)
	for range 20 { // an end, should so many moments leave no place between them
		if !slices.ContainsFunc(m.moments, func(o *moment) bool { return at.Sub(o.at).Abs() < part(interval, apart) }) {
			break
		}
		at = jitter(now.Add(soon), end)
	}
	return at
}

// jitter chooses between two times. Each moment is chosen anew, so that
// several Ramjets before one engine do not fall into step, nor the engines of
// one Ramjet beyond those that share a moment.
func jitter(from, end time.Time) time.Time {
	return from.Add(part(end.Sub(from), rand.Float64()))
}

func part(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }
