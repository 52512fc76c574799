package benchmarks

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC in nanoseconds, the one clock that all processes of a host share, through Go's own vDSO
// reading: unix.ClockGettime is a real system call, which would wake the scheduler's monitor thread at every token.
// Safe for concurrent use.
type clock struct {
	base  int64
	start time.Time
}

// newClock ties Go's monotonic reading to CLOCK_MONOTONIC. It fails only where the kernel lacks that clock.
func newClock() (clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{}, fmt.Errorf("cannot read the monotonic clock: %w", err)
	}
	return clock{base: ts.Nano(), start: time.Now()}, nil
}

// now returns the monotonic time of this host in nanoseconds.
func (c clock) now() int64 { return c.base + int64(time.Since(c.start)) }
