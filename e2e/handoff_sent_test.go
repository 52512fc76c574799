package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// handingOver are Ramjet's flags of these tests: prompts of 64 tokens are worth
// it here.
var handingOver = []string{"--handoff.mode=auto", "--handoff.min-tokens=64"}

// probed waits until every engine was asked whether it reads ids.
var probed = rig.Said("handing over token ids")

// longEnough is a text of more than 64 tokens.
var longEnough = strings.Repeat("The river runs to the sea and never comes back. ", 12)

// TestHandoffAnswersEqual: the same conversations through a Ramjet that hands
// ids over and one that does not get the same answers and the same counts, and
// the engine reads the ids wherever Ramjet says so.
func TestHandoffAnswersEqual(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", simFast...)}
	dir := rig.SimModelFolder(t)
	with := rig.StartSims(t, rig.SimSetup{Sims: sims, Model: dir, Flags: handingOver, Settled: probed})
	without := rig.StartSims(t, rig.SimSetup{Sims: sims, Model: dir, Settled: rig.Said("token ids compared")})
	before, sent := state(t, sims[0]).HandedOver, with.Handed("sent")
	handed := map[string]int{}
	for n, kind := range sessionKinds {
		one, two := newSimSession(5, n, kind), newSimSession(5, n, kind)
		one.fill, two.fill = 120, 120
		for turn := range 6 {
			stream := turn%2 == 1
			a, b := ask(t, with, one, stream), ask(t, without, two, stream)
			if a.answer.text != b.answer.text || a.answer.prompt != b.answer.prompt || a.answer.text == "" {
				t.Errorf("%s turn %d: with ids %+v, without %+v", kind, turn+1, a.answer, b.answer)
			}
			a.counted(t)
			if b.x.Handoff {
				t.Errorf("%s: handed over though it is off", kind)
			}
			if a.x.Handoff {
				handed[kind]++
				if a.answer.prompt < 64 {
					t.Errorf("%s: %d tokens were handed over", kind, a.answer.prompt)
				}
			}
		}
	}
	total := 0
	for _, kind := range sessionKinds {
		total += handed[kind]
		if never := strings.HasPrefix(kind, "responses"); never != (handed[kind] == 0) || !never && handed[kind] < 3 {
			t.Errorf("%s: %d of 6 requests were handed over", kind, handed[kind])
		}
	}
	if got := with.Handed("sent") - sent; got != total {
		t.Errorf("%d requests explained as handed over, %d counted", total, got)
	}
	if got := state(t, sims[0]).HandedOver - before; got != total-handed["completions"] {
		t.Errorf("the engine took ids beside messages for %d requests, %d were sent", got, total-handed["completions"])
	}
	if p, u, m, s := with.Handed("probed"), with.Handed("unsupported"), with.Handed("mismatch"), with.Handed("stopped"); p != 1 || u+m+s != 0 {
		t.Errorf("probed %d, unsupported %d, mismatch %d, stopped %d", p, u, m, s)
	}
	if n := without.Handed("sent") + without.Handed("probed"); n != 0 {
		t.Errorf("off, and %d are counted", n)
	}
}

