//go:build unix

package proxy

import (
	"sync"
	"syscall"
)

// descriptorReserve is kept for engines that are dialled, the admin port, the
// probes and the log.
const descriptorReserve = 64

// descriptorLimit is the process's limit, which Go's runtime raises to the
// hard one at start.
var descriptorLimit = sync.OnceValue(func() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 1 << 20
	}
	return int(min(uint64(r.Cur), 1<<30)) //nolint:unconvert // Cur is signed on some systems
})
