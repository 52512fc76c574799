package route

import (
	"bytes"
	"sync"
)

// Ring keeps the newest explanations. It is safe for concurrent use and
// allocates nothing once it is full of records of the same size.
type Ring struct {
	mu   sync.Mutex // guards what follows
	kept []Explanation
	next int
	size int
}

// NewRing returns a ring of the newest n.
func NewRing(n int) *Ring { return &Ring{size: max(n, 1)} }

// Reserve makes room for explanations of so many engines in a few pieces of
// memory, so that filling the ring costs no request an allocation.
func (r *Ring) Reserve(engines int) {
	const text = 64 // longer ones get memory of their own
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := make([]byte, 3*text*r.size)
	candidates, attempts := make([]Candidate, engines*r.size), make([]Attempt, r.size)
	piece := func() []byte {
		b := texts[:0:text]
		texts = texts[text:]
		return b
	}
	r.kept = make([]Explanation, r.size)
	for i := range r.kept {
		x := &r.kept[i]
		x.RequestID, x.Path, x.Model = piece(), piece(), piece()
		x.Candidates = candidates[i*engines : i*engines : (i+1)*engines]
		x.Attempts = attempts[i : i : i+1]
	}
	r.kept = r.kept[:0]
}

// Size returns how many explanations are kept at most.
func (r *Ring) Size() int { return r.size }

// Put keeps a copy of x.
func (r *Ring) Put(x *Explanation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < r.size {
		if cap(r.kept) > len(r.kept) {
			r.kept = r.kept[:len(r.kept)+1] // with the memory of Reserve
		} else {
			r.kept = append(r.kept, Explanation{})
		}
	}
	x.CopyTo(&r.kept[r.next])
	r.next = (r.next + 1) % r.size
}

// Find returns a copy of the newest explanation of a request, false if it is
// not kept (any more).
func (r *Ring) Find(id []byte) (Explanation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.kept {
		x := r.back(i)
		if bytes.Equal(x.RequestID, id) {
			var out Explanation
			x.CopyTo(&out)
			return out, true
		}
	}
	return Explanation{}, false
}

// Filter chooses explanations; "" admits all.
type Filter struct{ Engine, Reason, End string }

// List returns copies of at most limit explanations that f admits, the newest
// first.
func (r *Ring) List(f Filter, limit int) []Explanation {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Explanation{}
	for i := range r.kept {
		if len(out) >= limit {
			break
		}
		x := r.back(i)
		if f.admits(x) {
			out = append(out, Explanation{})
			x.CopyTo(&out[len(out)-1])
		}
	}
	return out
}

// back returns the i-th newest. The ring must be locked.
func (r *Ring) back(i int) *Explanation {
	n := len(r.kept)
	return &r.kept[((r.next-1-i)%n+n)%n]
}

func (f *Filter) admits(x *Explanation) bool {
	return (f.Engine == "" || f.Engine == string(x.Engine)) && (f.Reason == "" || f.Reason == string(x.Reason)) &&
		(f.End == "" || x.Result.Ended && f.End == x.Result.End.String())
}

// CopyTo copies x with everything it points to, using dst's memory.
func (x *Explanation) CopyTo(dst *Explanation) {
	id, path, model, candidates, attempts := dst.RequestID, dst.Path, dst.Model, dst.Candidates, dst.Attempts
	*dst = *x
	dst.RequestID = append(id[:0], x.RequestID...)
	dst.Path = append(path[:0], x.Path...)
	dst.Model = append(model[:0], x.Model...)
	dst.Candidates = append(candidates[:0], x.Candidates...)
	if dst.Attempts = append(attempts[:0], x.Attempts...); dst.Attempts == nil {
		dst.Attempts = []Attempt{} // none is a list too
	}
}
