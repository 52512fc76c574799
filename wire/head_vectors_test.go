package wire

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

type headVector struct {
	line    int
	verdict string
	head    []byte
	why     string
}

func readHeadVectors(t *testing.T, file string) []headVector {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []headVector
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		verdict, rest, _ := strings.Cut(line, " ")
		quoted, err := strconv.QuotedPrefix(strings.TrimSpace(rest))
		if err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
		head, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
		why := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), quoted))
		out = append(out, headVector{n, verdict, []byte(head), why})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// verdict turns a result of Parse into the word of the vector files.
func verdict(t *testing.T, n, size int, err error) string {
	t.Helper()
	switch {
	case err != nil:
		var e *HeadError
		if !errors.As(err, &e) || n != 0 {
			t.Fatalf("n = %d with %#v", n, err)
		}
		if e.Message == "" || !knownCode(e) {
			t.Fatalf("a refusal without a proper code or message: %#v", e)
		}
		return strconv.Itoa(e.Status)
	case n == 0:
		return "more"
	case n == size:
		return "ok"
	}
	return "ok at " + strconv.Itoa(n)
}

// knownCode checks a refusal against the table of error codes.
func knownCode(e *HeadError) bool {
	for _, c := range codeTable {
		if c.word == e.Code {
			return c.status == e.Status
		}
	}
	return false
}

// grow feeds a head byte by byte, each time in another buffer, and returns the
// first result that is not "more".
func grow(head []byte, parse func([]byte) (int, error)) (n int, err error) {
	for i := range len(head) + 1 {
		if n, err = parse(bytes.Clone(head[:i])); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

func TestRequestHeadVectors(t *testing.T) {
	t.Parallel()
	vectors := readHeadVectors(t, "testdata/heads/requests.txt")
	if len(vectors) < 80 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		var h RequestHead
		n, err := h.Parse(v.head)
		if got := verdict(t, n, len(v.head), err); got != v.verdict {
			t.Errorf("line %d (%s): got %s (%v), want %s", v.line, v.why, got, err, v.verdict)
		}
		h.Reset()
		n, err = grow(v.head, h.Parse)
		if got := verdict(t, n, len(v.head), err); got != v.verdict {
			t.Errorf("line %d (%s), byte by byte: got %s (%v), want %s", v.line, v.why, got, err, v.verdict)
		}
	}
}

func TestResponseHeadVectors(t *testing.T) {
	t.Parallel()
	vectors := readHeadVectors(t, "testdata/heads/responses.txt")
	if len(vectors) < 30 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		var h ResponseHead
		n, err := h.Parse(v.head)
		if got := verdict(t, n, len(v.head), err); got != v.verdict {
			t.Errorf("line %d (%s): got %s (%v), want %s", v.line, v.why, got, err, v.verdict)
		}
		h.Reset()
		n, err = grow(v.head, h.Parse)
		if got := verdict(t, n, len(v.head), err); got != v.verdict {
			t.Errorf("line %d (%s), byte by byte: got %s (%v), want %s", v.line, v.why, got, err, v.verdict)
		}
	}
}
