package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// sources asks a sim where its events are, and returns the engine settings for
// them.
func sources(t testing.TB, s *rig.SimEngine) (events, replay string) {
	t.Helper()
	_, body := rig.HTTPGet(s.URL() + "/kv_event_sources")
	at := func(key string) string {
		m := regexp.MustCompile(`"` + key + `":"tcp://[^"]*:([0-9]+)"`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no %s in %s", key, body)
		}
		return "tcp://127.0.0.1:" + m[1]
	}
	return at("endpoint"), at("replay_endpoint")
}

// wired starts Ramjet in front of sims whose settings are given, and waits until
// words says so of each.
func wired(t testing.TB, sims []*rig.SimEngine, more func(i int) string, words ...string) *rig.Ramjet {
	t.Helper()
	s := rig.Setup{Loose: true, Flags: append([]string{"--tokens.source=auto", "--tokenizer=" + rig.SimModelFolder(t), rig.PatientTokens}, rig.QuickHealth...)}
	for i, e := range sims {
		s.URLs = append(s.URLs, e.Name+"="+e.URL()+more(i))
	}
	r := rig.StartWith(t, s)
	last := rig.Poll(4*rig.Patience, func() string {
		if last := rig.Said("token ids compared")(r); last != "" {
			return last
		}
		for _, e := range sims {
			v := r.EngineView(e.Name)
			if strings.HasSuffix(v.TrustReason, " yet") || strings.HasSuffix(v.TrustReason, "is being read") || len(words) > 0 && !strings.Contains(strings.Join(words, " "), v.Trust) {
				return fmt.Sprintf("%s is %s: %s", e.Name, v.Trust, v.TrustReason)
			}
		}
		return ""
	})
	if last != "" {
		t.Fatalf("ramjet does not settle: %s", last)
	}
	r.ClosesLater(t)
	return r
}

// TestResidencyFoundByItself names nothing but the engines: where their events
// and replay are, and their topic, is asked of them.
func TestResidencyFoundByItself(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t, "--topic=kv@host@m")
	r := wired(t, sims, func(int) string { return "" }, "exact")
	for _, s := range sims {
		events, replay := sources(t, s)
		if !r.Logged("following the engine's events", `"engine":"`+s.Name+`"`, `"events":"`+events+`"`, `"replay":"`+replay+`"`, `"topic":"kv@host@m"`) {
			t.Errorf("engine %s: not logged with %s, %s", s.Name, events, replay)
		}
	}
	load := rig.NewTalkLoad(30, 60)
	rig.EqualRun(t, r, sims, load, 20)
	e := r.EngineView("a")
	if b := e.BlockTokens; b == nil || *b != 16 {
		t.Errorf("block_tokens %v", b)
	}
	rig.Eventually(t, 2*rig.Patience, "the cache's size", func() string {
		if e = r.EngineView("a"); e.KVBlocks == nil || *e.KVBlocks != 600 || e.Capacity == nil || *e.Capacity != 600*16 {
			return fmt.Sprintf("kv_blocks %v, capacity %v", e.KVBlocks, e.Capacity)
		}
		return ""
	})
}

// TestResidencyRanks finds more than one data-parallel rank: which one serves a
// request nobody knows, so the engine is not exact, with that reason.
func TestResidencyRanks(t *testing.T) {
	t.Parallel()
	engines, s := [2]*rig.Told{}, rig.Setup{Loose: true}
	for i, name := range []string{"a", "b"} {
		p := rig.NewPublisher(t)
		engines[i] = rig.NewTold(t, name, 1000)
		rank := fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d","topic":"kv"}`,
			p.Live.Addr().(*net.TCPAddr).Port, p.Replay.Addr().(*net.TCPAddr).Port)
		engines[i].Get("/kv_event_sources", rig.JSONResponse(200, fmt.Sprintf(`{"0":%s,"1":%s}`, rank, rank)))
		s.URLs = append(s.URLs, name+"="+engines[i].URL())
	}
	r := rig.StartWith(t, s)
	for _, name := range []string{"a", "b"} {
		rig.Eventually(t, 2*rig.Patience, "ranks", func() string {
			if e := r.EngineView(name); e.Trust != "degraded" || !strings.HasPrefix(e.TrustReason, "2 data-parallel ranks") {
				return e.Trust + ": " + e.TrustReason
			}
			return ""
		})
	}
}

