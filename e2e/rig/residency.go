package rig

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// ResidencyCase is a pair of engines.
type ResidencyCase struct {
	Name   string
	Words  int // of a message
	Blocks int // of each cache
	a, b   []string
	Block  int  // tokens, the larger of both
	Learns bool // an engine loses blocks of a hit, which only answers can show
}

// ResidencyCases are the forms of events and hashes that engines of different
// versions and settings have.
var ResidencyCases = []ResidencyCase{
	{Name: "dense16", Words: 60, Blocks: 600, Block: 16},
	{Name: "array-bytes", Words: 60, Blocks: 600, Block: 16, a: []string{"--event-form=array", "--hash=bytes", "--topic=kv"},
		b: []string{"--event-form=array", "--event-frames=3", "--hash-seed=fixed"}},
	{Name: "array5-32", Words: 60, Blocks: 600, Block: 32, a: []string{"--event-form=array5", "--event-frames=3"}, b: []string{"--block-tokens=32", "--hash=bytes", "--kv-blocks=300"}},
	{Name: "mtp16", Words: 60, Blocks: 600, Block: 16, a: []string{"--profile=mtp"}, Learns: true},
	{Name: "lookahead16", Words: 60, Blocks: 600, Block: 16, a: []string{"--profile=mtp", "--lookahead=1"}, b: []string{"--profile=mtp", "--lookahead=3"}},
	{Name: "dense784-800", Words: 800, Blocks: 60, Block: 800, a: []string{"--block-tokens=784"}, b: []string{"--block-tokens=800"}},
	{Name: "hybrid784-800mtp", Words: 800, Blocks: 200, Block: 800, a: []string{"--block-tokens=784", "--hybrid=mmma"},
		b: []string{"--block-tokens=800", "--hybrid=mamm", "--profile=mtp"}, Learns: true},
}

// Start starts the case's engines, with events to be had.
func (c *ResidencyCase) Start(t testing.TB) []*SimEngine {
	t.Helper()
	var sims []*SimEngine
	for i, more := range [][]string{c.a, c.b} {
		flags := append([]string{fmt.Sprintf("--kv-blocks=%d", c.Blocks), "--speed=50", "--seed=7"}, Publishing...)
		sims = append(sims, StartSim(t, string(rune('a'+i)), append(flags, more...)...))
	}
	return sims
}

// PatientTokens lets a loaded machine take its time: a prompt whose ids take too
// long is routed approximately.
const PatientTokens = "--tokens.max-time=2s"

// Ramjet starts Ramjet in front of them.
func (c *ResidencyCase) Ramjet(t testing.TB, sims []*SimEngine, events string, flags ...string) *Ramjet {
	t.Helper()
	s := SimSetup{Sims: sims, Events: events, Model: SimModelFolder(t), Flags: append(append([]string{PatientTokens}, QuickHealth...), flags...)}
	if s.Settled = Said("token ids compared"); events != "off" {
		s.Settled = Both(s.Settled, Trusted)
	}
	return StartSims(t, s)
}

// Pair starts two plain engines with events.
func Pair(t testing.TB, flags ...string) []*SimEngine {
	t.Helper()
	c := ResidencyCases[0]
	c.a, c.b = flags, flags
	return c.Start(t)
}

// InFrontOf starts Ramjet before a pair, without waiting for its trust unless
// trust is the word to wait for.
func InFrontOf(t testing.TB, sims []*SimEngine, trust string, flags ...string) *Ramjet {
	t.Helper()
	s := SimSetup{Sims: sims, Events: "auto", Model: SimModelFolder(t), Flags: append(append([]string{PatientTokens}, QuickHealth...), flags...)}
	s.Settled = Both(Said("token ids compared"), func(r *Ramjet) string {
		for _, e := range r.Topology().Engines {
			if e.Trust != trust || strings.HasSuffix(e.TrustReason, " yet") || strings.HasSuffix(e.TrustReason, "is being read") {
				return e.Name + " is " + e.Trust + ": " + e.TrustReason
			}
		}
		return ""
	})
	return StartSims(t, s)
}

// EqualRun sends n requests one after another and wants each match to be what is
// reported.
func EqualRun(t testing.TB, r *Ramjet, sims []*SimEngine, load *TalkLoad, n int) (cached int) {
	t.Helper()
	a := r.Asker(t)
	defer a.Close()
	for i := range n {
		r.InStep(t, sims...)
		body, tell := load.Next()
		p := a.Chat(r.ID("talk"), body)
		if !p.Ok() || p.Match != p.Cached {
			t.Errorf("request %d: %v", i, &p)
		}
		tell(p.Text)
		cached += p.Cached
	}
	return cached
}

// Background sends requests from some clients until stop is called, which
// returns how many were answered and what failed.
func Background(t testing.TB, a *Asker, id func(string) string, load *TalkLoad, clients int) (stop func() (answered int, failed []Reply)) {
	var mu sync.Mutex // guards load and failed
	var failed []Reply
	var n atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				body, tell := load.Next()
				mu.Unlock()
				p := a.Chat(id("load"), body)
				mu.Lock()
				if p.Ok() {
					tell(p.Text)
					n.Add(1)
				} else {
					failed = append(failed, p)
				}
				mu.Unlock()
			}
		})
	}
	var once sync.Once
	stop = func() (int, []Reply) {
		once.Do(func() { close(done); wg.Wait(); a.Close() })
		return int(n.Load()), failed
	}
	t.Cleanup(func() { stop() })
	return stop
}
