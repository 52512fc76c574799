//go:build !amd64 && !arm64

package radix

import "unsafe"

// prefetch does nothing where nobody wrote it: it is a matter of speed alone.
func prefetch(unsafe.Pointer) {}
