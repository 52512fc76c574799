package engine

import (
	"io"
	"testing"
	"time"
)

// TestHungUpWakesAReaderThatWasToldBefore plays the one order that hangs a
// relay for good unless HungUp wakes it: the poller told of data and FIN as
// one, the reader took the data and waits for more, and only then does the
// watch deliver. It is rare by itself, so the watch is held back here.
func TestHungUpWakesAReaderThatWasToldBefore(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	p := newPeer(t)
	e := p.engine(t, func(o *Options) { o.Watch = w })
	c := dial(t, e)
	defer func() { _ = c.Close() }()
	other := p.conn(t, 0)

	w.mu.Lock() // nothing is delivered from here on
	_, _ = other.Write([]byte("hello"))
	_ = other.Close()
	time.Sleep(20 * time.Millisecond) // the poller tells, and nobody waits
	took, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 100)
		_ = c.Socket.Raw().Read(func(fd uintptr) bool {
			n, again, err := RawRead(fd, buf)
			if n == len("hello") {
				close(took)
			}
			// As the relay does: a short read is the last one if the end is
			// told apart.
			return n == 0 && !again || err != nil
		})
	}()
	<-took
	if !c.Watched() {
		t.Error("the connection is not watched although nothing was told")
	}
	select {
	case <-ended:
		t.Error("the end was seen before it was told")
	case <-time.After(20 * time.Millisecond): // the reader waits
	}
	w.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("nobody woke the reader")
	}
	if c.Watched() {
		t.Error("the connection counts as watched behind its end")
	}
}

// TestHungUpWakesAnAskerThatWasToldBefore plays the order that would hang a
// question for good: the poller told of the FIN while nobody waited, the asker
// begins its wait anew, and only then does the watch deliver.
func TestHungUpWakesAnAskerThatWasToldBefore(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	p := newPeer(t)
	c := dial(t, p.engine(t, func(o *Options) { o.Watch = w }))
	defer func() { _ = c.Close() }()
	other := p.conn(t, 0)

	w.mu.Lock() // nothing is delivered from here on
	_ = other.CloseWrite()
	time.Sleep(20 * time.Millisecond) // the poller tells, and nobody waits
	asked, ended := make(chan struct{}), make(chan error)
	go func() {
		_, _, err := c.Ask([]byte("ask?"), nil, func() { close(asked) }, func() []byte { return make([]byte, 10) }, func() {})
		ended <- err
	}()
	<-asked
	select {
	case <-ended:
		t.Error("the end was seen before it was told")
	case <-time.After(20 * time.Millisecond): // the asker waits
	}
	w.mu.Unlock()
	select {
	case err := <-ended:
		if err != io.EOF {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("nobody woke the asker")
	}
}
