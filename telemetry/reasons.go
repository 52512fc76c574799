package telemetry

// Retry says why an attempt was given up and the request sent again.
type Retry uint8

// The closed list of reasons for a retry. RetryStale is a pooled connection
// that the engine had closed meanwhile; it is tried again afresh on the same
// engine and counts as the same attempt (CONTRACT section 10.4).
const (
	RetryRefused Retry = iota
	RetryReset
	RetryDied
	RetryStatus503
	RetryAbort
	RetryStale
	retryCount
)

var retryWords = [retryCount]string{"refused", "reset", "died", "status-503", "abort", "stale-connection"}

// String returns the reason's word.
func (r Retry) String() string { return word(retryWords[:], int(r)) }

// Retries lists every reason for a retry in order.
func Retries() []Retry { return list[Retry](int(retryCount)) }

// Ejection says what filled the count that ejected an engine: the kind of the
// last own failure in the row, or an operator. A refused connection puts an
// engine down and an abort makes it suspect; neither ejects it.
type Ejection uint8

// The closed list of reasons for an ejection.
const (
	EjectReset Ejection = iota
	EjectDied
	EjectBadResponse
	EjectServerError
	EjectOperator
	ejectionCount
)

var ejectionWords = [ejectionCount]string{"reset", "died", "bad-response", "server-error", "operator"}

// String returns the reason's word.
func (r Ejection) String() string { return word(ejectionWords[:], int(r)) }

// Ejections lists every reason for an ejection in order.
func Ejections() []Ejection { return list[Ejection](int(ejectionCount)) }
