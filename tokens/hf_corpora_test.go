//go:build !race

package tokens

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// corpus is a list of texts to compare.
type corpus struct {
	name  string
	texts []string
	// garbage: nobody writes such text. One in 5,000 may differ, as the two sides have Unicode tables of different years.
	garbage bool
}

// corpora are what ids are compared on.
func corpora(t *testing.T, tok *Tokenizer) []corpus {
	r := rand.New(rand.NewPCG(1, 2))
	var special []string
	for _, id := range tok.SpecialIDs() {
		special = append(special, string(tok.BPE().TokenBytes(id)))
	}
	list := []corpus{
		{name: "by hand", texts: handTexts},
		{name: "special tokens in text", texts: mixed(r, 3000, append(special, "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<｜User｜>", "<", "|>", " ", "\n", "user", "Hello, world", "é", "\u0301"))},
		{name: "Chinese", texts: chinese(r, 400)},
		{name: "emoji", texts: emoji(r, 1000)},
		{name: "long runs", texts: longRuns()},
		{name: "every character", texts: everyCharacter("?a? ?"), garbage: true},
		{name: "random text", texts: randomTexts(r, 20000), garbage: true},
		{name: "code", texts: code(t)},
	}
	prompts := tracePrompts(t)
	if tok.Rule() != "qwen2" {
		// One vocabulary sees every prompt; to the others those tell nothing that are the begin of another.
		prompts = slices.DeleteFunc(prompts, beginOfNext(prompts))
	}
	return append(list, corpus{name: "prompts of agents", texts: prompts})
}

// beginOfNext says of each of sorted texts, asked for in their order, whether the next one continues it.
func beginOfNext(sorted []string) func(string) bool {
	rest := slices.Clone(sorted)
	return func(text string) bool {
		rest = rest[1:]
		return len(rest) > 0 && strings.HasPrefix(rest[0], text)
	}
}

// pieceCorpora are what pieces are compared on: the library is slower at these. The rules of real vocabularies have
// seen every character in TestHuggingFaceIDs.
func pieceCorpora(t *testing.T, rule string) []corpus {
	r := rand.New(rand.NewPCG(3, 4))
	list := []corpus{
		{name: "by hand", texts: handTexts},
		{name: "Chinese", texts: chinese(r, 50)},
		{name: "emoji", texts: emoji(r, 200)},
		{name: "random text", texts: randomTexts(r, 20000), garbage: true},
		{name: "code", texts: code(t)[:20]},
	}
	if rule == "gpt2" || rule == "qwen3.5" || rule == "tekken" {
		list = append(list, corpus{name: "every character", texts: everyCharacter("?a?B ?1?!?\n?"), garbage: true})
	}
	return list
}

// everyCharacter puts each character up to U+31FFF where the form says, in place of every "?".
func everyCharacter(form string) []string {
	var texts []string
	for c := rune(1); c <= 0x31fff; c++ {
		if utf8.ValidRune(c) {
			texts = append(texts, strings.ReplaceAll(form, "?", string(c)))
		}
	}
	return texts
}

