package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/radix"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// prompts is what turns requests into token ids, and how far that is proven
// for each engine. engines and handoff are replaced by a reload; search,
// unusable, chats and noChats belong to run.
type prompts struct {
	cfg     *config.Config
	log     *telemetry.Log
	counts  *telemetry.Metrics
	model   *tokens.Model
	handoff atomic.Pointer[tokens.Handoff] // nil: ids are given to nobody
	engines atomic.Pointer[[]*proof]
	source  *tokens.EngineSource // nil: engines are not asked
	search  bool                 // the model's files are still looked for
	wake    chan struct{}        // an engine is to be proven
	index   *radix.Index
	mute    atomic.Uint64 // bits of the engines that do not tokenize

	unusable error  // why the files that are named make no ids
	chats    string // why they make those of completions only, "" if also of chats
	noChats  bool   // because the model has no chat template: then chats are no use of it
}

// newPrompts loads what the configuration names. A file that cannot be used is
// told in the log, and requests are routed approximately: it must not keep
// Ramjet from serving.
func newPrompts(cfg *config.Config, log *telemetry.Log, metrics *telemetry.Metrics, index *radix.Index) *prompts {
	p := &prompts{cfg: cfg, log: log, counts: metrics, wake: make(chan struct{}, 1), index: index}
	p.engines.Store(&[]*proof{})
	o := tokens.ModelOptions{MaxBytes: int(cfg.Tokens.MaxBytes), Log: log, Counts: metrics}
	source := cfg.Tokens.Source
	if source == "auto" || source == "engine" {
		p.source = tokens.NewEngineSource(tokens.EngineSourceOptions{Pick: p.idle, Wanted: p.wanted, Cache: int(cfg.Tokens.Cache), Counts: metrics})
		o.Engines = p.source
	}
	if cfg.Tokens.Path != "" && (source == "auto" || source == "local") {
		o.Source = p.load(cfg.Tokens.Path)
	}
	p.search = o.Source == nil && cfg.Tokens.Path == "" && (source == "auto" || source == "local")
	p.model = tokens.NewModel(o)
	p.setHandoff(cfg.Handoff)
	return p
}

// setHandoff begins to hand over, or ends it. Every engine is proven anew.
func (p *prompts) setHandoff(c config.Handoff) {
	var h *tokens.Handoff
	if c.Mode == "auto" {
		h = tokens.NewHandoff(tokens.HandoffOptions{Model: p.model, MinTokens: c.MinTokens, Unproven: p.ignored, Log: p.log, Counts: p.counts})
	}
	p.handoff.Store(h)
	for _, f := range *p.engines.Load() {
		f.proven.Store(false)
	}
	p.look()
}

// load reads a model's tokenizer and chat template, nil if there is none that
// can be used.
func (p *prompts) load(path string) *tokens.Source {
	s, warning, err := tokens.LoadSource(path, p.cfg.Tokens.ChatTemplate, time.Now, tokens.SourceOptions{
		MaxBytes: int(p.cfg.Tokens.MaxBytes), MaxTime: p.cfg.Tokens.MaxTime, Cache: int(p.cfg.Tokens.Cache), Beside: p.source,
	})
	p.unusable, p.chats, p.noChats = err, "", false
	if err != nil {
		p.log.Warn("token ids are not made here: requests are routed approximately", "tokens.path", path, "error", err.Error())
		return nil
	}
	if p.chats = plainChat(s); warning != nil {
		p.chats, p.noChats = warning.Error(), errors.Is(warning, tokens.ErrNoTemplate)
	}
	if p.chats != "" {
		p.log.Warn("the chat template cannot be used: only completions are routed by their token ids", "tokens.path", path, "error", p.chats)
	}
	p.log.Info("token ids are made here", "tokens.path", path)
	return s
}

// plainChat says why not even the plainest chat has known ids, "" if it has:
// what is wrong with a template may show only when it renders.
func plainChat(s *tokens.Source) string {
	note := s.Unlimited(tokens.EndpointChat, []byte(`{"messages":[{"role":"user","content":"Hello!"}]}`))
	if note == "" {
		return ""
	}
	return "it does not render a plain chat (" + note + ")"
}

// find looks for the model's files on this machine once its name is known from
// an engine, and tells which source is in use.
func (p *prompts) find() {
	for _, f := range *p.engines.Load() {
		root := f.e.Models().Root()
		if root == "" {
			continue
		}
		p.search = false
		path, err := tokens.FindModelFolder(root, hubFolder())
		if err == nil {
			if s := p.load(path); s != nil {
				p.use(s)
				return
			}
		}
		better := "set tokens.path (--tokenizer) to the folder of " + root
		if p.source != nil {
			p.log.Info("token ids are asked of the engines beside the requests, for the next turn", "better", better)
		} else {
			p.log.Warn("there are no token ids: requests are routed approximately", "better", better)
		}
		return
	}
}

// use makes ids by a tokenizer from now on. Engines that were asked before had
// nothing to be compared with.
func (p *prompts) use(s *tokens.Source) {
	p.model.SetSource(s)
	for _, f := range *p.engines.Load() {
		f.proven.Store(false)
	}
	p.look()
}

// worthAsking is from how many tokens on a prompt's ids are asked of an engine:
// of a shorter one little is lost by comparing its text.
const worthAsking = 1024

// wanted reports whether ids from an engine could be put to use: without a
// record of any cache there is nothing to compare them with, and an engine
// that does not tokenize is not asked again and again.
func (p *prompts) wanted(tokens int) bool {
	if tokens < worthAsking || p.index.Empty() {
		return false
	}
	mute := p.mute.Load()
	for _, f := range *p.engines.Load() {
		if mute&(1<<f.slot) == 0 {
			return true
		}
	}
	return false
}

// asking is an engine that is asked for ids.
type asking struct {
	*engine.Engine
	p    *prompts
	slot int
}

// Post implements tokens.Asker.
func (a asking) Post(ctx context.Context, path string, body []byte, limit int64) (status int, answer []byte, err error) {
	status, answer, err = a.Engine.Post(ctx, path, body, limit)
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusForbidden {
		a.p.silence(a.slot, a.Engine)
	}
	return status, answer, err
}

// silence keeps an engine from being asked again. Another may be in its slot by
// now, or come there meanwhile: that one is asked.
func (p *prompts) silence(slot int, e *engine.Engine) {
	bit := uint64(1) << slot
	there := func() bool {
		f := find(*p.engines.Load(), slot)
		return f != nil && f.e == e
	}
	if !there() {
		return
	}
	if p.mute.Or(bit); !there() {
		p.mute.And(^bit)
	}
}

// busyAt is how many requests an engine may hold to be asked for token ids: it
// tokenizes in the process that serves them.
const busyAt = 8

// idle returns an engine to ask for ids, nil if all are busy.
func (p *prompts) idle(model string) tokens.Asker {
	for _, f := range *p.engines.Load() {
		if p.mute.Load()&(1<<f.slot) == 0 && up(f.e.State()) && f.e.Flights() < busyAt && (model == "" || f.e.Models().Serves([]byte(model))) {
			return asking{f.e, p, f.slot}
		}
	}
	return nil
}

// compared says what a comparison of ids found, and for what it holds: chats is
// why none of chats are made.
func compared(r tokens.ParityResult, chats string) string {
	if chats == "" || r.Verdict != tokens.VerdictOK {
		return r.String()
	}
	return fmt.Sprintf("the tokenizer makes the engine's ids (%d prompts compared); chats are routed approximately without a chat template", r.Compared)
}

// hubFolder is where Hugging Face's libraries keep what they downloaded.
func hubFolder() string {
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface", "hub")
}
