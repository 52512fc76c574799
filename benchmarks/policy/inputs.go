package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// traceFiles are what openTraces reads, in its order.
var traceFiles = []string{"mooncake_conversation.jsonl.gz", "mooncake_synthetic.jsonl.gz", "azure_llm_2023_conv.csv.gz", "claude_code_sessions.jsonl.gz"}

// inputs prints what was read: each file's sha256, and how many requests and tokens were taken from it, so that a run
// elsewhere can be told to be one of the same load.
func (p *paper) inputs(dir string, t *traces) error {
	var coding []*job
	for _, s := range t.sessions {
		coding = append(coding, s...)
	}
	p.printf("\n## Traces\n\n")
	for i, jobs := range [][]*job{t.conversation, t.synthetic, t.chat, coding} {
		sum, err := fileSum(filepath.Join(dir, traceFiles[i]))
		if err != nil {
			return err
		}
		in, out := 0, 0
		for _, j := range jobs {
			in, out = in+j.in, out+j.out
		}
		p.printf("    %-32s sha256 %s\n    %32s %d requests, %d prompt tokens, %d answer tokens\n", traceFiles[i], sum, "", len(jobs), in, out)
	}
	return nil
}

// fileSum is a file's sha256 in hex.
func fileSum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("cannot read a trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("cannot read trace %s: %w", filepath.Base(name), err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
