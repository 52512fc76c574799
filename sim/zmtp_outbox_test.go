package sim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// The outbox against its obvious twin, a slice: what goes in comes out in order, up to the high-water mark.
func TestOutboxAgainstSlice(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, hwm := range []int{0, 1, 10, 3000} {
		o := newOutbox(hwm)
		var twin []byte
		var dropped uint64
		waiting := []int{} // lengths
		for i := range 20_000 {
			if r.IntN(100) < 52 {
				text := strconv.Itoa(i)
				took := o.put(zmtpMessage{[]byte(text), []byte(",")})
				if want := hwm == 0 || len(waiting) < hwm; took != want {
					t.Fatalf("hwm %d: put is %v with %d waiting", hwm, took, len(waiting))
				} else if !took {
					dropped++
					continue
				}
				twin, waiting = append(twin, text+","...), append(waiting, len(text)+1)
				continue
			}
			if r.IntN(30) > 0 {
				continue
			}
			got := bytes.Join(o.take(nil), nil)
			n := min(len(waiting), outboxBatchMessages)
			size := 0
			for _, l := range waiting[:n] {
				size += l
			}
			if !bytes.Equal(got, twin[:size]) {
				t.Fatalf("hwm %d: took %q, want %q", hwm, got, twin[:size])
			}
			twin, waiting = twin[size:], waiting[n:]
		}
		if o.drops() != dropped || hwm == 0 && dropped > 0 || hwm == 1 && dropped == 0 {
			t.Errorf("hwm %d: %d dropped, want %d", hwm, o.drops(), dropped)
		}
	}
}

// Answers to heartbeats overtake what is queued, and stop where nobody reads them.
func TestOutboxUrgent(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	o.put(zmtpMessage{[]byte("a"), []byte("b")})
	o.putUrgent([]byte("!"))
	if got := bytes.Join(o.take(nil), nil); string(got) != "!ab" {
		t.Errorf("took %q", got)
	}
	for range 10_000 {
		o.putUrgent(make([]byte, 100))
	}
	if got := len(bytes.Join(o.take(nil), nil)); got > zmtpFrameLimit+100 {
		t.Errorf("%d bytes of answers wait", got)
	}
}

// A writer ends with its peer and with its stop channel, and closes the connection for the reader.
func TestOutboxWriterEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"peer", "done"} {
		a, b := net.Pipe()
		o, done, ended := newOutbox(0), make(chan struct{}), make(chan struct{})
		go func() {
			o.writeTo(a, done)
			close(ended)
		}()
		o.put(zmtpMessage{[]byte("x"), []byte("y")})
		var two [2]byte
		if _, err := io.ReadFull(b, two[:]); err != nil || string(two[:]) != "xy" {
			t.Fatalf("read %q, %v", two, err)
		}
		if how == "peer" {
			b.Close()
			o.put(zmtpMessage{[]byte("x"), []byte("y")})
		} else {
			close(done)
		}
		select {
		case <-ended:
		case <-time.After(waitLimit):
			t.Errorf("%s: the writer goes on", how)
		}
		if how == "peer" { // the writer has closed its side, so that the reader ends as well
			if _, err := a.Read(two[:]); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection stays open: %v", err)
			}
		}
		a.Close()
		b.Close()
	}
}
