package gpu

import "time"

// ring holds the last ringSize points of one GPU. It grows with what it holds,
// so that a source that speaks once in 30 s does not cost what one at 2 Hz
// does.
type ring struct {
	points []point
	next   int // where the next one goes once the ring is full
}

type point struct {
	at          int64 // Unix nanoseconds
	utilization float64
	power       float64
	memory      int64
}

// add takes a sample in. One that is not newer than the last is dropped: a
// source whose clock was set back must not make a line that runs backwards.
func (r *ring) add(s Sample) {
	p := point{at: s.At.UnixNano(), utilization: s.Utilization, power: s.PowerW, memory: s.MemoryUsedBytes}
	if n := len(r.points); n > 0 && p.at <= r.points[(r.next+n-1)%n].at {
		return
	}
	if len(r.points) < ringSize {
		r.points = append(r.points, p)
		return
	}
	r.points[r.next] = p
	r.next = (r.next + 1) % ringSize
}

// after appends to s what is newer than since, oldest first.
func (r *ring) after(since time.Time, s *Series) {
	n, from := len(r.points), since.UnixNano()
	for i := range n {
		p := &r.points[(r.next+i)%n]
		if p.at <= from {
			continue
		}
		s.Times = append(s.Times, time.Unix(0, p.at))
		s.Utilization = append(s.Utilization, p.utilization)
		s.PowerW = append(s.PowerW, p.power)
		s.MemoryUsedBytes = append(s.MemoryUsedBytes, p.memory)
	}
}
