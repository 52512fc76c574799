package tokens

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"ramjet/wire"
)

func chunksOf(t testing.TB, body string) []uint64 {
	t.Helper()
	var peek wire.Peeked
	if err := peek.Peek([]byte(body)); err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	var p Prepared
	return p.AppendChunks(nil, 7, []byte(body), &peek)
}

func common(a, b []uint64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestChunksOfAConversation: what was said stays what it was, whatever stands beside it.
func TestChunksOfAConversation(t *testing.T) {
	t.Parallel()
	message := func(role string, n int) string {
		return fmt.Sprintf(`{"role":"%s","content":"%d %s"}`, role, n, strings.Repeat("and so on ", 150))
	}
	var list []string
	for i := range 12 {
		list = append(list, message("user", 2*i), message("assistant", 2*i+1))
	}
	chat := func(n int, more string) string {
		return `{"messages":[` + strings.Join(list[:n], ",") + `]` + more + `}`
	}
	base := chunksOf(t, chat(20, ""))
	if len(base) < 14 || len(base) > 20 {
		t.Fatalf("%d chunks", len(base))
	}
	for _, c := range []struct {
		what, body  string
		least, most int // leading chunks in common
	}{
		{"the same", chat(20, ""), len(base), len(base)},
		{"sampling", chat(20, `,"temperature":0.5,"max_tokens":9,"seed":1,"user":"u"`), len(base), len(base)},
		{"other order of members", `{"max_tokens":3,"model":"x",` + chat(20, "")[1:], len(base), len(base)},
		{"grown", chat(24, ""), len(base), len(base)},
		{"shorter", chat(10, ""), len(base)/2 - 1, len(base)/2 + 1},
		{"edited in the middle", strings.Replace(chat(20, ""), `"10 and`, `"ten and`, 1), len(base)/2 - 2, len(base)/2 + 1},
		{"edited at the beginning", strings.Replace(chat(20, ""), `"0 and`, `"zero and`, 1), 0, 0},
		{"with tools", chat(20, `,"tools":[{"type":"function","function":{"name":"f"}}]`), 0, 0},
		{"another member", strings.Replace(chat(20, ""), "messages", "input", 1), 0, 0},
	} {
		if got := common(base, chunksOf(t, c.body)); got < c.least || got > c.most {
			t.Errorf("%s: %d of %d chunks in common, wanted %d to %d", c.what, got, len(base), c.least, c.most)
		}
	}
}

func TestChunksOfOtherForms(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("once more ", 1000)
	same := func(what, a, b string, want bool) {
		t.Helper()
		x, y := chunksOf(t, a), chunksOf(t, b)
		if len(x) == 0 || slices.Equal(x, y) != want {
			t.Errorf("%s: %d and %d chunks, equal %v", what, len(x), len(y), !want)
		}
	}
	same("a prompt in a list", `{"prompt":"`+long+`"}`, `{"prompt":["`+long+`","other"]}`, true)
	same("a second prompt", `{"prompt":["`+long+`","a"]}`, `{"prompt":["`+long+`","b","c"]}`, true)
	same("a Responses text", `{"input":"`+long+`"}`, `{"input":"`+long+`","store":false}`, true)
	same("another prompt", `{"prompt":"`+long+`"}`, `{"prompt":"x`+long+`"}`, false)
	ids := strings.Repeat("12,345,", 800) + "6"
	same("ids", `{"prompt":[`+ids+`]}`, `{"prompt":[[`+ids+`],[1]]}`, true)
	// Claude Code's billing line changes with each request; vLLM drops it.
	system := func(line, rest string) string {
		return `{"system":[{"type":"text","text":"x-anthropic-billing-header: cc=` + line + `"},{"type":"text","text":"` + rest + `"}],"messages":[{"role":"user","content":"x"}]}`
	}
	same("billing", system("1; cch=aaaa", long), system("22; cch=bbbbbb", long), true)
	same("billing and another text", system("1", long), system("1", "y"+long), false)
	same("billing with more lines", system(`1\nnext`, long), system(`22\nnext`, long), true)
	if got := chunksOf(t, `{"messages":[{"role":"user","content":"short"}]}`); len(got) != 0 {
		t.Errorf("a short prompt has %d chunks", len(got))
	}
	// A medium is as long as its hash, and counts.
	image := func(fill, tail string) string {
		return `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat(fill, 1<<20) + `"}},{"type":"text","text":"` + tail + `"}]}]}`
	}
	same("the same image", image("A", long), image("A", long), true)
	same("another image", image("A", long), image("B", long), false)
	if got := chunksOf(t, image("A", long)); len(got) > 6 {
		t.Errorf("an image has %d chunks", len(got))
	}
}

// TestChunkerIsItsTwin: cut anywhere, the chunks are those of the whole.
func TestChunkerIsItsTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		text := make([]byte, r.IntN(4*ChunkBytes))
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		var want []uint64
		parent := uint64(9)
		for rest := text; len(rest) >= ChunkBytes; rest = rest[ChunkBytes:] {
			parent = xxh3.HashSeed(bytes.Clone(rest[:ChunkBytes]), parent)
			want = append(want, parent)
		}
		c := chunker{parent: 9}
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(1+r.IntN(3*ChunkBytes)))
			c.feed(rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(c.keys, want) {
			t.Fatalf("%d bytes: %d keys, wanted %d", len(text), len(c.keys), len(want))
		}
	}
}
