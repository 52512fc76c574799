package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/config"
)

// TestDemoOnce: 200 requests of conversations, the table, and nothing left
// behind.
func TestDemoOnce(t *testing.T) {
	f := newFakeRamjet(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	out, cfg, err := f.demo(t, DemoOptions{Once: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Engines) != 2 || cfg.Engines[0].Profile != "mtp" || cfg.Engines[1].Profile != "standard" || cfg.Handoff.Mode != "auto" || !strings.HasPrefix(cfg.Tokens.Path, tmp) {
		t.Errorf("engines %+v, handoff %q, tokens %q", cfg.Engines, cfg.Handoff.Mode, cfg.Tokens.Path)
	}
	for _, e := range cfg.Engines {
		if !strings.HasPrefix(e.Events, "tcp://127.0.0.1:") || !strings.HasPrefix(e.Replay, "tcp://127.0.0.1:") || e.Events == e.Replay {
			t.Errorf("events %q, replay %q", e.Events, e.Replay)
		}
	}
	for _, want := range []string{"engine   requests", "\nall      200 ", "match         75% of", "exact         200 of 200 decisions", "handed over   100 requests", "ms with ids, ", "curl -N http://" + f.addr(), "page       http://" + f.addr(), "kill b     curl -X POST http://127.0.0.1:"} {
		if !strings.Contains(out, want) {
			t.Errorf("not printed: %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if f.chats != onceRequests {
		t.Errorf("%d chats", f.chats)
	}
}

// TestDemoProblems are told, and leave nothing behind either.
func TestDemoProblems(t *testing.T) {
	f := newFakeRamjet(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/chat/completions" {
			return false
		}
		w.WriteHeader(503)
		return true
	}
	out, _, err := f.demo(t, DemoOptions{Once: true})
	if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(out, "200 requests failed") {
		t.Errorf("%v, printed %s", err, out)
	}
	refused := errors.New("no port")
	err = Demo(t.Context(), DemoOptions{Once: true, Serve: func(*config.Config) (*Running, error) { return nil, refused }})
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if err := Demo(t.Context(), DemoOptions{Flags: []string{"--no-such=1"}}); err == nil {
		t.Error("an unknown flag is taken")
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDemoSteady prints its lines until it is told to stop.
func TestDemoSteady(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newLoad(f.URL, f.URL, "m")
	defer l.client.CloseIdleConnections()
	out := &untilLine{line: "match", stop: cancel}
	l.runSteady(ctx, out)
	for _, want := range []string{"in flight", "a: ", "b: ", "match  75%", "exact 100%", "handed over", "first token "} {
		if !strings.Contains(out.text.String(), want) {
			t.Errorf("not printed: %q in %s", want, out.text.String())
		}
	}
	if l.firstError() != nil || l.failed != 0 {
		t.Errorf("%d failed: %v", l.failed, l.firstError())
	}
}

// untilLine stops at the first line that holds a word.
type untilLine struct {
	text strings.Builder
	line string
	stop func()
}

func (u *untilLine) Write(p []byte) (int, error) {
	if strings.Contains(string(p), u.line) {
		u.stop()
	}
	return u.text.Write(p)
}

// TestDemoConfig: what the user says wins.
func TestDemoConfig(t *testing.T) {
	t.Parallel()
	engines := []demoEngine{
		{"http://127.0.0.1:1", "http://127.0.0.1:7", "mtp", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"},
		{"http://127.0.0.1:4", "http://127.0.0.1:8", "standard", "tcp://127.0.0.1:5", "tcp://127.0.0.1:6"},
	}
	for _, c := range []struct {
		flags, env []string
		ok         func(*config.Config) bool
	}{
		{nil, nil, func(c *config.Config) bool {
			return c.Handoff.Mode == "auto" && c.Tokens.Path == "/m" && c.Log.Level == "warn"
		}},
		{[]string{"--handoff.mode=off", "--log.level=info"}, nil, func(c *config.Config) bool { return c.Handoff.Mode == "off" && c.Log.Level == "info" }},
		{nil, []string{"RAMJET_HANDOFF_MODE=off"}, func(c *config.Config) bool { return c.Handoff.Mode == "off" }},
		{[]string{"--tokenizer=/other"}, nil, func(c *config.Config) bool { return c.Tokens.Path == "/other" }},
		{[]string{"--tokens.source=off"}, nil, func(c *config.Config) bool { return c.Tokens.Source == "off" && c.Tokens.Path == "" }},
		{[]string{"--listen=127.0.0.1:7001", "--admin=127.0.0.1:7002"}, nil, func(c *config.Config) bool {
			return c.Listen[0] == "127.0.0.1:7001" && c.Admin.Listen == "127.0.0.1:7002"
		}},
		{nil, nil, func(c *config.Config) bool {
			return slices.Equal(c.GPU.DCGM, []string{"http://127.0.0.1:7/sim/dcgm/100", "http://127.0.0.1:8/sim/dcgm/101"}) &&
				slices.Equal(c.Engines[0].GPUs, []int{100}) && slices.Equal(c.Engines[1].GPUs, []int{101})
		}},
		{[]string{"--gpu.source=off"}, nil, func(c *config.Config) bool { return c.GPU.Source == "off" && len(c.GPU.DCGM) == 0 }},
		{nil, []string{"RAMJET_GPU_DCGM=http://h:9400"}, func(c *config.Config) bool { return slices.Equal(c.GPU.DCGM, []string{"http://h:9400"}) }},
		{[]string{"--exact=shadow"}, nil, func(c *config.Config) bool { return c.Route.Exact.Mode == config.ExactShadow }},
	} {
		cfg, err := demoConfig(DemoOptions{Flags: c.flags, Env: c.env}, engines, "/m")
		if err != nil || !c.ok(cfg) {
			t.Errorf("%v %v: %v %+v", c.flags, c.env, err, cfg)
		}
	}
}

// TestWaitReady: it gives up on a proxy that never serves, but not on one that
// never learns about its engines.
func TestWaitReady(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		path  string // that is answered 503
		wants bool   // an error
		after time.Duration
	}{{"well", "", false, 0}, {"never ready", "/readyz", true, readyLimit}, {"no topology", "/api/v1/topology", false, knownLimit}, {"no metrics", "/metrics", false, knownLimit}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeRamjet{}
			l := newLoad("http://ramjet", "http://ramjet", "m")
			l.client.Transport = inProcess(func(w *memory, r *http.Request) {
				if r.URL.Path == c.path {
					w.status = 503
					return
				}
				f.serve(w, r)
			})
			began := time.Now()
			err := l.waitReady(t.Context(), true)
			if took := time.Since(began); (err != nil) != c.wants || took < c.after || took > c.after+time.Second {
				t.Errorf("%s: %v after %v", c.what, err, took)
			}
		})
	}
}

// TestTalk: each turn holds the ones before, and every second one keeps its ids
// to itself.
func TestTalk(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		k := newTalk(n)
		before := ""
		for turn := range talkTurns {
			body, err := json.Marshal(k.next("m"))
			if err != nil {
				t.Fatal(err)
			}
			if own := strings.Contains(string(body), `"kv_transfer_params":{}`); own != ((n+turn)%2 == 1) {
				t.Errorf("turn %d of conversation %d has parameters of its own: %v", turn, n, own)
			}
			messages, err := json.Marshal(k.messages)
			if err != nil {
				t.Fatal(err)
			}
			if turn > 0 && !strings.HasPrefix(string(messages), before) {
				t.Errorf("turn %d does not begin as the one before", turn)
			}
			before = strings.TrimSuffix(string(messages), "]")
			k.answered("answer")
		}
	}
}

// TestAnswerRead: a stream cut short, an error in it, and text that is no JSON.
func TestAnswerRead(t *testing.T) {
	t.Parallel()
	const whole = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n: comment\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"
	var a answer
	if err := a.read(strings.NewReader(whole), time.Now()); err != nil || a.text != "x" || a.prompt != 3 || a.output != 1 || a.ttft <= 0 {
		t.Errorf("%v %+v", err, a)
	}
	end := strings.Index(whole, "[DONE]") + len("[DONE]\n")
	for n := range end {
		var a answer
		if err := a.read(strings.NewReader(whole[:n]), time.Now()); err == nil {
			t.Errorf("%d bytes of %d are taken for the whole", n, end)
		}
	}
	for _, bad := range []string{"data: {\n\n", "data: {\"error\":{\"message\":\"gone\"}}\n\n"} {
		if err := new(answer).read(strings.NewReader(bad), time.Now()); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	if share(1, 0) != "   -" || share(1, 3) != " 33%" || share(3, 3) != "100%" {
		t.Errorf("%q %q %q", share(1, 0), share(1, 3), share(3, 3))
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	load := func(args ...string) func() (*config.Config, error) {
		return func() (*config.Config, error) { return config.Load(config.LoadOptions{Args: args}) }
	}
	use := func(c *config.Config) (problems config.Problems) {
		if c.Auth.KeysFile != "" {
			problems = config.Problems{c.Problem("auth.keys_file", errors.New("holds none"))}
		}
		return problems
	}
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--engine=a=http://127.0.0.1:1"}, 0, "valid, digest ", ""},
		{[]string{"--engine=a=http://127.0.0.1:1", "--tokenizer=/nonexistent"}, 1, "", "--tokenizer"},
		{[]string{"--engine=a=gopher://x"}, 1, "", "a"},
		{[]string{"--no-such"}, 2, "", "no-such"},
		{[]string{"--engine=a=http://127.0.0.1:1", "--auth.keys-file=" + os.DevNull}, 1, "", "auth.keys_file: holds none"},
	} {
		var out, errs strings.Builder
		if code := Check(&out, &errs, load(c.args...), use); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: exit %d, printed %q and %q", c.args, code, out.String(), errs.String())
		}
	}
	var out, errs strings.Builder
	if code := Check(&out, &errs, func() (*config.Config, error) { return nil, os.ErrPermission }, use); code != 1 || errs.Len() == 0 {
		t.Errorf("exit %d", code)
	}
}
