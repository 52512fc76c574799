package probe

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// maxTransitions is how many changes of state are remembered.
const maxTransitions = 100

// Transition is one change of an engine's state.
type Transition struct {
	Time   time.Time
	Engine string
	From   telemetry.State
	To     telemetry.State
	Reason string
}

// Transitions returns the last changes of state, oldest first.
func (m *Monitor) Transitions() []Transition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ring)
}

// Overall health words of GET /health.
const (
	HealthOK        = "ok"        // every engine is usable
	HealthDegraded  = "degraded"  // some are, or requests are only tried because none is
	HealthUnhealthy = "unhealthy" // no engine can take a request
)

// HealthView is one reading of all engines.
type HealthView struct {
	Status  string
	Engines []EngineHealth // as configured
}

// EngineHealth is one engine inside a HealthView.
type EngineHealth struct {
	Name   string
	State  telemetry.State
	Reason string
	Since  time.Time
}

// Health reads all engines at once.
func (m *Monitor) Health() HealthView {
	v := HealthView{Status: HealthUnhealthy}
	good, open := 0, 0
	watches := m.table.Load().watches
	for _, w := range watches {
		s := w.e.Status()
		v.Engines = append(v.Engines, EngineHealth{Name: w.e.Name, State: s.State, Reason: s.Reason, Since: s.Since})
		if usable(s.State) {
			good++
		}
		// A suspect engine is picked without asking for its port.
		if s.State == telemetry.StateSuspect || m.Accepts(w.e) {
			open++
		}
	}
	switch {
	case good > 0 && good == len(watches):
		v.Status = HealthOK
	case good > 0 || open > 0:
		v.Status = HealthDegraded
	}
	return v
}

// Accepts reports whether an engine may be tried when none is usable: it is
// not draining and its port took the last check's connection.
func (m *Monitor) Accepts(e *engine.Engine) bool {
	w := m.table.Load().byPtr[e]
	return w != nil && e.State() != telemetry.StateDraining && e.Accepts()
}

// AnyEngine reports whether a request could be placed, with a line for each
// engine that is not usable if it could not.
func (m *Monitor) AnyEngine() (ok bool, reasons []string) {
	v := m.Health()
	if v.Status != HealthUnhealthy {
		return true, nil
	}
	for _, e := range v.Engines {
		reasons = append(reasons, fmt.Sprintf("engine %s is %s: %s", e.Name, e.State, e.Reason))
	}
	return false, reasons
}

// AppendHealthJSON appends the body of GET /health (CONTRACT section 5).
func (m *Monitor) AppendHealthJSON(b []byte) []byte {
	v := m.Health()
	b = append(b, `{"status":`...)
	b = appendString(b, v.Status)
	b = append(b, `,"engines":{`...)
	for i, e := range v.Engines {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, e.Name)
		b = append(b, `:{"state":`...)
		b = appendString(b, e.State.String())
		b = append(b, `,"reason":`...)
		b = appendString(b, e.Reason)
		b = append(b, '}')
	}
	return append(b, "}}"...)
}

func appendString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a string cannot be written as JSON: " + err.Error())
	}
	return append(b, q...)
}
