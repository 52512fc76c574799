package benchmarks

import (
	"bytes"
	"fmt"
)

// verifier compares a decoded answer with what the engine must have sent, byte for byte except the two stamps of each
// event. It takes the bytes in pieces of any size and calls seen for every whole event of a token.
type verifier struct {
	ask     Ask
	seen    func(i int, sent, received int64)
	next    int // event awaited: 0..Tokens-1, then usage, then [DONE]
	pending []byte
	want    []byte
}

// reset prepares for the answer to ask and keeps the buffers.
func (v *verifier) reset(ask Ask) {
	v.ask, v.next, v.pending = ask, 0, v.pending[:0]
}

// feed takes the next piece of the body. An error means that the answer differs from the engine's.
func (v *verifier) feed(p []byte) error {
	v.pending = append(v.pending, p...)
	used := 0
	for {
		n, err := v.event(v.pending[used:])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		used += n
		v.next++
	}
	v.pending = v.pending[:copy(v.pending, v.pending[used:])]
	return nil
}

// event checks the one event that is due at the front of b and returns its length, or 0 if b does not hold it whole.
func (v *verifier) event(b []byte) (int, error) {
	switch n := v.ask.Tokens; {
	case v.next < n:
		size := v.ask.eventLen(v.next)
		if len(b) < size {
			return 0, nil
		}
		sent, received, err := stamps(b)
		if err != nil {
			return 0, fmt.Errorf("event %d of seed %d: %w in %.80q", v.next, v.ask.Seed, err, b)
		}
		v.want = v.ask.appendEvent(v.want[:0], v.next, sent, received)
		if err := v.same(b[:size]); err != nil {
			return 0, err
		}
		if v.seen != nil {
			v.seen(v.next, sent, received)
		}
		return size, nil
	case v.next == n:
		v.want = v.ask.appendUsage(v.want[:0])
	case v.next == n+1:
		v.want = append(v.want[:0], doneEvent...)
	default:
		if len(b) > 0 {
			return 0, fmt.Errorf("seed %d: %d bytes after [DONE]: %.80q", v.ask.Seed, len(b), b)
		}
		return 0, nil
	}
	if len(b) < len(v.want) {
		return 0, nil
	}
	return len(v.want), v.same(b[:len(v.want)])
}

func (v *verifier) same(got []byte) error {
	if bytes.Equal(got, v.want) {
		return nil
	}
	at := 0
	for at < len(got) && at < len(v.want) && got[at] == v.want[at] {
		at++
	}
	return fmt.Errorf("event %d of seed %d differs from byte %d on: got %.60q, want %.60q", v.next, v.ask.Seed, at, got[at:], v.want[at:])
}

// finish reports an answer that ended too early.
func (v *verifier) finish() error {
	if v.next == v.ask.Tokens+2 && len(v.pending) == 0 {
		return nil
	}
	return fmt.Errorf("answer to seed %d ended at event %d of %d with %d bytes of the next", v.ask.Seed, v.next, v.ask.Tokens+2, len(v.pending))
}
