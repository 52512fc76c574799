package web

import (
	"sync/atomic"
	"time"
)

// A process that nobody asks anything must use no CPU, and two samples a second
// are most of what is left then. So Run stops sampling when nothing is in
// flight, nothing moved and nobody looks on. The half seconds that it missed
// held nothing: they are written down when somebody asks or something begins.

// stepsToRest is how many samples in a row must find nothing. One could fall
// between a request's arrival and its lease.
const stepsToRest = 4

// rest says whether Run sleeps, and wakes it.
type rest struct {
	stirred atomic.Bool // since the last sample
	asleep  atomic.Bool
	wake    chan struct{}
	quiet   int // samples in a row; of Run's goroutine alone
}

// Stir tells that a request began, ends or goes on. It costs two loads, and is
// safe for concurrent use.
func (s *Server) Stir() {
	r := &s.rest
	if !r.stirred.Load() {
		r.stirred.Store(true)
	}
	if r.asleep.Load() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// tired counts a sample and says whether Run may sleep.
func (r *rest) tired(quiet bool) bool {
	if r.stirred.Swap(false) || !quiet {
		r.quiet = 0
		return false
	}
	r.quiet++
	return r.quiet >= stepsToRest
}

// sleep waits for Stir or done. Whoever stirs sees asleep, or is seen by the
// look at stirred behind it.
func (r *rest) sleep(done <-chan struct{}) {
	r.asleep.Store(true)
	defer r.asleep.Store(false)
	if r.stirred.Load() {
		return
	}
	select {
	case <-done:
	case <-r.wake:
	}
	r.quiet = 0
}

// idle notes that nothing moves from here on, until the next sample.
func (f *flows) idle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resting = f.size > 0
}

// catchUp writes down the half seconds of a rest that are over.
func (f *flows) catchUp(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked(now)
}

func (f *flows) catchUpLocked(now time.Time) {
	if !f.resting {
		return
	}
	last := f.times[(f.next+samplesKept-1)%samplesKept]
	missed := int(now.Sub(last) / sampleEvery)
	if missed > samplesKept { // the others would be overwritten
		last = last.Add(time.Duration(missed-samplesKept) * sampleEvery)
		missed = samplesKept
	}
	for range missed {
		last = last.Add(sampleEvery)
		for _, one := range f.engines {
			one.prefill[f.next], one.decode[f.next] = 0, 0
		}
		f.push(last)
	}
}

// push ends a sample whose values are written.
func (f *flows) push(at time.Time) {
	f.times[f.next] = at
	f.next = (f.next + 1) % samplesKept
	f.size = min(f.size+1, samplesKept)
}
