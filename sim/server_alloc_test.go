//go:build !race

package sim

import "testing"

// TestStreamingAllocatesNothing: the simulator is also the other end of
// benchmarks, where its garbage would be charged to the proxy's machine.
func TestStreamingAllocatesNothing(t *testing.T) {
	a := &answerRequest{id: "chatcmpl-x", model: "m", choices: 1, prompts: [][]uint32{{1}}}
	g := &generation{a: a, seqs: make([]*Sequence, 1)}
	st := newChatStream(g, &responder{discard: true}, nil)
	tokens := Tokenizer().Encode(" word")
	st.piece(piece{tokens: tokens})
	if n := testing.AllocsPerRun(1000, func() { st.piece(piece{tokens: tokens}) }); n != 0 {
		t.Errorf("%v allocations a token", n)
	}
}
