package proxy

import (
	"testing"
	"unsafe"
)

// TestConnectionFitsItsPiece: with the eight bytes that Go's allocator puts in
// front of large objects with pointers, what is larger takes a piece of 4.75 KiB
// instead of 4: 0.75 KiB more for every open stream (DESIGN section 9: 20 KB in
// all).
func TestConnectionFitsItsPiece(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(conn{}); n > 4<<10-8 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a connection takes %d bytes", n)
	}
}
