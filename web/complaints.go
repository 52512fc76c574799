package web

import (
	"strings"

	"ramjet/telemetry"
)

// complaints is where net/http writes what it has to say: connections that it
// cannot take, and handlers that panicked, whose stack begins on a second line.
// Clients can cause some of it as often as they like.
type complaints struct{ log *telemetry.Log }

// Write implements io.Writer; it is given one complaint.
func (c complaints) Write(p []byte) (int, error) {
	what, stack, panicked := strings.Cut(strings.TrimSpace(string(p)), "\n")
	if panicked {
		c.log.Throttled("admin panic", telemetry.LevelError, "a request to the admin port panicked", "panic", what, "stack", stack)
	} else {
		c.log.Throttled("admin", telemetry.LevelWarn, "the admin port's server complains", "what", what)
	}
	return len(p), nil
}
