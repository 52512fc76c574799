package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// command is `ramjet sim` in this process, seen from outside only.
type command struct {
	t                 *testing.T
	url, live, replay string
}

// startCommand runs it until the test ends.
func startCommand(t *testing.T, f Flags) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, f, w)
		w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the command ends with %v", err)
		}
	})
	c := &command{t: t}
	lines := bufio.NewScanner(r)
	for c.replay == "" && lines.Scan() {
		words := strings.Fields(lines.Text())
		last := words[len(words)-1]
		switch words[1] {
		case "events":
			c.live = last
		case "replay":
			c.replay = last
		default:
			c.url = last
		}
	}
	go io.Copy(io.Discard, r)
	if c.replay == "" {
		t.Fatal("the command names no replay socket")
	}
	return c
}

// do posts body, or gets path if it is empty, and reads the answer into v unless that is nil.
func (c *command) do(path, body string, v any) error {
	method := "POST"
	if body == "" {
		method = "GET"
	}
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := (&http.Client{Timeout: waitLimit}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	if err == nil && v != nil {
		err = json.Unmarshal(b, v)
	}
	return err
}

// must is do for what cannot fail.
func (c *command) must(path, body string, v any) {
	c.t.Helper()
	if err := c.do(path, body, v); err != nil {
		c.t.Fatal(err)
	}
}

// complete sends a prompt, asks for one token, and returns how many tokens were cached.
func (c *command) complete(ids []uint32) int {
	c.t.Helper()
	var r struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	c.must("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, appendIDs(nil, ids)), &r)
	return r.Usage.Details.Cached
}

// sequence is the number that the next batch gets.
func (c *command) sequence() uint64 {
	c.t.Helper()
	var s State
	c.must("/sim/state", "", &s)
	return s.EventSeq
}

// stored are the fields of a BlockStored that a client needs, from Python's decoder.
type stored struct {
	hashes []string
	parent string
	tokens []uint32
	size   int
}

// storedOf reads the BlockStored events of a decoded batch.
func storedOf(t *testing.T, batch json.RawMessage, array bool) (out []stored) {
	t.Helper()
	number := json.NewDecoder(bytes.NewReader(batch))
	number.UseNumber() // hashes use all 64 bits
	var envelope []any
	if err := number.Decode(&envelope); err != nil || len(envelope) != 3 {
		t.Fatalf("batch %s: %v", batch, err)
	}
	for _, e := range envelope[1].([]any) {
		var tag, hashes, parent, tokens, size any
		if array {
			l := e.([]any)
			if tag = l[0]; tag == "BlockStored" {
				hashes, parent, tokens, size = l[1], l[2], l[3], l[4]
			}
		} else {
			m := e.(map[string]any)
			tag, hashes, parent, tokens, size = m["type"], m["block_hashes"], m["parent_block_hash"], m["token_ids"], m["block_size"]
		}
		if tag != "BlockStored" {
			continue
		}
		s := stored{}
		for _, h := range hashes.([]any) {
			s.hashes = append(s.hashes, fmt.Sprint(h))
		}
		if parent != nil {
			s.parent = fmt.Sprint(parent)
		}
		for _, id := range tokens.([]any) {
			n, _ := id.(json.Number).Int64()
			s.tokens = append(s.tokens, uint32(n))
		}
		n, _ := size.(json.Number).Int64()
		s.size = int(n)
		out = append(out, s)
	}
	return out
}

// TestCommandPublishesToLibzmq runs the command with events and follows it with sockets of libzmq and Python's decoder
// only: through stores, a gap, a stop and a restart, in each form.
func TestCommandPublishesToLibzmq(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form, hash string
		frames     int
	}{
		{EventsMap, "int", 4},
		{EventsArray, "bytes", 3},
		{EventsArray5, "int", 3},
	} {
		t.Run(c.form, func(t *testing.T) {
			t.Parallel()
			const any = "tcp://127.0.0.1:0"
			cmd := startCommand(t, Flags{
				Listen: "127.0.0.1:0", Events: any, Replay: any, Topic: "kv@sim", EventForm: c.form, Hash: c.hash, EventFrames: c.frames,
				BlockTokens: 16, KVBlocks: 4096, Speed: 200, Seed: 1,
			})
			sub := startZMQ(t, "sub", cmd.live, "--topic", "kv@", "--decode")
			fresh := uint32(0)
			prompt := func() []uint32 { // 100 tokens that nobody has sent: 6 blocks
				fresh++
				return promptOf(int(fresh)*1000, 100)
			}
			// Live messages reach a subscriber from its subscription on, which it cannot see; so ask until one comes.
			awake := func() zmqLine {
				for {
					cmd.complete(prompt())
					select {
					case l := <-sub.lines:
						return l
					case <-time.After(50 * time.Millisecond):
					}
				}
			}
			seq := seqOf(t, awake().Frames[1])
			for seq++; seq < cmd.sequence(); seq++ { // answers to the questions after the first that was heard
				sub.next()
			}

			ids := prompt()
			if cached := cmd.complete(ids); cached != 0 {
				t.Errorf("%d tokens of a new prompt were cached", cached)
			}
			l := sub.line()
			if l.Frames[0] != hexOf("kv@sim") || seqOf(t, l.Frames[1]) != seq {
				t.Errorf("got %v, want %d", l.Frames[:2], seq)
			}
			events := storedOf(t, l.Batch, c.form != EventsMap)
			if len(events) != 1 || len(events[0].hashes) != 6 || events[0].parent != "" || events[0].size != 16 || fmt.Sprint(events[0].tokens) != fmt.Sprint(ids[:96]) {
				t.Fatalf("the prompt %v is told as %+v", ids, events)
			}
			if raw, err := hex.DecodeString(events[0].hashes[0]); c.hash == "bytes" && (err != nil || len(raw) != 32) {
				t.Errorf("hash %q is not 32 bytes", events[0].hashes[0])
			}
			if cached := cmd.complete(ids); cached != 96 {
				t.Errorf("%d tokens cached, and the events say 96", cached)
			}
			cmd.complete(append(ids, ids[:32]...)) // goes on where the events say that it ends
			l = sub.line()
			if next := storedOf(t, l.Batch, c.form != EventsMap); len(next) != 1 || next[0].parent != events[0].hashes[5] || len(next[0].hashes) != 2 {
				t.Errorf("the extension is told as %+v", next)
			}

			cmd.must("/sim/fault", `{"kind":"event-gap","count":1}`, nil)
			cmd.complete(prompt())
			cmd.complete(prompt())
			if got := seqOf(t, sub.next()[1]); got != seq+3 {
				t.Errorf("after the gap comes %d, want %d", got, seq+3)
			}
			cmd.must("/sim/fault", `{"kind":"event-stop","count":0}`, nil)
			cmd.complete(prompt())
			sub.quiet(100 * time.Millisecond)
			cmd.must("/sim/clear", "{}", nil)
			cmd.complete(prompt())
			if got := seqOf(t, sub.next()[1]); got != seq+5 {
				t.Errorf("after the stop comes %d, want %d", got, seq+5)
			}
			replayAll(t, cmd, c.frames, c.form != EventsMap)

			cmd.must("/sim/restart", `{"seconds":0}`, nil)
			await(t, "the restart", func() bool { // the port is gone for a moment, before or between two questions
				var s State
				return cmd.do("/sim/state", "", &s) == nil && s.EventSeq == 0 && cmd.do("/health", "", nil) == nil
			})
			if got, all := seqOf(t, awake().Frames[1]), cmd.sequence(); got >= all {
				t.Errorf("after the restart comes %d, of %d published", got, all)
			}
			replayAll(t, cmd, c.frames, c.form != EventsMap)
		})
	}
}

// replayAll checks that replay has every batch of the process, whatever was lost on the way, and then its end.
func replayAll(t *testing.T, cmd *command, frames int, array bool) {
	t.Helper()
	all := cmd.sequence()
	dealer := startZMQ(t, "dealer", cmd.replay, "--ask", joinAsk("", seqBytes(0)), "--decode")
	defer dealer.kill()
	for want := range all + 1 {
		l := dealer.line()
		seq := seqOf(t, l.Frames[len(l.Frames)-2])
		if len(l.Frames) != frames {
			t.Fatalf("%d frames: %v", len(l.Frames), l.Frames)
		}
		if want == all {
			want = kvReplayEnd
		} else if len(storedOf(t, l.Batch, array)) == 0 {
			t.Errorf("batch %d stores nothing", want)
		}
		if seq != want {
			t.Fatalf("replayed %d, want %d", seq, want)
		}
	}
}