// handoffGuards are requests whose ids must stay here (DESIGN section 5), and
// at the end twins of them that are handed over.
var handoffGuards = []struct {
	what, path string
	body       string
	handed     bool
}{
	{"short", rig.ChatPath, `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"short"}]}`, false},
	{"the client's own parameters", rig.ChatPath, `{"model":"m","max_tokens":2,"kv_transfer_params":{"do_remote_decode":false},"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"the client's own ids", rig.ChatPath, `{"model":"m","max_tokens":2,"kv_transfer_params":{"prompt_token_ids":[5,6,7]},"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"the client's own field", rig.ChatPath, `{"model":"m","max_tokens":2,"prompt_token_ids":[5,6,7],"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"an escaped name", rig.ChatPath, `{"model":"m","max_tokens":2,"kv_transfer\u005fparams":{"prompt_token_ids":[5,6,7]},"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"a template of its own", rig.ChatPath, `{"model":"m","max_tokens":2,"chat_template":"x","messages":[{"role":"user","content":"LONG"}]}`, false},
	{"echo", rig.ChatPath, `{"model":"m","max_tokens":2,"echo":true,"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"echo of completions", "/v1/completions", `{"model":"m","max_tokens":2,"echo":true,"prompt":"LONG"}`, false},
	{"logprobs of the prompt", "/v1/completions", `{"model":"m","max_tokens":2,"prompt_logprobs":1,"prompt":"LONG"}`, false},
	{"two prompts", "/v1/completions", `{"model":"m","max_tokens":2,"prompt":["LONG","LONG"]}`, false},
	{"one prompt in a list", "/v1/completions", `{"model":"m","max_tokens":2,"prompt":["LONG"]}`, true},
	{"prompt as ids", "/v1/completions", `{"model":"m","max_tokens":2,"prompt":[` + strings.Repeat("5,6,7,8,", 30) + `9]}`, false},
	{"cut by the engine", rig.ChatPath, `{"model":"m","max_tokens":2,"truncate_prompt_tokens":20,"messages":[{"role":"user","content":"LONG"}]}`, false},
	{"Responses", rig.ResponsesPath, `{"model":"m","max_output_tokens":2,"input":"LONG"}`, false},
	{"echo off", rig.ChatPath, `{"model":"m","max_tokens":2,"echo":false,"messages":[{"role":"user","content":"LONG"}]}`, true},
	{"chat", rig.ChatPath, `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"LONG"}]}`, true},
	{"several choices", rig.ChatPath, `{"model":"m","max_tokens":2,"n":2,"messages":[{"role":"user","content":"LONG"}]}`, true},
	{"messages", rig.MessagesPath, `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"LONG"}]}`, true},
	{"completions", "/v1/completions", `{"model":"m","max_tokens":2,"prompt":"LONG"}`, true},
}

// TestHandoffGuards: what must not be handed over reaches the engine byte for
// byte, and the dry run says beforehand which it will be.
func TestHandoffGuards(t *testing.T) {
	t.Parallel()
	s := rig.StartSim(t, "a", simFast...)
	r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: rig.SimModelFolder(t), Flags: handingOver, Settled: probed})
	for _, c := range handoffGuards {
		body := strings.ReplaceAll(c.body, "LONG", longEnough+c.what)
		if dry := dryRun(t, r, c.path, body); dry.Handoff != c.handed {
			t.Errorf("%s: the dry run says handoff %v", c.what, dry.Handoff)
		}
		id := r.ID("guard")
		res := r.Do(t, rig.Request("POST", c.path, id, body))
		if x := r.Explain(t, id); x.Handoff != c.handed {
			t.Errorf("%s: handoff %v (keys %s, note %q)", c.what, x.Handoff, x.Keys, x.Note())
		}
		if received(t, s, body) == c.handed {
			t.Errorf("%s: the engine received it byte for byte: %v", c.what, !c.handed)
		}
		if direct := postRaw(t, s.URL()+c.path, body); direct.status != res.Status || direct.text != answerText(res) {
			t.Errorf("%s: answered %d %q, by the engine itself %d %q", c.what, res.Status, answerText(res), direct.status, direct.text)
		}
	}
	// Media: the sim's model takes none and says so itself.
	image := `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":[{"type":"text","text":"` + longEnough + `"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`
	if res := r.Post(t, rig.ChatPath, image); res.Status != 400 || !received(t, s, image) {
		t.Errorf("media: %d, byte for byte %v", res.Status, received(t, s, image))
	}
}

// answerText is an answer's generated text, or the error as it came.
func answerText(r *rig.Response) string {
	if a, err := readSimAnswer(r); err == nil {
		return a.text
	}
	return string(r.Body)
}

type rawAnswer struct {
	status int
	text   string
}

// postRaw asks an engine itself.
func postRaw(t testing.TB, url, body string) rawAnswer {
	t.Helper()
	resp, err := rig.AdminClient.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("cannot ask the engine: %v", err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatalf("cannot read the answer: %v", err)
	}
	r := &rig.Response{Status: resp.StatusCode, Body: b.Bytes(), Complete: true}
	return rawAnswer{resp.StatusCode, answerText(r)}
}

// dryRun asks what would be chosen.
func dryRun(t testing.TB, r *rig.Ramjet, path, body string) (x rig.Explained) {
	t.Helper()
	if err := json.Unmarshal([]byte(dryRunRaw(t, r, path, body)), &x); err != nil {
		t.Fatalf("dry run of %.200s: %v", body, err)
	}
	return x
}