// TestCaseC22Topics subscribes to topics that fit, are a prefix, and fit nothing.
func TestCaseC22Topics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ publish, topic, trust, reason string }{
		{"test-topic", "", "exact", ""},
		{"test-topic", "test-topic", "exact", ""},
		{"kv@10.0.0.10@m", "kv@10.0.0.1", "exact", ""},
		{"", "", "exact", ""},
		{"test-topic", "nope", "blind", `nothing received: it publishes topic "test-topic", and the subscription is "nope"`},
	} {
		t.Run(c.publish+" for "+c.topic, func(t *testing.T) {
			t.Parallel()
			sims := rig.Pair(t, "--topic="+c.publish)
			r := wired(t, sims, func(i int) string {
				events, replay := sources(t, sims[i])
				return fmt.Sprintf(",events=%s,replay=%s,topic=%s", events, replay, c.topic)
			})
			a := r.Asker(t)
			defer a.Close()
			load := rig.NewTalkLoad(31, 60)
			for i := range 12 {
				p := a.Chat(r.ID("topic"), load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(100)}}))
				if !p.Ok() || c.trust != "exact" && p.Reason == "exact" {
					t.Errorf("request %d: %v", i, &p)
				}
			}
			for _, s := range sims {
				rig.Eventually(t, 2*rig.Patience, "engine "+s.Name+" "+c.trust+", and why", func() string {
					e := r.EngineView(s.Name)
					n := r.Metrics().Sum("ramjet_kv_events_total", "engine", s.Name, "kind", "stored")
					if e.Trust != c.trust || !strings.HasPrefix(e.TrustReason, c.reason) || (n > 0) != (c.trust == "exact") {
						return fmt.Sprintf("%s (%s), %v events", e.Trust, e.TrustReason, n)
					}
					return ""
				})
			}
			if c.trust == "exact" {
				rig.EqualRun(t, r, sims, load, 10)
			}
		})
	}
	t.Run("a forwarder with two", func(t *testing.T) {
		t.Parallel()
		r, engines, pubs := rig.Scripted(t, 1000)
		engines[0].Hits(func([]int) int { return 0 })
		for seq := range uint64(4) {
			for i, topic := range []string{"kv@10.0.0.1@m", "kv@10.0.0.10@m"} {
				k := 10*int(seq) + i
				pubs[0].Send(rig.Frames{Topic: topic, Seq: seq, Payload: rig.Batch(rig.Stored(nil, rig.HashesOf(k, 2), rig.PromptIDs(k, 32)))})
			}
		}
		if reason := r.TrustIs(t, 2*rig.Patience, "a", "blind", "degraded"); !strings.Contains(reason, "two") {
			t.Errorf("a: %s", reason)
		}
		c := r.Asker(t)
		defer c.Close()
		for i := range 8 {
			if p := c.Post("/v1/completions", r.ID("two"), rig.IdsBody(rig.PromptIDs(10*i, 40))); !p.Ok() || p.Reason == "exact" {
				t.Errorf("request %d: %v", i, &p)
			}
		}
		if e := r.EngineView("a"); e.Trust == "exact" {
			t.Error("exact in the end")
		}
	})
}

// TestCaseC26Check finds one endpoint for two engines in the configuration.
func TestCaseC26Check(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"events: tcp://127.0.0.1:5557", "events: tcp://localhost:5557", "replay: tcp://127.0.0.1:5557"} {
		file := filepath.Join(t.TempDir(), "ramjet.yaml")
		text := "engines:\n  - name: a\n    url: http://127.0.0.1:8001\n    events: tcp://127.0.0.1:5557\n  - name: b\n    url: http://127.0.0.1:8002\n    " + second + "\n"
		if strings.HasPrefix(second, "replay") {
			text += "    events: tcp://127.0.0.1:5559\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"check", "serve"} {
			code, out, errs := runRamjet(t, "", command, "--config", file)
			if code != 1 || !strings.Contains(errs, file+":4") || !strings.Contains(errs, file+":7:") {
				t.Errorf("%s with %q: code %d\n%s%s", command, second, code, out, errs)
			}
		}
	}
}