// randomTexts are of several kinds: common parts, ASCII, white space, and blocks of Unicode.
func randomTexts(r *rand.Rand, n int) []string {
	parts := strings.Fields("the request handler 's 'LL . , !? - _ ( ) { } \" ' 0 7 42 ٣ ½ A z é e\u0301 ſ 中 文 \u1112\u1161 \u0915\u094d 😀 \u200d \u0301 <|im_start|> <|im_end|> <think> </think> < | > http :// www JSON nil func return Ǆ ʰ // 1234 ・ 々")
	parts = append(parts, " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", " the", " A", " 中")
	blocks := [][2]rune{{0x80, 0x250}, {0x300, 0x590}, {0x620, 0x700}, {0x900, 0xe80}, {0x1100, 0x1200}, {0x1e00, 0x2000}, {0x2000, 0x2c00}, {0x3000, 0x3400}, {0x4e00, 0xa000}, {0xac00, 0xd7a0}, {0xf900, 0xfb00}, {0xff00, 0xffef}, {0x1f300, 0x1fa00}}
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		switch r.IntN(4) {
		case 0:
			b.WriteString(mixed(r, 1, parts)[0])
		case 1:
			for range 1 + r.IntN(120) {
				b.WriteByte(byte(0x20 + r.IntN(0x5f)))
			}
		case 2:
			for range 1 + r.IntN(40) {
				b.WriteByte(" \n\t\rx.'1/"[r.IntN(9)])
			}
		default:
			block := blocks[r.IntN(len(blocks))]
			for range 1 + r.IntN(60) {
				if r.IntN(10) < 3 {
					b.WriteString(parts[r.IntN(len(parts))])
				} else {
					b.WriteRune(block[0] + r.Int32N(block[1]-block[0]))
				}
			}
		}
		texts[i] = b.String()
	}
	return texts
}

// chinese makes long and short sentences of frequent characters.
func chinese(r *rand.Rand, n int) []string {
	common := []rune("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运")
	marks := []string{"，", "。", "、", "：", "；", "！", "？", "“", "”", "（", "）", "《", "》", "\n", " ", "12", "AI", "vLLM "}
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		for range 1 + r.IntN(40) {
			for range 1 + r.IntN(20) {
				b.WriteRune(common[r.IntN(len(common))])
			}
			b.WriteString(marks[r.IntN(len(marks))])
		}
		texts[i] = b.String()
	}
	return texts
}

// emoji joins emoji, their joiners and selectors, and words.
func emoji(r *rand.Rand, n int) []string {
	var parts []string
	for c := rune(0x1f300); c < 0x1fa00; c += 7 {
		parts = append(parts, string(c))
	}
	for range 40 {
		parts = append(parts, "\u200d", "\ufe0f", "🏽", "🇩🇪", "☀️", " ", "ok", "!", "\n", "❤️‍🔥", "1️⃣")
	}
	return mixed(r, n, parts)
}

func longRuns() []string {
	var texts []string
	for _, s := range []string{"-", " ", "a", "中", "\n", "=-", "é", "ab ", "0", "'", "\t \n", "あア", "\u0301x", "<", "\u0301", "\u0323\u0301", "\uff9e"} {
		texts = append(texts, strings.Repeat(s, 5000/len(s)))
	}
	return texts
}

// code is two megabytes of Go, Python and others: this repository's and the standard library's.
func code(t *testing.T) []string {
	t.Helper()
	var texts []string
	root := goRoot(t)
	for _, pattern := range []string{"../*/*.go", "../scripts/*.py", "../scripts/*.sh", "../*/testdata/*.py", "../*.md", "../web/*/*", filepath.Join(root, "src/net/http/*.go"), filepath.Join(root, "src/unicode/utf8/*.go"), filepath.Join(root, "src/strconv/*_test.go")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil || !utf8.Valid(data) {
				continue // a folder, or something binary
			}
			texts = append(texts, string(data))
		}
	}
	if len(texts) < 50 {
		t.Fatalf("only %d files of code found", len(texts))
	}
	rand.New(rand.NewPCG(13, 14)).Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	size := 0
	for i, text := range texts {
		if size += len(text); size > 2<<20 {
			return texts[:i] // the library takes a second for a megabyte
		}
	}
	return texts
}

// goRoot is where Go's own sources are.
func goRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("cannot find Go's sources: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// tracePrompts are the prompts of recorded agents, each once; nil where the traces are absent.
func tracePrompts(t *testing.T) []string {
	t.Helper()
	file, err := os.Open("../../shared/traces/lmcache_agent_text.jsonl.gz")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("the traces in ../shared are absent; prompts of agents are left out")
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for lines := bufio.NewReader(unzipped); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var row struct{ Input string }
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, row.Input)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
