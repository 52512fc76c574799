//go:build !race

package kvevents

import (
	"bytes"
	"testing"

	"ramjet/radix"
)

func TestDecodeAllocatesNothing(t *testing.T) {
	payload := batchOf(1, storedMap([]uint64{1, 2, 3, 4}, uint64(9), span(1, 64), 16, "extra_keys", list(list("salt"), nil, nil, nil)), removedMap(1), clearedMap())
	var d Decoder
	n := 0
	each := func(e *Event) {
		n++
		e.Extras(func(int, []byte, uint64) {})
	}
	if _, err := d.Decode(payload, each); err != nil || n != 3 {
		t.Fatalf("%d events, %v", n, err)
	}
	if got := testing.AllocsPerRun(200, func() { _, _ = d.Decode(payload, each) }); got != 0 {
		t.Errorf("%v allocations a batch", got)
	}
}

func TestReadingMessagesAllocatesNothing(t *testing.T) {
	one := appendMessage(nil, []byte("kv"), make([]byte, 8), bytes.Repeat([]byte("x"), 5000))
	stream := bytes.NewReader(bytes.Repeat(one, 300))
	r := NewReader(stream, 0)
	var m Message
	if got := testing.AllocsPerRun(200, func() {
		if err := r.Next(&m); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations a message", got)
	}
}

// still is a residency that does nothing.
type still struct{}

func (still) Store(*radix.Store) bool  { return false }
func (still) Remove(int, []uint64) int { return 0 }
func (still) Clear()                   {}
func (still) Drop()                    {}
func (still) DropDoubtful() int        { return 0 }
func (still) Forgotten() uint64        { return 0 }
func (still) SetDrop(int)              {}
func (still) BlockTokens() int         { return 16 }

func TestLiveBatchAllocatesNothing(t *testing.T) {
	f := handFeed(still{}, Options{})
	payload := batchOf(float64(f.o.Now().Unix()), storedMap([]uint64{1, 2, 3, 4}, nil, span(1, 64), 16, "extra_keys", list(list("salt"), nil, nil, nil)), removedMap(1))
	m := messageOf("kv", 0, payload)
	seq := uint64(0)
	f.live.free = make([]*Message, maxFree) // full, so that the message is not kept and reset
	run := func() {
		m.buf[2+7], m.buf[2+6] = byte(seq), byte(seq>>8)
		seq++
		f.onMessage(m)
		f.evaluate()
	}
	run()
	if f.history.next != 1 || !f.history.complete {
		t.Fatalf("%+v", f.history)
	}
	if got := testing.AllocsPerRun(500, run); got != 0 {
		t.Errorf("%v allocations a batch", got)
	}
	if f.Stats().Batches != 502 {
		t.Errorf("%+v", f.Stats())
	}
}

func BenchmarkDecode(b *testing.B) {
	payload := batchOf(1, storedMap(make([]uint64, 64), uint64(9), span(1000, 1024), 16), removedMap(1), clearedMap())
	var d Decoder
	each := func(*Event) {}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = d.Decode(payload, each)
	}
}
