package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"ramjet/config"
	"ramjet/radix"
	"ramjet/sim"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// promptsOf is what a command line makes.
func promptsOf(t *testing.T, args ...string) *prompts {
	t.Helper()
	cfg, err := config.Load(config.LoadOptions{Args: append([]string{"--engine=a=http://h:1"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	return newPrompts(cfg, nil, telemetry.NewMetrics("", ""), radix.NewIndex())
}

// modelFolder holds the simulator's model.
func modelFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := sim.WriteModel(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestLateAnswerMutesNobodyElse: an engine that does not tokenize is not asked again, but the one that has its slot
// now is.
func TestLateAnswerMutesNobodyElse(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	p := promptsOf(t)
	old, fresh, other := serving(t, s.URL, 0), serving(t, s.URL, 0), serving(t, s.URL, 1)
	p.setEngines([]*member{old, other})
	ask := func(m *member) {
		t.Helper()
		if _, _, err := (asking{m.engine, p, m.slot}).Post(t.Context(), "/tokenize", []byte(`{}`), 1<<10); err != nil {
			t.Fatal(err)
		}
	}
	ask(old)
	if got := p.mute.Load(); got != 1 {
		t.Errorf("the engine is asked again: %b", got)
	}
	p.setEngines([]*member{fresh, other})
	ask(old)
	if got := p.mute.Load(); got != 0 {
		t.Errorf("the engine in the slot of one that left is not asked: %b", got)
	}
	p.setEngines([]*member{other})
	ask(old)
	ask(other)
	if got := p.mute.Load(); got != 2 {
		t.Errorf("muted are %b", got)
	}
}

// TestPlainChatHasTime: whether the template can be used does not depend on how fast this machine is.
func TestPlainChatHasTime(t *testing.T) {
	t.Parallel()
	p := promptsOf(t, "--tokenizer="+modelFolder(t), "--tokens.max-time=1ns")
	if p.model.Source() == nil || p.chats != "" || p.unusable != nil {
		t.Errorf("%q, %v", p.chats, p.unusable)
	}
}

// TestFoundLater: engines that were asked before there was a tokenizer are asked again when there is one.
func TestFoundLater(t *testing.T) {
	t.Parallel()
	p := promptsOf(t, "--tokens.max-time=10s")
	p.setEngines([]*member{simulated(t, 0)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	soon(t, "the engine is asked", func() bool { return (*p.engines.Load())[0].proven.Load() })
	s, _, err := tokens.LoadSource(modelFolder(t), "", time.Now, tokens.SourceOptions{Cache: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	p.use(s)
	soon(t, "its ids are compared", func() bool { return len(p.model.Classes()) > 0 })
}
