package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// vector is one entry of testdata/requests or testdata/responses; their READMEs
// describe the form.
type vector struct {
	name  string
	want  []string        // alternatives
	words map[string]bool // further words
	rule  string
	bytes string
}

// vectorBody is what {body} stands for.
const vectorBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// readVectors reads every file of a folder, in order.
func readVectors(t testing.TB, folder string) []vector {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", folder, err)
	}
	var all []vector
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("cannot read vectors: %v", err)
		}
		vs, err := parseVectors(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		stem := strings.TrimSuffix(filepath.Base(file), ".txt")
		for _, v := range vs {
			v.name = stem + "/" + v.name
			all = append(all, v)
		}
	}
	return all
}

func parseVectors(text string) ([]vector, error) {
	var vs []vector
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
		vs[len(vs)-1].bytes += b
	}
	return vs, nil
}

func vectorTitle(title string) (vector, error) {
	parts := strings.SplitN(title, " | ", 3)
	if len(parts) != 3 {
		return vector{}, fmt.Errorf("want NAME | WANT | RULE, got %q", title)
	}
	words := strings.Fields(parts[1])
	if len(words) == 0 {
		return vector{}, fmt.Errorf("%s wants nothing", parts[0])
	}
	v := vector{name: parts[0], want: strings.Split(words[0], "/"), words: map[string]bool{}, rule: parts[2]}
	for _, w := range words[1:] {
		v.words[w] = true
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
		plain, err := unescapePlain(line[last:at[0]])
		if err != nil {
			return "", err
		}
		b.WriteString(plain + expand(line[at[0]+1:at[1]-1]))
		last = at[1]
	}
	plain, err := unescapePlain(line[last:])
	return b.String() + plain, err
}

func expand(word string) string {
	switch word {
	case "body":
		return vectorBody
	case "len":
		return strconv.Itoa(len(vectorBody))
	case "hex":
		return strconv.FormatInt(int64(len(vectorBody)), 16)
	case "stream":
		return chunked(chatEvents(2))
	case "events":
		return chunk(roleEvent()) + chunk(deltaEvent("one "))
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

func unescapePlain(s string) (string, error) {
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

func TestVectorFiles(t *testing.T) {
	requests, responses := readVectors(t, "requests"), readVectors(t, "responses")
	if len(requests) < 60 || len(responses) < 20 {
		t.Errorf("%d request and %d response vectors, want 60 and 20 at least", len(requests), len(responses))
	}
	checkVectors(t, requests)
	checkVectors(t, responses)
	if got, err := unescape(`a\r\n\x41{len}{B*3}\\{}`); err != nil || got != "a\r\nA"+strconv.Itoa(len(vectorBody))+`BBB\{}` {
		t.Errorf("unescape: %q, %v", got, err)
	}
}

func checkVectors(t *testing.T, vs []vector) {
	t.Helper()
	seen := map[string]bool{}
	for _, v := range vs {
		if seen[v.name] {
			t.Errorf("%s is there twice", v.name)
		}
		seen[v.name] = true
		for _, w := range v.want {
			if _, err := strconv.Atoi(w); err != nil && !strings.Contains(" one none broken ok ", " "+w+" ") {
				t.Errorf("%s wants %q", v.name, w)
			}
		}
		for w := range v.words {
			if !strings.Contains(" close fin rst plain ", " "+w+" ") {
				t.Errorf("%s has the unknown word %q", v.name, w)
			}
		}
	}
}
