package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Flags are the flags of `ramjet sim`. What is said to be a default stands for the zero value.
type Flags struct {
	Listen        string        // HOST:PORT of the API
	Control       string        // second address for the /sim/ paths; "" = none
	Profile       string        // ProfileMTP or ProfileStandard (default)
	Events        string        // endpoint for KV-cache events, tcp://HOST:PORT, bound; "" = none
	Replay        string        // endpoint for their replay
	Topic         string        // of the events
	Hash          string        // int (default) or bytes: the form of block hashes in events
	HashSeed      string        // process (default): a seed for each process, as before vLLM 0.29; or fixed
	EventForm     string        // EventsMap (default), EventsArray or EventsArray5
	EventFrames   int           // frames of a replay answer: 4 (default) or 3
	EventBuffer   int           // batches kept for replay; 0 = default
	BlockTokens   int           // 0 = default
	KVBlocks      int           // 0 = default
	Hybrid        string        // cache groups, a letter each: m mamba, a attention; "" = a plain model
	OffloadBlocks int           // blocks of a CPU tier; 0 = none
	Lookahead     int           // tokens behind a block that its hash covers too
	MaxModelLen   int           // 0 = default
	Speed         float64       // 0 = default
	Seed          uint64        // of text and acceptance
	Model         string        // served names, separated by commas; "" = default
	Lora          string        // names of adapters, separated by commas
	Handoff       string        // HandoffBoth (default) or another
	HideCached    bool          // usage without prompt_tokens_details
	DropReasoning bool          // the template leaves out reasoning before the last user message
	DevMode       bool          // serve POST /reset_prefix_cache
	APIKey        string        // "" = none
	StartDelay    time.Duration // connections are refused for so long
	Drain         time.Duration // vLLM's --shutdown-timeout; 0 = abort at once
	WriteModel    string        // write the model's files into this folder and end
}

// check refuses words that are none of a flag's, and numbers that count nothing.
func (f *Flags) check() error {
	for _, w := range []struct {
		flag, word string
		of         []string
	}{
		{"profile", f.Profile, []string{ProfileMTP, ProfileStandard}},
		{"hash", f.Hash, []string{"int", "bytes"}},
		{"hash-seed", f.HashSeed, []string{"process", "fixed"}},
		{"event-form", f.EventForm, []string{EventsMap, EventsArray, EventsArray5}},
		{"handoff", f.Handoff, handoffModes},
	} {
		if w.word != "" && !slices.Contains(w.of, w.word) {
			return fmt.Errorf("cannot use %s %q: it must be one of %s", w.flag, w.word, strings.Join(w.of, ", "))
		}
	}
	for _, n := range []struct {
		flag  string
		value float64
	}{
		{"event-frames", float64(f.EventFrames)},
		{"event-buffer", float64(f.EventBuffer)},
		{"block-tokens", float64(f.BlockTokens)},
		{"kv-blocks", float64(f.KVBlocks)},
		{"offload-blocks", float64(f.OffloadBlocks)},
		{"lookahead", float64(f.Lookahead)},
		{"max-model-len", float64(f.MaxModelLen)},
		{"speed", f.Speed},
		{"start-delay", f.StartDelay.Seconds()},
		{"drain", f.Drain.Seconds()},
	} {
		if n.value < 0 || math.IsNaN(n.value) {
			return fmt.Errorf("cannot use %s %v: it must be a number of at least 0", n.flag, n.value)
		}
	}
	if f.Hybrid != "" && f.OffloadBlocks > 0 {
		return errors.New("cannot offload blocks of a hybrid model")
	}
	if _, _, ok := groupsOf(f.Hybrid); !ok {
		return fmt.Errorf("cannot use hybrid %q: it must be letters m with one a among them, such as mmma", f.Hybrid)
	}
	return nil
}

// options are f as a server takes them.
func (f *Flags) options() ServerOptions {
	return ServerOptions{
		Core: CoreOptions{
			Profile: f.Profile, BlockTokens: f.BlockTokens, KVBlocks: f.KVBlocks, MaxModelLen: f.MaxModelLen, Speed: f.Speed, Seed: f.Seed,
			Hybrid: f.Hybrid, OffloadBlocks: f.OffloadBlocks, Lookahead: f.Lookahead, FixedHashes: f.HashSeed == "fixed",
		},
		Events: EventOptions{
			Endpoint: f.Events, Replay: f.Replay, Topic: f.Topic, Form: f.EventForm, ByteHashes: f.Hash == "bytes",
			ReplayFrames: f.EventFrames, Buffer: f.EventBuffer,
		},
		Model: f.Model, Adapters: f.Lora, Handoff: f.Handoff, HideCached: f.HideCached, DropReasoning: f.DropReasoning, DevMode: f.DevMode,
		Listen: f.Listen, Control: f.Control, APIKey: f.APIKey, StartDelay: f.StartDelay, ExitOnDie: f.Control == "",
	}
}

// Run runs `ramjet sim` until ctx ends, then stops as vLLM does on SIGTERM:
// requests end cleanly with the reason "abort", or run on for Drain. It
// prints one line with the address once it listens, and one for each further
// socket.
func Run(ctx context.Context, f Flags, stdout io.Writer) error {
	if f.WriteModel != "" {
		if err := WriteModel(f.WriteModel); err != nil {
			return fmt.Errorf("cannot write the model: %w", err)
		}
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	s, err := NewServer(f.options())
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "sim: %s on %s\n", s.models[0], s.URL())
	if c := s.ControlAddr(); c != "" {
		fmt.Fprintf(stdout, "sim: control on http://%s\n", c)
	}
	if live, replay := s.EventsAddr(); live != "" {
		fmt.Fprintf(stdout, "sim: events on tcp://%s\n", live)
		if replay != "" {
			fmt.Fprintf(stdout, "sim: replay on tcp://%s\n", replay)
		}
	}
	return s.serveAndStop(ctx, f.Drain)
}

// stopLimit bounds the clean end after SIGTERM; vLLM is gone within a second.
const stopLimit = time.Second

// serveAndStop serves until ctx ends, then stops in vLLM's way.
func (s *Server) serveAndStop(ctx context.Context, drain time.Duration) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(run) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if drain > 0 {
		limit, cancel := context.WithTimeout(run, drain)
		s.Shutdown(limit, false)
		cancel()
	}
	limit, cancel := context.WithTimeout(run, stopLimit)
	s.Shutdown(limit, true)
	cancel()
	stop()
	return <-ended
}