// TestCaseC26Swapped gives each engine the other's endpoints, or the other's
// replay alone: neither stays exact, the reason says so, and requests are routed
// as without events.
func TestCaseC26Swapped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		events, replay int // whose: 0 its own, 1 the other's
		reason         string
	}{
		{"both", 1, 1, "predictions are off"},
		{"replay", 0, 1, "another engine's events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sims := rig.Pair(t)
			for i, s := range sims { // so that the two differ
				a := rig.NewAsker(t, s.URL())
				load := rig.NewTalkLoad(uint64(40+i), 40)
				for range 3 + 2*i {
					body, tell := load.Next()
					tell(a.Chat("direct", body).Text)
				}
				a.Close()
			}
			r := wired(t, sims, func(i int) string {
				events, _ := sources(t, sims[(i+c.events)%2])
				_, replay := sources(t, sims[(i+c.replay)%2])
				return ",events=" + events + ",replay=" + replay
			})
			a := r.Asker(t)
			defer a.Close()
			load := rig.NewTalkLoad(41, 60)
			for range 60 { // few begin alike: what both hold proves nothing
				load.Heads = append(load.Heads, load.Text(60))
			}
			var bodies []string
			var ttft float64
			cached, found, warm := 0, 0, 0
			for i := range 60 {
				body, tell := load.Next()
				p := a.Chat(r.ID("swap"), body)
				if !p.Ok() {
					t.Fatalf("request %d failed: %v", i, &p)
				}
				tell(p.Text)
				bodies = append(bodies, body)
				cached += p.Cached
				ttft += p.Ended.Sub(p.Began).Seconds()
				if p.Cached > 0 || p.Match > 0 { // cold requests prove nothing
					warm++
				}
				if found == 0 && r.EngineView("a").Trust != "exact" && r.EngineView("b").Trust != "exact" {
					found = max(warm, 1)
				}
			}
			e, f := r.EngineView("a"), r.EngineView("b")
			t.Logf("doubted after %d warm requests: a %s (%s), b %s (%s)", found, e.Trust, e.TrustReason, f.Trust, f.TrustReason)
			if found == 0 || found > 20 || e.Trust == "exact" || f.Trust == "exact" || !strings.Contains(e.TrustReason+f.TrustReason, c.reason) {
				t.Errorf("doubted after %d warm requests: a %s (%s), b %s (%s)", found, e.Trust, e.TrustReason, f.Trust, f.TrustReason)
			}
			for id, d := range decisions(r) {
				if n := len(r.Setup.URLs); strings.HasPrefix(id, "swap") && len(d.Candidates) != n {
					t.Errorf("%s: %d candidates", id, len(d.Candidates))
				}
			}
			// As good as without events.
			off := wired(t, rig.Pair(t), func(int) string { return ",events=off" }, "blind")
			b := off.Asker(t)
			defer b.Close()
			without, offTTFT := 0, 0.0
			for _, body := range bodies {
				p := b.Chat(off.ID("off"), body)
				without += p.Cached
				offTTFT += p.Ended.Sub(p.Began).Seconds()
			}
			t.Logf("cached tokens %d, without events %d; mean time %.1f ms, %.1f ms", cached, without, 1000*ttft/60, 1000*offTTFT/60)
			if float64(cached) < 0.85*float64(without) {
				t.Errorf("%d cached tokens, %d without events", cached, without)
			}
		})
	}
}

// forward passes connections on to an address.
func forward(t testing.TB, to string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, p := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(p[0], p[1])
					_ = p[0].Close()
				}()
			}
		}
	}()
	return ln.Addr().String()
}

