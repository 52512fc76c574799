package policy

// agenda is what happens later, in the order of its time; what falls on one time happens in the order of its entry.
type agenda struct {
	heap  []entry
	count uint64
}

type entry struct {
	at    float64 // seconds
	order uint64
	do    func()
}

func (a *agenda) add(at float64, do func()) {
	a.count++
	a.heap = append(a.heap, entry{at, a.count, do})
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !a.before(i, up) {
			break
		}
		a.heap[i], a.heap[up] = a.heap[up], a.heap[i]
		i = up
	}
}

func (a *agenda) before(i, j int) bool {
	x, y := &a.heap[i], &a.heap[j]
	return x.at < y.at || x.at == y.at && x.order < y.order
}

// next takes out the first entry; false if there is none.
func (a *agenda) next() (entry, bool) {
	if len(a.heap) == 0 {
		return entry{}, false
	}
	first := a.heap[0]
	last := len(a.heap) - 1
	a.heap[0] = a.heap[last]
	a.heap[last] = entry{}
	a.heap = a.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2; child++ {
			if child < last && a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		a.heap[i], a.heap[least] = a.heap[least], a.heap[i]
		i = least
	}
}
