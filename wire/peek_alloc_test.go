//go:build !race

package wire

import "testing"

func TestPeekAllocatesNothing(t *testing.T) {
	bodies := map[string][]byte{
		"prose":     chatBody("prose", 32<<10),
		"code":      chatBody("code", 32<<10),
		"letters":   chatBody("letters", 32<<10),
		"escapes":   []byte(`{"m\u006fdel":"a\nb","metadata":{"user_id":"\u0061"},"stream":"tru\u0065","max_tokens":16}`),
		"odd flags": []byte(`{"stream":1,"stream_options":{"include_usage":"yes"},"echo":0}`),
		"no object": []byte(`[1,2,3]`),
		"UTF-16":    []byte("{\x00}\x00"),
	}
	var p Peeked
	for name, body := range bodies {
		read := func() {
			if err := p.Peek(body); err != nil {
				t.Fatal(err)
			}
		}
		read() // the scratch space comes once
		if n := testing.AllocsPerRun(100, read); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestSplicesAndErrorsAllocateNothing(t *testing.T) {
	body := chatBody("prose", 4<<10)
	var p Peeked
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 0, 2*len(body))
	e := &Error{Code: CodeEngineDied, Param: "x"}
	for name, f := range map[string]func(){
		"splices": func() { dst, _ = AppendSplices(dst[:0], body, &p, "another", true) },
		"body":    func() { dst = AppendErrorBody(dst[:0], DialectAnthropic, e, "id") },
		"event":   func() { dst = AppendErrorEvent(dst[:0], DialectResponses, e, 7) },
		"quoted":  func() { dst = AppendQuoted(dst[:0], "a<b>\u2028\xff") },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
