package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// chatBody builds a chat request in the order that the SDKs send (messages
// first) of about size bytes. prose has an escaped newline every 80 bytes,
// code an escaped quote about every 9 bytes, the worst realistic case, and
// letters are a script outside ASCII.
func chatBody(kind string, size int) []byte {
	unit := map[string]string{
		"prose":   strings.Repeat("plain words ", 6) + "and so.\\n",
		"code":    `x = \"ab\";  f(y)\n`,
		"letters": "Слова за словами, и так до конца строки.\\n",
	}[kind]
	var b bytes.Buffer
	b.WriteString(`{"messages":[{"role":"system","content":"Be brief."}`)
	const turn = 8 << 10
	for b.Len() < size-200 {
		b.WriteString(`,{"role":"user","content":"`)
		for end := b.Len() + min(turn, size-b.Len()-200); b.Len() < end; {
			b.WriteString(unit)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"model":"org/model-7b","max_tokens":256,"temperature":0.7,"stream":true,"stream_options":{"include_usage":true},"user":"u-1"}`)
	return b.Bytes()
}

func BenchmarkPeek(b *testing.B) {
	for _, kind := range []string{"prose", "code", "letters"} {
		for _, size := range []int{1 << 10, 32 << 10, 1 << 20, 2 << 20} {
			body := chatBody(kind, size)
			b.Run(fmt.Sprintf("%s/%dKB", kind, size>>10), func(b *testing.B) {
				var p Peeked
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := p.Peek(body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPeekTokenIDs(b *testing.B) {
	body := []byte(`{"model":"m","prompt":[` + strings.Repeat("15234,", 100_000) + `1]}`)
	var p Peeked
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Peek(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendSplices(b *testing.B) {
	body := chatBody("prose", 32<<10)
	var p Peeked
	if err := p.Peek(body); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 2*len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = AppendSplices(dst[:0], body, &p, "another/model", true)
	}
}
