package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/kvevents"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// probing is what `check --probe` asks one engine for.
type probing struct {
	a      *app
	e      *engine.Engine
	slot   int
	models *engine.Models
	mode   string // handoff.mode as configured
	w      io.Writer
	bad    bool
	// publishers are the event endpoints met so far, with their engines.
	publishers map[string]string
}

// Limits of `check --probe`.
const (
	probeAnswer = 10 * time.Second // of one question
	probeListen = 3 * time.Second  // for an event
)

// probeEngines asks every engine for what Ramjet relies on and prints it with
// what to change. It reports whether all is well.
func probeEngines(ctx context.Context, cfg *config.Config, out io.Writer) bool {
	quiet := *cfg
	quiet.Log.Level = "error"
	quiet.Handoff.Mode = "auto" // asked for anyway, to tell what it would bring
	quiet.Journal.Path = ""     // whose folder is for serve to make
	a, err := build(&quiet, out, false)
	if err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	defer a.close()
	well := true
	publishers := map[string]string{}
	for i, e := range a.roster.Load().engines() {
		fmt.Fprintf(out, "\nengine %s, %s\n", e.Name, e.URL)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		p := &probing{a: a, e: e, slot: i, mode: cfg.Handoff.Mode, w: w, publishers: publishers}
		p.all(ctx)
		_ = w.Flush()
		well = well && !p.bad
	}
	return well
}

// say prints one line; ok is "ok", "note" or "bad".
func (p *probing) say(ok, what, format string, args ...any) {
	p.bad = p.bad || ok == "bad"
	fmt.Fprintf(p.w, "  %s\t%s\t%s\n", ok, what, fmt.Sprintf(format, args...))
}

func (p *probing) all(ctx context.Context) {
	if !p.reach(ctx) {
		return
	}
	p.usage(ctx)
	p.tokens(ctx)
	p.events(ctx)
}

func (p *probing) get(ctx context.Context, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	return p.e.Get(ctx, path, maxSources)
}

// reach asks for health and models.
func (p *probing) reach(ctx context.Context) bool {
	began := time.Now()
	status, _, err := p.get(ctx, "/health")
	switch {
	case err != nil:
		p.say("bad", "reachable", "%v: is it running, and is the address right?", err)
		return false
	case status != http.StatusOK:
		p.say("bad", "reachable", "GET /health answers %d: it does not serve", status)
		return false
	}
	p.say("ok", "reachable", "in %d ms", time.Since(began).Milliseconds())
	status, body, err := p.get(ctx, "/v1/models")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("it answers %d (does it want a key? see engines.api_key_file)", status)
	}
	if err == nil {
		p.models, err = readModels(body)
	}
	if err == nil && len(p.models.IDs) == 0 {
		err = errors.New("it lists none")
	}
	if err != nil {
		p.say("bad", "model", "GET /v1/models: %v", err)
		return false
	}
	p.e.SetModels(p.models)
	p.say("ok", "model", "%s, loaded from %s", strings.Join(p.models.IDs, ", "), p.models.Root())
	return true
}

// readModels reads a list of models.
func readModels(body []byte) (*engine.Models, error) {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("cannot read the models: %w", err)
	}
	var ids []string
	var objects [][]byte
	for _, raw := range list.Data {
		var o struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &o) == nil && o.ID != "" {
			ids, objects = append(ids, o.ID), append(objects, raw)
		}
	}
	return engine.NewModels(ids, objects, body), nil
}

