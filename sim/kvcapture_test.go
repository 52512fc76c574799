package sim

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// captureLine is a line of a recording of vLLM 0.32 under the script of record_events.py.
type captureLine struct {
	Kind, Step, Path string
	Prompt           []uint32        `json:"prompt_token_ids"`
	Output           []uint32        `json:"output_token_ids"`
	Cached           int             `json:"cached_tokens"`
	Salt             string          `json:"cache_salt"`
	Frames           json.RawMessage // live: three hex strings
}

// readCapture returns the lines of a recording, without those that ask for a replay.
func readCapture(t *testing.T, name string) (lines []captureLine) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "shared", "vllm", "captures", name))
	if err != nil {
		t.Skipf("no recordings of vLLM beside the repository: %v", err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		var l captureLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind != "meta" && l.Kind != "replay" {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 || in.Err() != nil {
		t.Fatal("empty recording", in.Err())
	}
	return lines
}

// shapes turns batches into lines that can be compared between engines whose hashes differ: hashes become the numbers
// of their first appearance, token ids that are not of a prompt become their count.
type shapes struct {
	names map[string]int
	lines []string
}

func (s *shapes) batch(payload []byte) {
	v, rest, err := mpDecode(payload)
	envelope, ok := v.([]any)
	if err != nil || !ok || len(rest) > 0 || len(envelope) != 3 {
		panic("no batch")
	}
	s.lines = append(s.lines, fmt.Sprintf("batch at %T of rank %v", envelope[0], envelope[2]))
	for _, e := range envelope[1].([]any) {
		var b strings.Builder
		for _, key := range e.(*mpMap).keys {
			value := e.(*mpMap).values[key]
			fmt.Fprintf(&b, "%s=", key)
			switch key {
			case "block_hashes", "parent_block_hash":
				b.WriteString(s.hashes(value))
			case "token_ids":
				fmt.Fprint(&b, len(value.([]any)))
			default:
				fmt.Fprintf(&b, "%v", value)
			}
			b.WriteByte(' ')
		}
		s.lines = append(s.lines, b.String())
	}
}

// hashes names hashes; their form (integer or bytes) is part of the name.
func (s *shapes) hashes(v any) string {
	if list, ok := v.([]any); ok {
		var out []string
		for _, h := range list {
			out = append(out, s.hashes(h))
		}
		return fmt.Sprint(out)
	}
	if v == nil {
		return "null"
	}
	key := fmt.Sprintf("%T %v", v, v)
	if _, ok := s.names[key]; !ok {
		s.names[key] = len(s.names)
	}
	return fmt.Sprintf("%T#%d", v, s.names[key])
}

// sinkFunc is a sink that encodes what it gets.
type sinkFunc func(payload []byte)

func (f sinkFunc) publish(events []kvEvent) { f(kvForm{}.appendBatch(nil, 1, events, 0)) }
func (f sinkFunc) reset()                   {}

// TestEventsAgainstRecordings runs the requests of the recordings through the core: batch for batch and event for
// event, the fields, their order, the groups, the parents, the identity of hashes, the evictions and their order must
// be those of real vLLM, and so must each answer's cached tokens. vLLM keeps one block of its number for itself.
func TestEventsAgainstRecordings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		o     CoreOptions
		bytes bool
	}{
		{"dense-basic.jsonl", CoreOptions{BlockTokens: 32}, false},
		{"dense-bytes.jsonl", CoreOptions{BlockTokens: 32}, true},
		{"dense-evict.jsonl", CoreOptions{BlockTokens: 32, KVBlocks: 40 - 1}, false},
		{"hybrid.jsonl", CoreOptions{BlockTokens: 160, KVBlocks: 36 - 1, Hybrid: "mmma"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lines := readCapture(t, c.name)
			want, got := &shapes{names: map[string]int{}}, &shapes{names: map[string]int{}}
			c.o.MaxBatchTokens = 2048
			c.o.Observer = newKVWriter(sinkFunc(got.batch), max(len(c.o.Hybrid), 1), c.bytes)
			core := NewCore(c.o)
			for i := 0; i < len(lines); {
				end := i + 1
				for end < len(lines) && lines[end].Step == lines[i].Step {
					end++
				}
				playStep(t, core, lines[i:end])
				for _, l := range lines[i:end] {
					if l.Kind == "live" {
						want.batch(livePayload(t, l))
					}
				}
				if diff := firstDifference(got.lines, want.lines); diff != "" {
					t.Fatalf("after step %q: %s", lines[i].Step, diff)
				}
				i = end
			}
			if len(got.lines) < 20 {
				t.Errorf("only %d lines compared", len(got.lines))
			}
		})
	}
}

// playStep sends the requests of one step of the script.
func playStep(t *testing.T, c *Core, lines []captureLine) {
	t.Helper()
	var all []*Sequence
	for _, l := range lines {
		switch l.Kind {
		case "call":
			if !c.ResetCache() {
				t.Fatal("the cache was not reset")
			}
		case "request":
			s := c.Submit(Job{Prompt: l.Prompt, MaxTokens: len(l.Output), Salt: l.Salt, Session: map[bool]string{true: "session-1"}[l.Step == "session"]})
			all = append(all, s)
			switch {
			case l.Step != "together":
				finish(t, c)
			case len(all) == 1: // the others came while the first was in its first step
				c.schedule()
				c.complete()
			}
		}
	}
	finish(t, c)
	var got, want []int
	for _, s := range all {
		got = append(got, s.Cached())
	}
	for _, l := range lines {
		if l.Kind == "request" {
			want = append(want, l.Cached)
		}
	}
	if lines[0].Step == "together" { // recorded in the order of their ends
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		t.Errorf("step %q: %d cached, on vLLM %d", lines[0].Step, got, want)
	}
}

func livePayload(t *testing.T, l captureLine) []byte {
	t.Helper()
	var frames []string
	if err := json.Unmarshal(l.Frames, &frames); err != nil || len(frames) != 3 {
		t.Fatalf("frames: %v", err)
	}
	payload, err := hex.DecodeString(frames[2])
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return fmt.Sprintf("line %d is\n\t%s\non vLLM\n\t%s", i, g, w)
		}
	}
	return ""
}
