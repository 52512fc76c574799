package rig

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Vector is one entry of testdata/requests or testdata/responses; their READMEs
// describe the form.
type Vector struct {
	Name  string
	Want  []string        // alternatives
	Words map[string]bool // further words
	Rule  string
	Bytes string
}

// testdata holds the vectors; they travel in the test binary, as tests of
// several folders read them.
//
//go:embed testdata
var testdata embed.FS

// VectorBody is what {body} stands for.
const VectorBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// ReadVectors reads every file of a folder, in order.
func ReadVectors(t testing.TB, folder string) []Vector {
	t.Helper()
	files, err := fs.Glob(testdata, "testdata/"+folder+"/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", folder, err)
	}
	var all []Vector
	for _, file := range files {
		text, err := fs.ReadFile(testdata, file)
		if err != nil {
			t.Fatalf("cannot read vectors: %v", err)
		}
		vs, err := parseVectors(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		stem := strings.TrimSuffix(filepath.Base(file), ".txt")
		for _, v := range vs {
			v.Name = stem + "/" + v.Name
			all = append(all, v)
		}
	}
	return all
}

func parseVectors(text string) ([]Vector, error) {
	var vs []Vector
	for i, line := range strings.Split(text, "\n") {
		if title, ok := strings.CutPrefix(line, "== "); ok {
			v, err := vectorTitle(title)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			vs = append(vs, v)
			continue
		}
		if len(vs) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		b, err := unescape(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		vs[len(vs)-1].Bytes += b
	}
	return vs, nil
}

func vectorTitle(title string) (Vector, error) {
	parts := strings.SplitN(title, " | ", 3)
	if len(parts) != 3 {
		return Vector{}, fmt.Errorf("want NAME | WANT | RULE, got %q", title)
	}
	words := strings.Fields(parts[1])
	if len(words) == 0 {
		return Vector{}, fmt.Errorf("%s wants nothing", parts[0])
	}
	v := Vector{Name: parts[0], Want: strings.Split(words[0], "/"), Words: map[string]bool{}, Rule: parts[2]}
	for _, w := range words[1:] {
		v.Words[w] = true
	}
	return v, nil
}

var placeholder = regexp.MustCompile(`\{(body|len|hex|stream|events|[A-Za-z0-9]\*\d+|headers\*\d+|interim\*\d+)\}`)

// unescape turns a line of a vector into bytes: placeholders first, so that
// their text may hold backslashes untouched by the second step.
func unescape(line string) (string, error) {
	var b strings.Builder
	last := 0
	for _, at := range placeholder.FindAllStringIndex(line, -1) {
		plain, err := UnescapePlain(line[last:at[0]])
		if err != nil {
			return "", err
		}
		b.WriteString(plain + expand(line[at[0]+1:at[1]-1]))
		last = at[1]
	}
	plain, err := UnescapePlain(line[last:])
	return b.String() + plain, err
}

func expand(word string) string {
	switch word {
	case "body":
		return VectorBody
	case "len":
		return strconv.Itoa(len(VectorBody))
	case "hex":
		return strconv.FormatInt(int64(len(VectorBody)), 16)
	case "stream":
		return Chunked(ChatEvents(2))
	case "events":
		return Chunk(RoleEvent()) + Chunk(DeltaEvent("one "))
	}
	what, times, _ := strings.Cut(word, "*")
	n, err := strconv.Atoi(times)
	if err != nil {
		panic("BUG: placeholder " + word)
	}
	switch what {
	case "headers":
		what = "a: b\r\n"
	case "interim":
		what = "HTTP/1.1 102 Processing\r\n\r\n"
	}
	return strings.Repeat(what, n)
}

// UnescapePlain turns the escapes of a vector's line into bytes.
func UnescapePlain(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", fmt.Errorf("a backslash at the end")
		}
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				return "", fmt.Errorf("a short \\x")
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", err
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			return "", fmt.Errorf("unknown escape \\%c", s[i])
		}
	}
	return b.String(), nil
}
