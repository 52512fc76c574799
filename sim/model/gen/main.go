//go:build ignore

// Gen trains the simulator's tokenizer on text that every Go installation carries (the language's specification, and
// the comments and code of some of the standard library) and writes sim/model/tokenizer.json, and the words that the
// simulator speaks with to sim/model/words.txt:
//
//	go run ./sim/model/gen/main.go
//
// The result depends on nothing but the Go release. It is checked in because other programs hold token ids of it.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ramjet/tokens"
)

const (
	vocabSize = 4096
	longest   = 16 // bytes of a learnt token: words, not phrases of punctuation
	splitter  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// The added tokens take the highest ids, as in the Qwen family; only the first three are special there too.
var added = []string{
	"<|endoftext|>", "<|im_start|>", "<|im_end|>",
	"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
}

const special = 3

func main() {
	log.SetFlags(0)
	counts := map[string]int{}
	plain, err := tokens.LoadBPE(file(nil))
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range corpus() {
		for piece := range plain.Pieces(text) {
			counts[piece]++
		}
	}
	merges := train(counts, vocabSize-256-len(added))
	data := file(merges)
	trained, err := tokens.LoadBPE(data)
	if err != nil {
		log.Fatal(err)
	}
	write("sim/model/tokenizer.json", data)
	spoken := words(trained, counts)
	write("sim/model/words.txt", []byte(strings.Join(spoken, "\n")+"\n"))
	fmt.Println(len(counts), "pieces,", len(merges), "merges,", len(data), "bytes,", len(spoken), "words")
}

func write(name string, data []byte) {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		log.Fatal(err)
	}
}

// words returns the words, each with its blank, that are one token and stand in the corpus for themselves at least as
// often as they only begin a longer word. So "descri" is none.
func words(bpe *tokens.BPE, counts map[string]int) []string {
	begins := map[uint32]int{}
	for piece, n := range counts {
		begins[bpe.Encode(piece)[0]] += n
	}
	form := regexp.MustCompile(`^ [A-Za-z][a-z]+$`)
	var out []string
	for id := range uint32(bpe.Size()) {
		if text := string(bpe.TokenBytes(id)); form.MatchString(text) && 2*counts[text] >= begins[id] {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// corpus returns the training text: prose more than code, since prose is what the simulator speaks.
func corpus() []string {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		log.Fatal(err)
	}
	root := strings.TrimSpace(string(goroot))
	var out []string
	tags := regexp.MustCompile(`(?s)<[^>]*>`)
	for _, name := range []string{"doc/go_spec.html", "doc/go_mem.html"} {
		out = append(out, html.UnescapeString(tags.ReplaceAllString(read(root, name), "")))
	}
	for _, dir := range []string{
		"bufio", "bytes", "context", "encoding/json", "errors", "fmt", "io", "log", "math", "net", "net/http", "net/url",
		"os", "path", "reflect", "regexp", "runtime", "sort", "strconv", "strings", "sync", "text/template", "time", "unicode",
	} {
		files, err := filepath.Glob(filepath.Join(root, "src", dir, "*.go"))
		if err != nil {
			log.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			out = append(out, split(read("", path))...)
		}
	}
	return out
}

// split gives a file's comments three times, unwrapped to running text, and an eighth of its code.
func split(src string) []string {
	var prose, code strings.Builder
	for i, line := range strings.SplitAfter(src, "\n") {
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), "// ")
		switch {
		case isComment && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\t"):
			prose.WriteString(text + " ")
		case i/20%8 == 0:
			code.WriteString(line)
		}
	}
	return []string{prose.String(), prose.String(), prose.String(), code.String()}
}

func read(root, name string) string {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		log.Fatal(err)
	}
	return string(data)
}

type pair [2]string

type word struct {
	symbols []string
	count   int
}

// train is the usual training of byte pairs: merge the most frequent pair, the alphabetically first among equals.
func train(counts map[string]int, merges int) []pair {
	var words []word
	for piece, n := range counts {
		words = append(words, word{strings.Split(toByteLevel(piece), ""), n})
	}
	freq, where := map[pair]int{}, map[pair]map[int]bool{}
	note := func(w, sign int) {
		s := words[w].symbols
		for i := 0; i+1 < len(s); i++ {
			p := pair{s[i], s[i+1]}
			freq[p] += sign * words[w].count
			if sign > 0 {
				if where[p] == nil {
					where[p] = map[int]bool{}
				}
				where[p][w] = true
			}
		}
	}
	for w := range words {
		note(w, 1)
	}
	var out []pair
	for len(out) < merges {
		best, n := pair{}, 0
		for p, f := range freq {
			if len(p[0])+len(p[1]) > longest || f < n || f == 0 {
				continue
			}
			if f > n || cmp.Or(strings.Compare(p[0], best[0]), strings.Compare(p[1], best[1])) < 0 {
				best, n = p, f
			}
		}
		if n < 2 {
			break
		}
		out = append(out, best)
		for w := range where[best] {
			note(w, -1)
			words[w].symbols = mergeIn(words[w].symbols, best)
			note(w, 1)
		}
		delete(freq, best)
		delete(where, best)
	}
	return out
}

func mergeIn(s []string, p pair) []string {
	out := s[:0]
	for i := 0; i < len(s); i++ {
		if i+1 < len(s) && s[i] == p[0] && s[i+1] == p[1] {
			out = append(out, p[0]+p[1])
			i++
			continue
		}
		out = append(out, s[i])
	}
	return out
}

// alphabet spells each byte as GPT-2 does.
var alphabet = func() (a [256]string) {
	next := rune(256)
	for c := range 256 {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			a[c] = string(rune(c))
			continue
		}
		a[c] = string(next)
		next++
	}
	return a
}()

func toByteLevel(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteString(alphabet[s[i]])
	}
	return out.String()
}

// file writes tokenizer.json in the layout of Hugging Face's library, a token or merge a line.
func file(merges []pair) []byte {
	vocab := slices.Clone(alphabet[:])
	slices.Sort(vocab)
	for _, m := range merges {
		vocab = append(vocab, m[0]+m[1])
	}
	var out bytes.Buffer
	out.WriteString("{\n \"version\": \"1.0\",\n \"truncation\": null,\n \"padding\": null,\n \"added_tokens\": [\n")
	for i, t := range added {
		fmt.Fprintf(&out, "  {\"id\": %d, \"content\": %s, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %t}%s\n",
			len(vocab)+i, quote(t), i < special, comma(i, len(added)))
	}
	fmt.Fprintf(&out, ` ],
 "normalizer": {"type": "NFC"},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
  {"type": "Split", "pattern": {"Regex": %s}, "behavior": "Isolated", "invert": false},
  {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
 ]},
 "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
 "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": {
`, quote(splitter))
	for id, t := range vocab {
		fmt.Fprintf(&out, "  %s: %d%s\n", quote(t), id, comma(id, len(vocab)))
	}
	out.WriteString(" }, \"merges\": [\n")
	for i, m := range merges {
		fmt.Fprintf(&out, "  [%s, %s]%s\n", quote(m[0]), quote(m[1]), comma(i, len(merges)))
	}
	out.WriteString(" ]}\n}\n")
	return out.Bytes()
}

func comma(i, n int) string {
	if i+1 < n {
		return ","
	}
	return ""
}

func quote(s string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		log.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}
