//go:build !race

package tokens

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// benchTokenizer is Qwen3's where scripts/vocab.sh has fetched it, else the simulator's, whose small vocabulary makes
// everything slower.
func benchTokenizer(b *testing.B, name string) *Tokenizer {
	b.Helper()
	path := filepath.Join("../.tools/vocab", name, "tokenizer.json")
	if _, err := os.Stat(path); err != nil {
		b.Logf("vocabulary %s is missing (scripts/vocab.sh fetches it): the simulator's is measured", name)
		path = "../sim/model"
	}
	t, err := LoadTokenizer(path)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// benchTexts are about a megabyte of each kind.
func benchTexts(b *testing.B) map[string]string {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(goRoot(b), "src/net/http/*.go"))
	if err != nil || len(files) == 0 {
		b.Fatalf("no Go sources found: %v", err)
	}
	var source, english strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		source.Write(data)
		for line := range strings.Lines(string(data)) {
			if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "// "); ok {
				english.WriteString(comment + " ")
			}
		}
	}
	var chat strings.Builder
	for i, text := 0, english.String(); len(text) > 400; i++ {
		fmt.Fprintf(&chat, "<|im_start|>%s\n%s<|im_end|>\n", []string{"user", "assistant"}[i%2], text[:400])
		text = text[400:]
	}
	return map[string]string{
		"code": source.String(), "english": english.String(), "chat": chat.String(),
		"chinese": strings.Join(chinese(rand.New(rand.NewPCG(1, 2)), 1000), ""),
	}
}

// BenchmarkEncode is cold: nothing of the text is known. A megabyte holds some 250,000 tokens.
func BenchmarkEncode(b *testing.B) {
	texts := benchTexts(b)
	for _, vocabulary := range vocabularies {
		t := benchTokenizer(b, vocabulary)
		for _, kind := range []string{"english", "code", "chat", "chinese"} {
			text := texts[kind]
			b.Run(vocabulary+"/"+kind, func(b *testing.B) {
				dst := make([]uint32, 0, len(text))
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if dst, err = t.AppendEncode(dst[:0], text, Limits{MaxBytes: 1 << 30, MaxTime: 1 << 40}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/token")
			})
		}
	}
}

// BenchmarkEncodeRun is text without a split point.
func BenchmarkEncodeRun(b *testing.B) {
	t := benchTokenizer(b, "qwen3")
	for _, s := range []string{"-", " ", "a", "中", "ab"} {
		text := strings.Repeat(s, maxPiece/len(s))
		b.Run(s, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var dst []uint32
			for b.Loop() {
				dst, _ = t.AppendEncode(dst[:0], text, Limits{})
			}
		})
	}
}

// BenchmarkLoad is the whole way from the file, and says what stays in memory.
func BenchmarkLoad(b *testing.B) {
	for _, vocabulary := range vocabularies {
		b.Run(vocabulary, func(b *testing.B) {
			benchTokenizer(b, vocabulary)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var t *Tokenizer
			for b.Loop() {
				t = benchTokenizer(b, vocabulary)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-kept")
			runtime.KeepAlive(t)
		})
	}
}
