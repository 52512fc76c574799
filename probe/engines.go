package probe

import (
	"ramjet/engine"
)

// table is the engines that are watched. It never changes.
type table struct {
	watches []*watch // those that are configured, in order
	byName  map[string]*watch
	byPtr   map[*engine.Engine]*watch // of these, and of those that left but still finish requests
}

// newTable returns a table of engines, whose names are unique; watchOf gives
// the watch of each.
func newTable(engines []*engine.Engine, watchOf func(e *engine.Engine) *watch) *table {
	t := &table{byName: make(map[string]*watch), byPtr: make(map[*engine.Engine]*watch)}
	for _, e := range engines {
		if t.byName[e.Name] != nil {
			panic("BUG: two engines are named " + e.Name)
		}
		w := watchOf(e)
		t.watches = append(t.watches, w)
		t.byName[e.Name], t.byPtr[e] = w, w
	}
	return t
}

// SetEngines replaces the list of engines. One that is new to it was not there
// before Ramjet, so that it warms up first. One that left is draining: it is
// watched on, so that its last requests do not wait for a dead engine, until
// Forget. An engine that left must not come back.
func (m *Monitor) SetEngines(engines []*engine.Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.table.Load()
	var fresh []*watch
	next := newTable(engines, func(e *engine.Engine) *watch {
		w := old.byPtr[e]
		if w == nil {
			w = newWatch(e, m.o.Metrics.Engine(e.Name))
			w.h.late = true
			fresh = append(fresh, w)
		}
		return w
	})
	for e, w := range old.byPtr {
		next.byPtr[e] = w
	}
	m.table.Store(next)
	for _, w := range old.watches {
		if next.byName[w.e.Name] != w {
			m.applyLocked(w, event{kind: removed})
		}
	}
	if m.begin != nil {
		for _, w := range fresh {
			m.begin(w)
		}
	}
}

// Forget ends the watch over an engine that left, and returns when its last
// check has.
func (m *Monitor) Forget(e *engine.Engine) {
	m.mu.Lock()
	old := m.table.Load()
	w := old.byPtr[e]
	if w == nil {
		m.mu.Unlock()
		return
	}
	if old.byName[e.Name] == w {
		panic("BUG: engine " + e.Name + " is forgotten while it is configured")
	}
	next := &table{watches: old.watches, byName: old.byName, byPtr: make(map[*engine.Engine]*watch, len(old.byPtr))}
	for other, ow := range old.byPtr {
		if other != e {
			next.byPtr[other] = ow
		}
	}
	m.table.Store(next)
	stop, done := w.stop, w.done
	m.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
