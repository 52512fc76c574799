package proxy

import "sync"

// buffer is a pooled byte slice of one of a few sizes.
type buffer struct {
	b     []byte
	class int // index into classes, -1 when it is too large to be pooled
}

// classes are the sizes of pooled buffers. 4 KiB holds nearly every request
// head, 16 KiB one read of a stream, 64 KiB the longest event that is held
// back; the rest are for request bodies.
var classes = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

const (
	sizeHead  = 4 << 10
	sizeRelay = 16 << 10
	sizeHold  = 64 << 10
)

// pools has one pool of *buffer for each class. They are process-wide because
// memory is.
var pools [len(classes)]sync.Pool

// getBuffer returns a buffer of at least n bytes. putBuffer must follow.
func getBuffer(n int) *buffer {
	for i, size := range classes {
		if n > size {
			continue
		}
		if b, ok := pools[i].Get().(*buffer); ok {
			return b
		}
		return &buffer{b: make([]byte, size), class: i}
	}
	return &buffer{b: make([]byte, n), class: -1}
}

// putBuffer gives a buffer back. A nil buffer is ignored.
func putBuffer(b *buffer) {
	if b != nil && b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// capacity returns what getBuffer(n) will hold, for accounting.
func capacity(n int64) int64 {
	for _, size := range classes {
		if n <= int64(size) {
			return int64(size)
		}
	}
	return n
}
