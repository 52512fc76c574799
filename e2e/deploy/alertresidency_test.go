package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// residencyCases concern what Ramjet knows of the engines' caches.
var residencyCases = []alertCase{
	{"the publisher stands still", []string{"RamjetResidencyUntrusted"}, func(ctx context.Context, l *lab) *proxy {
		a, _, p := pair(l, withEvents, "", "--route.policy=round-robin")
		p.trusts("a")
		l.every(ctx, 50*time.Millisecond, func(i int) { ask(ctx, p, question(i)) })
		eventually(l, "events", func() error {
			if strings.Contains(p.metrics(), `ramjet_kv_events_total{engine="a",kind="stored"} 0`) {
				return errors.New("none yet")
			}
			return nil
		})
		a.fault(`"kind":"event-stop","count":0`)
		return p
	}},
	{"batches of events get lost", []string{"RamjetEventsLost"}, func(ctx context.Context, l *lab) *proxy {
		a, _, p := pair(l, withEvents, "", "--route.policy=round-robin")
		p.trusts("a")
		l.every(ctx, 50*time.Millisecond, func(i int) { ask(ctx, p, question(i)) })
		l.every(ctx, time.Second, func(int) { a.fault(`"kind":"event-gap","count":1`) })
		return p
	}},
	{"an engine forgets without a word", []string{"RamjetMatchWrong"}, func(ctx context.Context, l *lab) *proxy {
		dir := modelFolder(l)
		a := startEngine(l, withEvents...)
		p := startProxy(l, proxyOptions{engines: []*engine{a}, flags: []string{"--tokens.path=" + dir}})
		p.trusts("a")
		l.every(ctx, 50*time.Millisecond, func(i int) {
			if i == 20 { // after some answers whose cached tokens were as predicted
				a.fault(`"kind":"event-lie","count":0`)
			}
			ask(ctx, p, strings.Repeat("the same words again and again ", 40))
		})
		return p
	}},
	{"another chat template", []string{"RamjetHandoffStopped"}, func(ctx context.Context, l *lab) *proxy {
		dir := modelFolder(l)
		// With documents, which the engine's own template does not know, the last header is another word of as many tokens:
		// counting cannot find that, the comparison of a sample does.
		path := filepath.Join(dir, "chat_template.jinja")
		text, err := os.ReadFile(path)
		if err != nil {
			l.Fatal(err)
		}
		const was = "  {{- '<|im_start|>assistant\\n' -}}\n  {%- if enable_thinking"
		if strings.Count(string(text), was) != 1 {
			l.Fatal("the simulated model's template has changed")
		}
		changed := strings.Replace(string(text), was, "  {{- '<|im_start|>' + ('resistant' if documents else 'assistant') + '\\n' -}}\n  {%- if enable_thinking", 1)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			l.Fatal(err)
		}
		p := startProxy(l, proxyOptions{engines: []*engine{startEngine(l, withEvents...)},
			flags: []string{"--tokens.path=" + dir, "--handoff.mode=auto", "--handoff.min-tokens=64"}})
		p.ready()
		l.every(ctx, 100*time.Millisecond, func(i int) {
			if i == 0 {
				l.awaitWatched(ctx) // the difference counts once
			}
			send(ctx, p, fmt.Sprintf(`{"max_tokens":2,"documents":[{"text":"d"}],"messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("a long enough question ", 60)))
		})
		return p
	}},
}
