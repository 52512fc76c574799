package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// SimFlags are the flags of `ramjet sim`.
type SimFlags struct { //nolint:revive // the command is called sim, and main has flags of other commands beside these
	Listen      string        // HOST:PORT of the API
	Control     string        // second address for the /sim/ paths; "" = none
	Profile     string        // ProfileMTP or ProfileStandard
	Events      string        // endpoint for KV-cache events; not published yet
	Replay      string        // endpoint for their replay
	BlockTokens int           // 0 = default
	KVBlocks    int           // 0 = default
	MaxModelLen int           // 0 = default
	Speed       float64       // 0 = default
	Seed        uint64        // of text and acceptance
	Model       string        // served names, separated by commas; "" = default
	APIKey      string        // "" = none
	StartDelay  time.Duration // connections are refused for so long
	Drain       time.Duration // vLLM's --shutdown-timeout; 0 = abort at once
	WriteModel  string        // write the model's files into this folder and end
}

// Main runs `ramjet sim` until ctx ends, then stops as vLLM does on SIGTERM:
// requests end cleanly with the reason "abort", or run on for Drain. It
// prints one line with the address once it listens.
func Main(ctx context.Context, f SimFlags, stdout io.Writer) error {
	if f.WriteModel != "" {
		if err := WriteModel(f.WriteModel); err != nil {
			return fmt.Errorf("cannot write the model: %w", err)
		}
		return nil
	}
	if f.Events != "" || f.Replay != "" {
		return errors.New("cannot publish KV-cache events: this simulator has no event sockets")
	}
	switch f.Profile {
	case "", ProfileMTP, ProfileStandard:
	default:
		return fmt.Errorf("cannot use profile %q: it must be %s or %s", f.Profile, ProfileMTP, ProfileStandard)
	}
	s, err := NewServer(ServerOptions{
		Core: CoreOptions{
			Profile: f.Profile, BlockTokens: f.BlockTokens, KVBlocks: f.KVBlocks, MaxModelLen: f.MaxModelLen, Speed: f.Speed, Seed: f.Seed,
		},
		Model: f.Model, Listen: f.Listen, Control: f.Control, APIKey: f.APIKey, StartDelay: f.StartDelay, ExitOnDie: f.Control == "",
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "sim: %s on %s\n", s.models[0], s.URL())
	if c := s.ControlAddr(); c != "" {
		fmt.Fprintf(stdout, "sim: control on http://%s\n", c)
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
