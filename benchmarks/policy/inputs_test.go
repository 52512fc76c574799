package policy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReportNamesItsTraces: the report tells each trace's sha256 and the requests and tokens taken from it, and the
// published one has a line for each.
func TestReportNamesItsTraces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := `{"timestamp":0,"input_length":1000,"output_length":7,"hash_ids":[1,2]}` + "\n"
	want := []string{"2 requests, 2000 prompt tokens, 14 answer tokens", "1 requests, 1000 prompt tokens, 7 answer tokens", "1 requests, 30 prompt tokens, 4 answer tokens", "2 requests, 500 prompt tokens, 6 answer tokens"}
	for i, text := range []string{
		line + line, line, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,30,4\n",
		`{"id":"x","tool_tokens":0,"system_tokens":0,"requests":[{"in":200,"out":5,"hash_ranges":[1,3]},{"in":300,"out":1,"hash_ranges":[1,4]}]}` + "\n",
	} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		if err := os.WriteFile(filepath.Join(dir, traceFiles[i]), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		want = append(want, traceFiles[i], fmt.Sprintf("sha256 %x", sha256.Sum256(b.Bytes())))
	}
	tr, err := openTraces(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	p := &paper{out: &text}
	if err := p.inputs(dir, tr); err != nil || p.err != nil {
		t.Fatal(err, p.err)
	}
	for _, w := range want {
		if !strings.Contains(text.String(), w) {
			t.Errorf("%q is not in the report:\n%s", w, text.String())
		}
	}
	if err := p.inputs(t.TempDir(), tr); err == nil || !strings.Contains(err.Error(), traceFiles[0]) {
		t.Errorf("no traces: %v", err)
	}
	published, err := os.ReadFile("../POLICY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(published), "\n## Traces\n")
	for _, name := range traceFiles {
		if _, rest, found := strings.Cut(after, name); !found || !strings.Contains(rest, "prompt tokens") || len(strings.Fields(rest)[1]) != 64 {
			t.Errorf("benchmarks/POLICY.md does not name the sum and the tokens of %s", name)
		}
	}
}

// TestPublishedTraces: the traces beside the repository are those that the published figures were made with.
func TestPublishedTraces(t *testing.T) {
	t.Parallel()
	needTraces(t)
	published, err := os.ReadFile("../POLICY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range traceFiles {
		sum, err := fileSum(filepath.Join(tracesDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(published), name) || !strings.Contains(string(published), sum) {
			t.Errorf("benchmarks/POLICY.md was not made with this %s (%s)", name, sum)
		}
	}
}
