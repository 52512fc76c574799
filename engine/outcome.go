package engine

// Outcome is what one attempt on an engine says about that engine's health.
// The list is closed.
type Outcome uint8

const (
	// OutcomeOK is an answer that came whole (any status below 400).
	OutcomeOK Outcome = iota
	// OutcomeNeutral says nothing about the engine: the client left, one of
	// Ramjet's own deadlines passed, or the engine answered 4xx.
	OutcomeNeutral
	// OutcomeRefused is a connection that could not be opened.
	OutcomeRefused
	// OutcomeReset is a connection that failed before a response head.
	OutcomeReset
	// OutcomeDied is a connection that ended inside an answer, or a stream
	// that carried an error event.
	OutcomeDied
	// OutcomeBadResponse is an answer that breaks HTTP framing.
	OutcomeBadResponse
	// OutcomeServerError is a 5xx answer.
	OutcomeServerError
	// OutcomeAborted is an answer that ended in an abort which the client did
	// not cause: a stopping vLLM (CONTRACT section 3).
	OutcomeAborted
)

// Failure reports whether the outcome counts towards passive ejection.
func (o Outcome) Failure() bool {
	switch o {
	case OutcomeRefused, OutcomeReset, OutcomeDied, OutcomeBadResponse, OutcomeServerError, OutcomeAborted:
		return true
	case OutcomeOK, OutcomeNeutral:
		return false
	}
	panic("BUG: unknown outcome")
}
