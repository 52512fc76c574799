package sim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCommandStopsAsVLLMDoes runs `ramjet sim` in this process: a request
// under way when the signal comes ends cleanly with the reason "abort".
func TestCommandStopsAsVLLMDoes(t *testing.T) {
	t.Parallel()
	for _, drain := range []time.Duration{0, 5 * time.Second} {
		ctx, cancel := context.WithCancel(context.Background())
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Flags{Listen: "127.0.0.1:0", Profile: ProfileMTP, Model: "m", Seed: 7, Speed: 4, Drain: drain}, w)
			_ = w.Close()
		}()
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		_, addr, ok := strings.Cut(strings.TrimSpace(line), " on http://")
		if !ok {
			t.Fatalf("printed %q", line)
		}
		c := dial(t, addr)
		rd := bufio.NewReader(c)
		if _, err := io.WriteString(c, post("/v1/chat/completions", `{"stream":true,"max_tokens":400,`+hello+`}`)); err != nil {
			t.Fatal(err)
		}
		for line := ""; !strings.HasPrefix(line, "data: "); { // the head comes before the engine has the request
			if line, err = rd.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		rest, err := io.ReadAll(rd)
		want := `"finish_reason":"abort"`
		if drain > 0 {
			want = `"finish_reason":"length"`
		}
		if err != nil || !strings.Contains(string(rest), want) || !strings.HasSuffix(string(rest), "data: [DONE]\n\n\r\n0\r\n\r\n") {
			t.Errorf("drain %v: %v, ends with %q", drain, err, rest[max(0, len(rest)-300):])
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestCommandRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	for _, f := range []Flags{
		{Profile: "fast"}, {Events: "nowhere"}, {Replay: "tcp://127.0.0.1:0"}, {Hash: "md5"}, {HashSeed: "1"}, {EventForm: "json"},
		{Handoff: "maybe"}, {Hybrid: "mm"}, {Hybrid: "mma", OffloadBlocks: 1}, {Hybrid: "mmma", KVBlocks: 9}, {Hybrid: "max"}, {Hybrid: "ama"}, {Events: "tcp://127.0.0.1:0", EventFrames: 5}, {Listen: "nowhere:-1"}, {BlockTokens: -1}, {KVBlocks: -1}, {EventFrames: -1}, {EventBuffer: -1}, {OffloadBlocks: -1},
		{Lookahead: -1}, {MaxModelLen: -1}, {Speed: -1}, {Speed: math.NaN()}, {StartDelay: -1}, {Drain: -1},
		{WriteModel: filepath.Join(os.DevNull, "x")},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // flags that are taken by mistake must not serve for ever
		if err := Run(ctx, f, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestCommandWritesTheModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Run(t.Context(), Flags{WriteModel: dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "config.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestCommandDies: without a control port a dead engine cannot come back, so
// the command ends, as a killed process does.
func TestCommandDies(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Flags{Model: "m", Speed: 200}, w)
		_ = w.Close()
	}()
	line, _ := bufio.NewReader(r).ReadString('\n')
	_, addr, _ := strings.Cut(strings.TrimSpace(line), " on http://")
	c := dial(t, addr)
	exchange(t, c, post("/sim/fault", `{"kind":"die"}`))
	if _, err := io.WriteString(c, post("/v1/completions", `{"prompt":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c); len(b) != 0 {
		t.Errorf("answered %q", b)
	}
	if err := <-ended; !errors.Is(err, ErrDied) {
		t.Errorf("Run: %v", err)
	}
}
