package fuzz

// cuts deals data out in pieces whose sizes come from plan (one byte each,
// used in turn; 0 stands for 256). Without a plan it is one piece. Every piece
// is a copy, and is overwritten when the next one is taken, as a relay's
// buffer is.
func cuts(data, plan []byte, yield func(piece []byte) bool) {
	if len(plan) == 0 {
		plan = nil
	}
	for i := 0; len(data) > 0; i++ {
		n := len(data)
		if plan != nil {
			n = int(plan[i%len(plan)])
			if n == 0 {
				n = 256
			}
			n = min(n, len(data))
		}
		piece := append([]byte(nil), data[:n]...)
		data = data[n:]
		if !yield(piece) {
			return
		}
		for j := range piece {
			piece[j] = '!'
		}
	}
}

// latin makes every byte a character of its own, so that regular expressions
// speak of bytes.
func latin(b []byte) string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}
