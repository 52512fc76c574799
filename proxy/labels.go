package proxy

import "sync/atomic"

// labels interns the few names that become labels and log fields, so that a
// request refers to them without a copy.
type labels struct {
	known atomic.Pointer[map[string][]byte]
}

func newLabels() *labels {
	l := &labels{}
	l.known.Store(&map[string][]byte{})
	return l
}

// bytes returns name as bytes that nobody may change.
func (l *labels) bytes(name string) []byte {
	for {
		old := l.known.Load()
		if b, ok := (*old)[name]; ok {
			return b
		}
		next := make(map[string][]byte, len(*old)+1)
		for k, v := range *old {
			next[k] = v
		}
		next[name] = []byte(name)
		if l.known.CompareAndSwap(old, &next) {
			return next[name]
		}
	}
}