// usage sends one small completion and looks at its usage.
func (p *probing) usage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	body, _ := json.Marshal(map[string]any{"model": p.models.IDs[0], "prompt": "hello", "max_tokens": 1})
	status, answer, err := p.e.Post(ctx, "/v1/completions", body, maxSources)
	var got struct {
		Usage *struct {
			Details *struct{} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	switch {
	case err != nil:
		p.say("bad", "usage", "%v", err)
	case status != http.StatusOK:
		p.say("note", "usage", "POST /v1/completions answers %d; cached tokens cannot be compared", status)
	case json.Unmarshal(answer, &got) != nil || got.Usage == nil:
		p.say("note", "usage", "the answer has none; matches are compared in aggregate only")
	case got.Usage.Details == nil:
		p.say("note", "usage", "without cached tokens; start the engine with --enable-prompt-tokens-details")
	default:
		p.say("ok", "usage", "with cached tokens")
	}
}

// tokens compares ids and tries handing them over.
func (p *probing) tokens(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	m := p.a.prompts
	if m.search {
		m.find()
	}
	switch r := m.model.ProbeParity(ctx, p.e, p.e.Name, p.models.IDs[0]); r.Verdict {
	case tokens.VerdictOK, tokens.VerdictDiffers:
		ok := "ok"
		if r.Verdict == tokens.VerdictDiffers {
			ok = "note"
		}
		p.say(ok, "token ids", "%s", compared(r, m.chats))
		switch {
		case m.noChats:
			p.say("note", "chat template", "none in the model's folder; if the engine has one (--chat-template), set tokens.chat_template to it")
		case m.chats != "":
			p.say("bad", "chat template", "%s; set tokens.chat_template to the file that the engine uses (its --chat-template, or the model's own)", m.chats)
		}
	case tokens.VerdictNoTokenizer:
		switch {
		case m.unusable != nil:
			p.say("bad", "token ids", "%v; routing is approximate: set tokens.path to the model's folder, with its tokenizer.json", m.unusable)
		case p.a.cfg.Tokens.Source == "off":
			p.say("note", "token ids", "off in the configuration, so that routing is approximate (tokens.source)")
		default:
			p.say("note", "token ids", "no local tokenizer, so that routing is approximate: set tokens.path (--tokenizer) to the folder of %s", p.models.Root())
		}
		return
	case tokens.VerdictForeign, tokens.VerdictUnreachable:
		p.say("bad", "token ids", "%s", r)
		return
	}
	p.handoff(ctx)
}

// handoff tries which ids the engine reads.
func (p *probing) handoff(ctx context.Context) {
	m := p.a.prompts
	status, err := m.handoff.Load().ProbeHandoff(ctx, p.e, p.slot, p.e.Name, p.models.IDs[0])
	switch {
	case err != nil:
		p.say("note", "handoff", "%v", err)
		return
	case status.Chat == "unsupported":
		p.say("note", "handoff", "ids of chats are not read: %s (vLLM reads them from 0.27 on, without a KV connector); completions by %s", status.Why, status.Completions)
		return
	}
	hint := ""
	if p.mode != "auto" {
		hint = "; set handoff.mode=auto to use it"
	}
	p.say("ok", "handoff", "chat by %s, completions by %s, messages by %s%s", status.Chat, status.Completions, status.Messages, hint)
}

// events follows the engine's events for a moment.
func (p *probing) events(ctx context.Context) {
	f := p.a.feeds.of(p.slot)
	o, why, _ := f.source(ctx)
	if why != "" {
		p.say("note", "events", "%s; routing is approximate without", why)
		return
	}
	if other := p.publishers[o.Events.String()]; other != "" {
		p.say("bad", "events", "%s is also where engine %s publishes: give each engine a port of its own in --kv-events-config", o.Events, other)
		return
	}
	p.publishers[o.Events.String()] = p.e.Name
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.Restarted, o.Trusted, o.Metrics = nil, nil, nil
	feed := kvevents.New(o)
	done := make(chan struct{})
	go func() {
		feed.Run(ctx)
		close(done)
	}()
	// The connection is looked at while the feed runs: its end closes it.
	for until := time.Now().Add(probeListen); ctx.Err() == nil && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if trust, _, _ := feed.Trust(); trust == telemetry.TrustExact && f.held.BlockTokens() > 0 {
			break
		}
	}
	trust, reason, _ := feed.Trust()
	stats := feed.Stats()
	cancel()
	<-done
	p.heard(&o, stats.Connected, trust, reason)
	if o.Topic != "" && stats.Connected && stats.Batches+stats.Replayed == 0 {
		p.topic(asked, &o)
	}
	if n := f.held.BlockTokens(); n > 0 {
		p.say("ok", "block size", "%d tokens, learnt from events", n)
	} else {
		p.say("note", "block size", "not learnt yet: no event came in %s; send a prompt of some hundred tokens", probeListen)
	}
}

// topic hears all that an engine publishes, where a subscription to one topic
// brought nothing, and makes it publish for that: a topic that fits nothing
// is silent.
func (p *probing) topic(ctx context.Context, o *kvevents.Options) {
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	up := make(chan struct{}, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-up: // subscribed
			case <-time.After(time.Second):
			}
			// Its own beginning each time, since what is cached is not announced.
			prompt := fmt.Sprint(rand.Uint64(), strings.Repeat(" and so on", 500))
			body, _ := json.Marshal(map[string]any{"model": p.models.IDs[0], "prompt": prompt, "max_tokens": 1})
			_, _, _ = p.e.Post(ctx, "/v1/completions", body, maxSources)
		}
	})
	topic, err := kvevents.Topic(ctx, o.Events, o.Timing, func() {
		select {
		case up <- struct{}{}:
		default:
		}
	})
	cancel()
	asking.Wait()
	switch {
	case err != nil:
		p.say("note", "topic", "%v, on a subscription to everything either", err)
	case !kvevents.TopicFits(topic, o.Topic):
		p.say("bad", "topic", "the engine publishes %.64q, and the subscription is %.64q: set engines.topic to what it publishes, or leave it out", topic, o.Topic)
	default:
		p.say("ok", "topic", "the engine publishes %.64q, which the subscription %.64q takes", topic, o.Topic)
	}
}

// heard tells what the events are good for.
func (p *probing) heard(o *kvevents.Options, connected bool, trust telemetry.Trust, reason string) {
	switch replay := o.Replay.String(); {
	case !connected:
		p.say("bad", "events", "%s: %s; is the port open to this machine, and is it the engine's? (engines.events)", o.Events, reason)
		return
	case replay == "":
		p.say("note", "events", "%s, no replay: after a late start the record is not whole until the cache has turned over (replay_endpoint in --kv-events-config)", o.Events)
	default:
		p.say("ok", "events", "%s, replay %s", o.Events, replay)
	}
	if trust == telemetry.TrustExact {
		p.say("ok", "record", "%s: %s", trust, reason)
		return
	}
	p.say("note", "record", "%s: %s; routing is approximate until it is exact", trust, reason)
}
