package rig

import (
	"bytes"
	"testing"
)

func TestDechunk(t *testing.T) {
	raw := []byte(Chunk("hello ") + Chunk("wörld") + LastChunk)
	for cut := range raw {
		d, err := Dechunk(raw[:cut])
		if err != nil || d.done {
			t.Fatalf("cut at %d: done %v, error %v", cut, d.done, err)
		}
		if !bytes.HasPrefix([]byte("hello wörld"), d.Body) {
			t.Fatalf("cut at %d: body %q", cut, d.Body)
		}
	}
	d, err := Dechunk(append(raw, "next"...))
	if err != nil || !d.done || string(d.Body) != "hello wörld" || d.read != len(raw) {
		t.Errorf("whole: %+v, %v", d, err)
	}
	for _, bad := range []string{"5\nhello\r\n", "0x5\r\nhello\r\n", "+5\r\nhello\r\n", "\r\n", "5;a=b\r\nhello\r\n",
		"5\r\nhellox\r\n", "5\r\nhello\n", "0\r\nbad trailer\r\n\r\n", "fffffffff\r\n"} {
		if d, err := Dechunk([]byte(bad)); err == nil {
			t.Errorf("accepted %q: %+v", bad, d)
		}
	}
}
