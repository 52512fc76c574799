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

// sampleSlack is how late a sample may be that nobody looks at. Until then the
// next token takes it, whose wake-up is paid already: at one stream of 100
// tokens a second two timers a second were an eighth of a token's CPU.
const sampleSlack = 150 * time.Millisecond

// A timer that is stopped before its time wakes the process all the same, since
// the runtime looks for it where it was. So once traffic took stepsToTrust
// samples in a row, one timer that runs through watches over it: a stream that
// slows down then has one sample that is at most watchEvery late.
const (
	stepsToTrust = 4
	watchEvery   = 2 * time.Second
)

// rest says whether Run sleeps, and wakes it.
type rest struct {
	stirred atomic.Bool // since the last sample
	asleep  atomic.Bool
	due     atomic.Int64 // when traffic takes the next sample, in nanoseconds from born; 0 is never
	wake    chan struct{}
	born    time.Time

	// Of Run's goroutine alone.
	quiet int         // samples in a row
	taken int         // samples in a row that traffic took
	watch *time.Timer // over traffic that is trusted, else nil
}

// Stir tells that a request began, ends or goes on at now. It costs three
// loads, and is safe for concurrent use.
func (s *Server) Stir(now time.Time) {
	r := &s.rest
	if !r.stirred.Load() {
		r.stirred.Store(true)
	}
	if due := r.due.Load(); r.asleep.Load() || due != 0 && int64(now.Sub(r.born)) >= due {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// wait lasts until due if the next sample is looked at, else until the first
// Stir behind it or until it is late. It reports false when done is closed.
func (r *rest) wait(done <-chan struct{}, due time.Time, watched bool) bool {
	late := due
	if !watched {
		late = due.Add(sampleSlack)
		r.due.Store(int64(due.Sub(r.born)))
		defer r.due.Store(0)
		if r.taken >= stepsToTrust {
			return r.trust(done, due)
		}
	}
	timer := time.NewTimer(time.Until(late))
	defer timer.Stop()
	for {
		select {
		case <-done:
			return false
		case <-timer.C:
			r.doubt()
			return true
		case <-r.wake: // perhaps told of the sample before
			if !watched && !time.Now().Before(due) {
				r.taken++
				return true
			}
		}
	}
}

// trust is wait where traffic takes the samples.
func (r *rest) trust(done <-chan struct{}, due time.Time) bool {
	if r.watch == nil {
		r.watch = time.NewTimer(watchEvery)
	}
	for {
		select {
		case <-done:
			return false
		case <-r.wake:
			if !time.Now().Before(due) {
				return true
			}
		case <-r.watch.C:
			if time.Now().Before(due) {
				r.watch.Reset(watchEvery)
				continue
			}
			r.doubt()
			return true
		}
	}
}

// doubt ends the trust in traffic.
func (r *rest) doubt() {
	r.taken = 0
	if r.watch != nil {
		r.watch.Stop()
		r.watch = nil
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
	select {
	case <-r.wake: // of a sample that is over
	default:
	}
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
	r.doubt()
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
