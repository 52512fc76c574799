package wire

import "testing"

// TestMovedHead: what is known of an unfinished head must not point into a
// buffer that another connection has by then.
func TestMovedHead(t *testing.T) {
	t.Parallel()
	var h RequestHead
	h.Reset()
	first := []byte("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n")
	if n, err := h.Parse(first); n != 0 || err != nil {
		t.Fatalf("%d, %v of an unfinished head", n, err)
	}
	if string(h.Method) != "HEAD" {
		t.Fatalf("the first line was not looked at early: method %q", h.Method)
	}
	whole := append(append([]byte{}, first...), "A: b\r\n\r\n"...)
	h.Moved()
	clear(first)
	if h.Method != nil || h.Target != nil {
		t.Errorf("method %q and target %q of a buffer that is gone", h.Method, h.Target)
	}
	if n, err := h.Parse(whole); n != len(whole) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if string(h.Method) != "HEAD" || string(h.Target) != "/v1/models" || string(h.Host) != "x" || string(h.Get("a")) != "b" {
		t.Errorf("%q %q %q", h.Method, h.Target, h.Host)
	}
}