// TestCaseC26Shared brings one engine's events to both by a way that no setting
// shows.
func TestCaseC26Shared(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	events, replay := sources(t, sims[0])
	r := wired(t, sims, func(i int) string {
		if i == 0 {
			return ",events=" + events + ",replay=" + replay
		}
		return ",events=tcp://" + forward(t, strings.TrimPrefix(events, "tcp://")) + ",replay=tcp://" + forward(t, strings.TrimPrefix(replay, "tcp://"))
	})
	a := r.Asker(t)
	defer a.Close()
	load := rig.NewTalkLoad(42, 60)
	found := 0
	for i := range 40 {
		body, tell := load.Next()
		p := a.Chat(r.ID("shared"), body)
		if !p.Ok() {
			t.Fatalf("request %d failed: %v", i, &p)
		}
		tell(p.Text)
		if found == 0 && r.EngineView("a").Trust != "exact" && r.EngineView("b").Trust != "exact" {
			found = i + 1
		}
	}
	t.Logf("found after %d requests", found)
	for i, name := range []string{"a", "b"} {
		e := r.EngineView(name)
		if e.Trust == "exact" || !strings.Contains(e.TrustReason, "engine "+[]string{"b", "a"}[i]) && !strings.Contains(e.TrustReason, "predictions are off") {
			t.Errorf("%s: %s (%s)", name, e.Trust, e.TrustReason)
		}
	}
	if found == 0 || found > 20 {
		t.Errorf("found after %d requests", found)
	}
	if p := a.Chat(r.ID("shared"), load.Body([]rig.TalkMessage{{Role: "user", Content: "hello"}})); !p.Ok() || r.Explain(t, p.ID).Keys == "exact" {
		t.Errorf("exact still: %v", &p)
	}
}

// TestResidencyUsageInjected audits answers whose client did not ask for usage:
// the engine is asked, and the client gets what it would have got.
func TestResidencyUsageInjected(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact", "--usage=inject")
	a, load := r.Asker(t), rig.NewTalkLoad(50, 60)
	defer a.Close()
	plain := func(m []rig.TalkMessage) string {
		return strings.Replace(load.Body(m), `,"stream_options":{"include_usage":true}`, "", 1)
	}
	history := []rig.TalkMessage{{Role: "user", Content: load.Text(80)}}
	cached := 0
	for i := range 10 {
		body := plain(history)
		id := r.ID("inject")
		p := a.Chat(id, body)
		if p.Err != nil || p.Status != 200 || p.Usage {
			t.Fatalf("request %d: %v, usage shown %v", i, &p, p.Usage)
		}
		d := r.Explain(t, id)
		if d.Keys != "exact" || d.Result == nil || d.Result.Cached == nil || *d.Result.Cached != p.Match || d.Result.Prompt == nil {
			t.Errorf("request %d: %v; %+v", i, &p, d.Result)
		} else {
			cached += *d.Result.Cached
		}
		if n := r.Line(t, id).Num("cached_tokens"); int(n) != p.Match {
			t.Errorf("request %d: %v cached tokens in the access line, match %d", i, n, p.Match)
		}
		direct := rig.NewAsker(t, sims[0].URL())
		q := direct.Chat(id, body)
		direct.Close()
		if got, want := p.Skeleton(), q.Skeleton(); got != want || strings.Contains(string(p.Raw), `"usage"`) {
			t.Errorf("request %d: not what the engine sends without it\n%s\n%s", i, got, want)
		}
		history = append(history, rig.TalkMessage{Role: "assistant", Content: p.Text}, rig.TalkMessage{Role: "user", Content: load.Text(30)})
		r.InStep(t, sims...)
	}
	if got := r.Metrics().Sum("ramjet_cached_tokens_total"); int(got) != cached || cached == 0 {
		t.Errorf("%v cached tokens counted, want %d", got, cached)
	}
	// An engine that lies is found though no client asked.
	for _, s := range sims {
		fault(t, s, "event-lie", 0)
	}
	for i := 0; i < 20; i++ {
		p := a.Chat(r.ID("inject"), plain(history))
		history = append(history, rig.TalkMessage{Role: "assistant", Content: p.Text}, rig.TalkMessage{Role: "user", Content: load.Text(10)})
		if p.Status != 200 || p.Err != nil {
			t.Fatalf("request failed: %v", &p)
		}
	}
	if rig.Trusted(r) == "" {
		t.Error("all are believed though they lie")
	}
}
