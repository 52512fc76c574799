package telemetry

// State is an engine's state. The list is closed (CONTRACT section 2).
type State uint8

// The states of an engine. StateReady and StateSlowStart are usable,
// StateSuspect only if none of those is left, the others are not.
const (
	StateDown State = iota
	StateWarming
	StateSlowStart
	StateReady
	StateSuspect
	StateEjected
	StateDraining
	stateCount
)

var stateWords = [stateCount]string{"down", "warming", "slow-start", "ready", "suspect", "ejected", "draining"}

// String returns the state's word.
func (s State) String() string { return word(stateWords[:], int(s)) }

// States lists every state in order.
func States() []State { return list[State](int(stateCount)) }

// Trust says how far the residency index of one engine may be believed.
type Trust uint8

// The closed list of trust words.
const (
	TrustBlind Trust = iota
	TrustDegraded
	TrustExact
	trustCount
)

var trustWords = [trustCount]string{"blind", "degraded", "exact"}

// String returns the trust's word.
func (t Trust) String() string { return word(trustWords[:], int(t)) }

// Trusts lists every trust word in order.
func Trusts() []Trust { return list[Trust](int(trustCount)) }

// Reason is the term that made the winner of a decision beat the runner-up.
type Reason uint8

// The closed list of reasons. ReasonNone is "no decision was made".
const (
	ReasonNone Reason = iota
	ReasonExact
	ReasonApproximate
	ReasonSingleFlight
	ReasonLoad
	ReasonProfile
	ReasonSession
	ReasonStoredResponse
	ReasonRotation
	ReasonOnlyOne
	ReasonFailOpen
	reasonCount
)

var reasonWords = [reasonCount]string{"", "exact", "approximate", "single-flight", "load", "profile",
	"session", "stored-response", "rotation", "only-one", "fail-open"}

// String returns the reason's word, "" for ReasonNone.
func (r Reason) String() string { return word(reasonWords[:], int(r)) }

// Reasons lists every reason but ReasonNone.
func Reasons() []Reason { return list[Reason](int(reasonCount))[1:] }

// End says how a request ended: who ended it and in which phase.
type End uint8

// The closed list of ends. EndNone is "still running".
const (
	EndNone End = iota
	EndDone
	EndClientGoneWaiting
	EndClientGoneStreaming
	EndClientStalled
	EndRejected
	EndShed
	EndTimedOut
	EndEngineUnreachable
	EndEngineError
	EndEngineDied
	EndEngineStalled
	EndEngineBadResponse
	EndDrained
	EndInternal
	endCount
)

var endWords = [endCount]string{"", "done", "client-gone-waiting", "client-gone-streaming", "client-stalled",
	"rejected", "shed", "timed-out", "engine-unreachable", "engine-error", "engine-died", "engine-stalled",
	"engine-bad-response", "drained", "internal"}

// String returns the end's word, "" for EndNone.
func (e End) String() string { return word(endWords[:], int(e)) }

// Ends lists every end but EndNone.
func Ends() []End { return list[End](int(endCount))[1:] }

func word(words []string, i int) string {
	if i < 0 || i >= len(words) {
		return "unknown"
	}
	return words[i]
}

func list[T ~uint8](n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(i)
	}
	return out
}
