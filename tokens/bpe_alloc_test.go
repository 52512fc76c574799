//go:build !race

package tokens

import (
	"strings"
	"testing"
)

// TestAppendEncodeAllocatesNothing once dst is large enough; the race detector allocates on its own.
func TestAppendEncodeAllocatesNothing(t *testing.T) {
	b := testBPE(t)
	text := "<|im_start|>user\n" + strings.Repeat("The quick brown fox isn't lazy, n'est-ce pas, garçon? ", 40) + strings.Repeat("=", 300) + "<|im_end|>\n"
	dst := b.Encode(text)
	if n := testing.AllocsPerRun(100, func() { dst = b.AppendEncode(dst[:0], text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