// dryRunRaw is dryRun with a header, if one is given, and the record as it
// came.
func dryRunRaw(t testing.TB, r *rig.Ramjet, path, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+r.Admin+"/api/v1/explain?path="+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := rig.AdminClient.Do(req)
	if err != nil {
		t.Fatalf("cannot ask for a dry run: %v", err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatalf("dry run of %.200s: %d %.300s, %v", body, resp.StatusCode, b.Bytes(), err)
	}
	return b.String()
}

// TestHandoffForms: what engines of all kinds read is found out by trying, and
// no request fails because of it.
func TestHandoffForms(t *testing.T) {
	t.Parallel()
	dir := rig.SimModelFolder(t)
	for _, c := range []struct{ mode, chat, note string }{
		{"both", "prompt_token_ids", ""},
		{"field", "prompt_token_ids", ""},
		{"params", "kv_transfer_params", ""},
		{"ignore", "unsupported", "ignores ids"},
		{"refuse", "unsupported", "answers 4"},
		{"connector", "unsupported", "KV connector"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := rig.StartSim(t, "a", slices.Concat(simFast, []string{"--handoff=" + c.mode})...)
			r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: dir, Flags: handingOver, Settled: probed})
			line := r.LogLine("handing over token ids")
			if !strings.Contains(line, `"chat":"`+c.chat+`"`) || !strings.Contains(line, `"messages":"`+c.chat+`"`) || !strings.Contains(line, `"completions":"prompt"`) || !strings.Contains(line, c.note) {
				t.Errorf("the log says %s", line)
			}
			before := state(t, s)
			for _, g := range handoffGuards {
				if !g.handed {
					continue
				}
				body := strings.ReplaceAll(g.body, "LONG", longEnough+g.what)
				a := askBody(t, r, g.path, body)
				want := c.chat != "unsupported" || g.path == "/v1/completions"
				if a.x.Handoff != want || received(t, s, body) == want {
					t.Errorf("%s: handoff %v, byte for byte %v, want %v", g.what, a.x.Handoff, received(t, s, body), want)
				}
				if direct := postRaw(t, s.URL()+g.path, body); direct.text != a.answer.text {
					t.Errorf("%s: answered %q, by the engine itself %q", g.what, a.answer.text, direct.text)
				}
			}
			if got := state(t, s); got.Connector != before.Connector {
				t.Errorf("%d requests went to the KV connector", got.Connector-before.Connector)
			}
		})
	}
}

// TestHandoffRestart: after a restart the engine may be of another version, so
// that nothing is handed over until it was probed again.
func TestHandoffRestart(t *testing.T) {
	t.Parallel()
	s := rig.StartSim(t, "a", simFast...)
	r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: rig.SimModelFolder(t), Settled: probed,
		Flags: append([]string{"--health.interval=50ms", "--health.stable=50ms", "--health.successes=1", "--health.slow-start=0s"}, handingOver...)})
	body := `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"` + longEnough + `"}]}`
	if a := askBody(t, r, rig.ChatPath, body); !a.x.Handoff {
		t.Fatal("not handed over before")
	}
	postRaw(t, s.URL()+"/sim/handoff", `{"mode":"ignore"}`)
	postRaw(t, s.URL()+"/sim/restart", `{"seconds":0.3}`)
	rig.Eventually(t, 3*rig.Patience, "probed again", func() string {
		if !r.Logged("handing over token ids", `"chat":"unsupported"`) {
			return "not yet"
		}
		return ""
	})
	rig.Eventually(t, 2*rig.Patience, "ready", func() string {
		if state := r.EngineState("a"); state != "ready" && state != "slow-start" {
			return state
		}
		return ""
	})
	if a := askBody(t, r, rig.ChatPath, body); a.x.Handoff || !received(t, s, body) {
		t.Error("handed over to an engine that ignores ids")
	}
	r.Rebase()
}

// TestHandoffGain: a session that comes back gets its first token sooner, for
// the engine need not render and tokenize 40,000 tokens again. Times are
// compared, so that it does not run beside the other tests, and of 9 pairs the
// least counts: what else the machine does only adds.
func TestHandoffGain(t *testing.T) {
	rig.Slow(t, "the sim computes a long prompt at the speed of its calibration")
	s := rig.StartSim(t, "a")
	dir := rig.SimModelFolder(t)
	with := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: dir, Flags: handingOver, Settled: probed})
	without := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: dir, Settled: rig.Said("token ids compared")})
	history := strings.Repeat("The river runs to the sea and never comes back. ", 3600)
	turn := func(r *rig.Ramjet, n int) float64 {
		t.Helper()
		id := r.ID("gain")
		body := fmt.Sprintf(`{"model":"m","max_tokens":1,"stream":true,"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"So it is."},{"role":"user","content":"Question %d"}]}`, history, n)
		c := r.Dial(t)
		defer c.Close()
		began := time.Now()
		c.Send(rig.Request("POST", rig.ChatPath, id, body))
		c.EventCount(4*rig.Patience, 1)
		took := time.Since(began).Seconds()
		c.Response(rig.Patience)
		if x := r.Explain(t, id); x.Handoff != (r == with) || x.PromptTokens < 30_000 {
			t.Fatalf("handoff %v, %v tokens, note %q", x.Handoff, x.PromptTokens, x.Note())
		}
		return took
	}
	turn(without, 0) // computes the prompt
	turn(with, 0)    // makes its ids
	var plain, ids []float64
	for n := range 9 {
		plain, ids = append(plain, turn(without, n+1)), append(ids, turn(with, n+1))
	}
	without9, with9 := slices.Min(plain), slices.Min(ids)
	t.Logf("time to the first token, least of 9: %.1f ms without ids, %.1f ms with", 1000*without9, 1000*with9)
	if with9 > 0.8*without9 {
		t.Errorf("handing over gains too little: %v with, %v without", ids, plain)
	}
}
