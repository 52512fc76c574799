package main

import (
	"ramjet/engine"
	"ramjet/proxy"
)

// failures counts each engine's own failures on their way to its judge.
type failures struct{ judge proxy.Outcomes }

// Outcome implements proxy.Outcomes.
func (f failures) Outcome(e *engine.Engine, o engine.Outcome, reason string) {
	if o.Failure() && e.Metrics != nil {
		e.Metrics.Failed()
	}
	f.judge.Outcome(e, o, reason)
}
