package kvevents

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/telemetry"
)

// captured is a line of a recorded stream; see shared/vllm/captures/README.md.
type captured struct {
	Kind   string          `json:"kind"`
	Step   string          `json:"step"`
	Prompt []uint32        `json:"prompt_token_ids"`
	Cached int             `json:"cached_tokens"`
	Salt   string          `json:"cache_salt"`
	Start  uint64          `json:"start"`
	Frames json.RawMessage `json:"frames"`
}

const captureFolder = "../shared/vllm/captures"

// captureFiles returns the recorded streams, and skips the test where there are none.
func captureFiles(t testing.TB) []string {
	t.Helper()
	for _, dir := range []string{captureFolder, "../" + captureFolder} {
		if files, _ := filepath.Glob(dir + "/*.jsonl"); len(files) > 0 {
			return files
		}
	}
	t.Skip("no recorded streams of vLLM in ../shared/vllm/captures")
	return nil
}

func readCapture(t testing.TB, file string) (lines []captured) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var l captured
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if s.Err() != nil || len(lines) < 10 {
		t.Fatalf("%s has %d lines: %v", file, len(lines), s.Err())
	}
	return lines
}

func unhex(t testing.TB, frames []string) *Message {
	t.Helper()
	m := new(Message)
	for _, f := range frames {
		b, err := hex.DecodeString(f)
		if err != nil {
			t.Fatal(err)
		}
		m.buf = append(m.buf, b...)
		m.ends = append(m.ends, len(m.buf))
	}
	m.cut()
	return m
}

func (l *captured) live(t testing.TB) *Message {
	t.Helper()
	var frames []string
	if err := json.Unmarshal(l.Frames, &frames); err != nil {
		t.Fatal(err)
	}
	return unhex(t, frames)
}

func (l *captured) replay(t testing.TB) (all []*Message) {
	t.Helper()
	var messages [][]string
	if err := json.Unmarshal(l.Frames, &messages); err != nil {
		t.Fatal(err)
	}
	for _, frames := range messages {
		all = append(all, unhex(t, frames))
	}
	return all
}

// Every batch of every release's layout decodes, nothing is odd or unknown, and what the replay says is what came live.
func TestCapturesDecodeWholly(t *testing.T) {
	t.Parallel()
	for _, file := range captureFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			var d Decoder
			var stored, removed, cleared, batches int
			payloads := map[uint64]string{}
			for _, l := range readCapture(t, file) {
				switch l.Kind {
				case "live":
					m := l.live(t)
					seq, payload, err := sequenced(m)
					if err != nil || len(m.Frames) != 3 || seq != uint64(batches) {
						t.Fatalf("batch %d: sequence %d, %d frames, %v", batches, seq, len(m.Frames), err)
					}
					batches++
					payloads[seq] = string(payload)
					b, err := d.Decode(payload, func(e *Event) {
						switch e.Kind {
						case EventStored:
							stored++
							if e.BlockTokens == 0 || len(e.Tokens)%e.BlockTokens != 0 {
								t.Errorf("a store of %d tokens in blocks of %d", len(e.Tokens), e.BlockTokens)
							}
						case EventRemoved:
							removed++
							if len(e.Hashes) != 1 {
								t.Errorf("%d hashes removed at once", len(e.Hashes))
							}
						case EventCleared:
							cleared++
						default:
							t.Errorf("an event of kind %d", e.Kind)
						}
					})
					if err != nil || b.Odd+b.Unknown > 0 || b.Events == 0 || b.Time < 1.7e9 {
						t.Errorf("batch %d: %+v, %v", seq, b, err)
					}
				case "replay":
					next := l.Start
					answer := l.replay(t)
					for i, m := range answer {
						seq, payload, err := sequenced(m)
						switch {
						case err != nil:
							t.Fatal(err)
						case seq == endMarker:
							if i != len(answer)-1 || len(payload) != 0 {
								t.Errorf("an end marker at %d of %d", i, len(answer))
							}
						case seq != next || payloads[seq] != string(payload):
							t.Errorf("replayed %d where %d is due, equal to the live one: %v", seq, next, payloads[seq] == string(payload))
						}
						next++
					}
				}
			}
			if stored == 0 || strings.Contains(file, "evict") != (removed > 0 && cleared == 0) && !strings.Contains(file, "hybrid") {
				t.Errorf("%d stored, %d removed, %d cleared", stored, removed, cleared)
			}
		})
	}
}

// handFeed is a connected feed that nobody runs, for tests that give it messages by hand.
func handFeed(r Residency, o Options) *Feed {
	o.Residency = r
	o.Events = Endpoint{Network: "tcp", Address: "engine:1"}
	f := New(o)
	f.repair.start(context.Background(), new(sync.WaitGroup))
	f.trust.up()
	return f
}

// Replayed into the index, the recorded streams predict what vLLM reported beside them: all but the followers of a
// prefill in flight, and the request behind a reset that no event had told of yet.
func TestCapturesPredictWhatVLLMReported(t *testing.T) {
	t.Parallel()
	for _, file := range captureFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			x := radix.NewIndex()
			r := x.Engine(3)
			recorded := func() time.Time { return time.Unix(1796012490, 0) } // when they were made, or before: nothing is late
			f := handFeed(r, Options{Name: "a", Slot: 3, Now: recorded})
			exact, hits := 0, 0
			for _, l := range readCapture(t, file) {
				switch l.Kind {
				case "live":
					f.onMessage(l.live(t))
				case "request":
					match := 0
					if size := r.BlockTokens(); size > 0 {
						keys := radix.AppendKeys(nil, radix.Root("", "", l.Salt), l.Prompt, size)
						var tokens [radix.MaxEngines]int32
						x.MatchPrompt(&radix.Prompt{Keys: keys, BlockTokens: size, Tokens: len(l.Prompt), IDs: l.Prompt}, &tokens)
						match = int(tokens[3])
					}
					switch {
					case l.Step == "together" && match <= l.Cached:
						continue
					case l.Step == "after reset" && l.Cached == 0:
						continue
					case match != l.Cached:
						t.Errorf("%s: %d tokens, predicted %d, reported %d", l.Step, len(l.Prompt), match, l.Cached)
					}
					exact++
					if match > 0 {
						hits++
					}
				}
			}
			f.evaluate()
			if trust, reason, _ := f.Trust(); trust != telemetry.TrustExact {
				t.Errorf("trust is %s: %s", trust, reason)
			}
			if s := f.Stats(); s.UnknownParents+s.UnknownRemoved+s.Odd+s.Unknown+s.Gaps > 0 {
				t.Errorf("%+v", s)
			}
			if exact < 6 || hits < 3 {
				t.Errorf("only %d requests compared, %d of them hits", exact, hits)
			}
		})
	}
}
