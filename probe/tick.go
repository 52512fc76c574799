package probe

import "time"

// checkSlack is which part of an interval a check may be late. Until then the
// next token of any stream takes it: the process is awake then, and a timer's
// wake-up of its own costs a quiet process more than the check.
const checkSlack = 10

// expect notes when an engine's next check is due.
func (m *Monitor) expect(w *watch, due time.Time) {
	at := int64(due.Sub(m.born))
	w.due.Store(at)
	m.expectAt(at)
}

// expectAt lets Tick look at the engines at a time, if not before.
func (m *Monitor) expectAt(at int64) {
	for {
		next := m.next.Load()
		if next != 0 && next <= at || m.next.CompareAndSwap(next, at) {
			return
		}
	}
}

// Tick tells that the process is awake at now, and starts the checks that are
// due. It costs one load where none is. Without it checks come by their timers.
// Safe for concurrent use.
func (m *Monitor) Tick(now time.Time) {
	at, next := int64(now.Sub(m.born)), m.next.Load()
	if next == 0 || at < next || !m.next.CompareAndSwap(next, 0) {
		return
	}
	for _, w := range m.table.Load().byPtr {
		switch due := w.due.Load(); {
		case due == 0:
		case due <= at && w.due.CompareAndSwap(due, 0):
			select {
			case w.wake <- struct{}{}:
			default:
			}
		case due > at:
			m.expectAt(due)
		}
	}
}
