//go:build amd64 || arm64

package radix

import "unsafe"

// prefetch begins to bring the cache line of p and the one behind it into the processor's caches and waits for nothing.
// Go has no word for it, and reading them is no substitute: the next atomic instruction, at the latest the lock of the
// next event, would wait until they are there.
//
//go:noescape
func prefetch(p unsafe.Pointer)
