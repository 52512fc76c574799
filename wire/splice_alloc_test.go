//go:build !race

package wire

import "testing"

func TestEditsAllocateNothing(t *testing.T) {
	body := []byte(`{"model":"a","messages":[{"role":"user","content":"x"}],"stream":true}`)
	var p Peeked
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	ids := make([]uint32, 10_000)
	for i := range ids {
		ids[i] = uint32(i * 13)
	}
	dst := make([]byte, 0, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		out, done := AppendEdits(dst, body, &p, Edits{Model: "b", Usage: true, Tokens: TokenSplice{TokenKVTransfer, ids}})
		if !done.Tokens || len(out) < 40_000 {
			t.Fatal("nothing was spliced")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
