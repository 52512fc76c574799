//go:build !race

package sim

import "testing"

// A batch costs the engine step one allocation, the message itself, and the encoder none.
func TestPublishAllocations(t *testing.T) {
	e := []kvEvent{full()}
	e[0].tokenIDs = make([]uint32, 2048)
	var buf []byte
	f := kvForm{}
	if n := testing.AllocsPerRun(100, func() { buf = f.appendBatch(buf[:0], 1, e, 0) }); n != 0 {
		t.Errorf("the encoder allocates %v times", n)
	}
	p, err := newTunedPublisher(kvPublisherOptions{endpoint: "tcp://127.0.0.1:0", ring: 16}, kvTuning{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.shut(true)
	for range 100 {
		p.publish(e)
		p.pump()
	}
	if n := testing.AllocsPerRun(100, func() {
		p.publish(e)
		p.pump() // nobody runs it beside
	}); n > 1 {
		t.Errorf("a batch allocates %v times", n)
	}
}
