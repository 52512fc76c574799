package route

import (
	"ramjet/telemetry"
)

// candidates returns the engines that may serve q: the usable ones, else the
// suspect ones. Only where there is none of either, tried or not, it fails
// open to all that are not draining and whose ports accept connections: a
// request that moves must not walk through a warm-up or an ejection. Where no
// port is known to accept all of these are left, since checks may be late.
func (r *Router) candidates(set *Set, q *Request) (bits uint64, open bool, err error) {
	if bits := makers(set, q); bits != 0 {
		if bits = r.withRoom(set, q, bits); bits == 0 {
			return 0, false, ErrFull
		}
		return bits, false, nil
	}
	var usable, suspect, rest, accepting uint64
	served, working := false, false
	for i := range set.Members {
		e := set.Members[i].Engine
		if len(q.Model) > 0 && e.Models() != nil && !e.Models().Serves(q.Model) {
			continue
		}
		served = true
		state := e.State()
		working = working || state == telemetry.StateReady || state == telemetry.StateSlowStart || state == telemetry.StateSuspect
		if q.Tried&(1<<set.Members[i].Slot) != 0 {
			continue
		}
		switch state {
		case telemetry.StateReady, telemetry.StateSlowStart:
			usable |= 1 << i
		case telemetry.StateSuspect:
			suspect |= 1 << i
		case telemetry.StateDraining:
		case telemetry.StateDown, telemetry.StateWarming, telemetry.StateEjected:
			rest |= 1 << i
			if e.Accepts() {
				accepting |= 1 << i
			}
		}
	}
	switch {
	case usable != 0:
		bits = r.ramped(set, usable)
	case suspect != 0:
		bits = suspect
	case rest != 0 && !working:
		bits, open = rest, true
		if accepting != 0 {
			bits = accepting
		}
	case !served:
		return 0, false, ErrModel
	default:
		return 0, false, ErrNoEngine
	}
	if bits = r.withRoom(set, q, bits); bits == 0 {
		return 0, false, ErrFull
	}
	return bits, open, nil
}

// ramped leaves out engines in slow start that hold their share already: their
// ramp's part of what the ready ones hold on average, and one request at least
// (CONTRACT section 2).
func (r *Router) ramped(set *Set, usable uint64) uint64 {
	var held, ready int64
	slow := uint64(0)
	for i := range set.Members {
		if usable&(1<<i) == 0 {
			continue
		}
		if set.Members[i].Engine.State() == telemetry.StateSlowStart {
			slow |= 1 << i
			continue
		}
		ready++
		held += set.Members[i].Account.LoadLocked().Tokens
	}
	if slow == 0 || ready == 0 {
		return usable
	}
	for i := range set.Members {
		if slow&(1<<i) == 0 {
			continue
		}
		load := set.Members[i].Account.LoadLocked()
		share := set.Members[i].Engine.Ramp() * float64(held) / float64(ready)
		if load.Requests() > 0 && float64(load.Tokens) >= share {
			usable &^= 1 << i
		}
	}
	return usable
}

// makers returns the engine that made the response which q continues, while it
// may still answer: no other engine has it.
func makers(set *Set, q *Request) uint64 {
	if q.Stored == "" {
		return 0
	}
	for i := range set.Members {
		e := set.Members[i].Engine
		if e.Name != q.Stored || q.Tried&(1<<set.Members[i].Slot) != 0 {
			continue
		}
		switch e.State() {
		case telemetry.StateReady, telemetry.StateSlowStart, telemetry.StateSuspect, telemetry.StateWarming:
			return 1 << i
		case telemetry.StateDown, telemetry.StateEjected, telemetry.StateDraining:
			return 0
		}
	}
	return 0
}

func (r *Router) withRoom(set *Set, q *Request, bits uint64) uint64 {
	if q.Light {
		return bits
	}
	for i := range set.Members {
		m := &set.Members[i]
		limit := m.Engine.Settings().InFlight
		if bits&(1<<i) != 0 && limit > 0 && m.Account.LoadLocked().Requests() >= limit {
			bits &^= 1 << i
		}
	}
	return bits
}
