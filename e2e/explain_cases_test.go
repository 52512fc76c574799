package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ramjet/e2e/rig"
)

// explanationMembers are all members of a decision record (CONTRACT section
// 4): none is ever absent.
var explanationMembers = []string{
	"request_id", "time", "path", "model", "dialect", "stream", "session", "prompt_tokens", "keys", "keys_note", "output_cap", "expected_output_tokens", "handoff",
	"policy", "cohort", "candidates", "engine", "reason", "runner_up", "margin_s", "forgone_tokens", "shadow", "attempts", "result",
}

var candidateMembers = []string{
	"engine", "profile", "state", "trust", "usable", "note", "match_tokens", "match_exact_tokens", "match_approximate_tokens", "match_in_flight_tokens", "uncached_tokens",
	"queue_tokens", "prefill_requests", "decode_requests", "prefill_tokens_per_s", "seconds_per_token", "wait_s", "prefill_s", "decode_s", "delay_s", "cost_s",
}

var resultMembers = []string{"status", "end", "prompt_tokens", "cached_tokens", "output_tokens", "route_s", "ttft_s", "duration_s"}

// hasMembers checks that all members are there.
func hasMembers(t testing.TB, what string, o object, want []string) {
	t.Helper()
	for _, m := range want {
		if _, ok := o[m]; !ok {
			t.Errorf("%s has no %s: %v", what, m, o)
		}
	}
}

// explainSetup is a Ramjet in front of two engines that are called an mtp and a
// standard one. Both are standard ones: what MTP takes from a hit is learnt
// from some answers only.
func explainSetup(t *testing.T, flags ...string) *rig.Ramjet {
	t.Helper()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", slices.Concat(simFast, simEvents)...), rig.StartSim(t, "b", slices.Concat(simFast, simEvents)...)}
	sims[0].More, sims[1].More = ",profile=mtp", ",profile=standard"
	return rig.StartSims(t, rig.SimSetup{Sims: sims, Model: rig.SimModelFolder(t), Flags: append(flags, handingOver...), Settled: rig.Both(rig.Trusted, probed)})
}

// TestExplainRecord: the record of a request that was served and that of a dry
// run have every member, and they agree with headers and access line.
func TestExplainRecord(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	body := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"user":"somebody","messages":[{"role":"user","content":"` + longEnough + `"}]}`
	first := askBody(t, r, rig.ChatPath, body)
	var dry object
	dryRaw := dryRunRaw(t, r, rig.ChatPath, body)
	if err := json.Unmarshal([]byte(dryRaw), &dry); err != nil {
		t.Fatal(err)
	}
	hasMembers(t, "the dry run", dry, explanationMembers)
	if dry["result"] != nil || fmt.Sprint(dry["attempts"]) != "[]" || dry["request_id"] != nil {
		t.Errorf("a dry run has attempts %v, result %v, id %v", dry["attempts"], dry["result"], dry["request_id"])
	}
	if dry["engine"] != first.x.Engine || dry["reason"] != "exact" || dry["handoff"] != true || dry["output_cap"] != 7.0 || dry["dialect"] != "openai" || dry["stream"] != true {
		t.Errorf("the dry run of a warm prompt: %s", dryRaw)
	}
	a := askBody(t, r, rig.ChatPath, body)
	var x object
	r.Get(t, "/api/v1/explain/"+a.x.RequestID, &x)
	hasMembers(t, "the record", x, explanationMembers)
	for _, c := range x["candidates"].([]any) {
		hasMembers(t, "a candidate", c.(object), candidateMembers)
	}
	hasMembers(t, "the result", x["result"].(object), resultMembers)
	for _, same := range []string{"engine", "reason", "keys", "session", "prompt_tokens", "handoff", "output_cap", "policy", "model", "path"} {
		if fmt.Sprint(x[same]) != fmt.Sprint(dry[same]) {
			t.Errorf("%s: %v served, %v in the dry run before", same, x[same], dry[same])
		}
	}
	res := x["result"].(object)
	if res["status"] != 200.0 || res["end"] != "done" || res["output_tokens"] != 7.0 || res["ttft_s"] == nil || res["cached_tokens"] != float64(a.match) || a.match == 0 {
		t.Errorf("result %v, match %d", res, a.match)
	}
	if a.line.Str("reason") != x["reason"] || a.line.Str("engine") != x["engine"] || a.line.Str("session") != x["session"] || x["session"] == "somebody" {
		t.Errorf("access line %v, record %v", a.line, x)
	}
	// The session headers count in a dry run as in a request (CONTRACT 10.9).
	if with := dryRunRaw(t, r, rig.ChatPath, body, "X-Session-Id", "s-1"); strings.Contains(with, fmt.Sprintf(`"session":%q`, x["session"])) {
		t.Error("the dry run does not look at X-Session-Id")
	}
}

// TestExplainNotes: keys_note says why keys are not exact, whatever they are.
func TestExplainNotes(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	for _, c := range []struct{ what, path, body, note string }{
		{"template", rig.ChatPath, `{"model":"m","chat_template":"x","messages":[{"role":"user","content":"Hello"}]}`, "template in request"},
		{"media", rig.ChatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, "media"},
		{"stored", rig.ResponsesPath, `{"model":"m","previous_response_id":"resp_1","input":"Hello"}`, "stored response"},
		{"own ids", rig.ChatPath, `{"model":"m","prompt_token_ids":[1,2,3],"messages":[{"role":"user","content":"Hello"}]}`, "-"},
		{"truncation", "/v1/completions", `{"model":"m","truncate_prompt_tokens":3,"prompt":"Hello"}`, "truncation"},
		{"fine", rig.ChatPath, `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`, ""},
	} {
		x := dryRun(t, r, c.path, c.body)
		if exact := x.Keys == "exact"; exact != (c.note == "") || exact != (x.Note() == "") || c.note != "-" && x.Note() != c.note {
			t.Errorf("%s: keys %q, note %q, want %q", c.what, x.Keys, x.Note(), c.note)
		}
	}
}

// TestExplainRequests: the newest decisions first, by every filter.
func TestExplainRequests(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	var ids []string
	for n := range 8 {
		id := r.ID("list")
		ids = append(ids, id)
		r.Do(t, rig.Request("POST", rig.ChatPath, id, fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`, 1+n%2*300, longEnough)))
		r.Explain(t, id) // it is kept, and so in its place
	}
	list := func(query string) (got []rig.Explained) {
		t.Helper()
		r.Get(t, "/api/v1/requests"+query, &got)
		return got
	}
	all := list("?limit=8")
	for i, x := range all {
		if want := ids[len(ids)-1-i]; x.RequestID != want {
			t.Errorf("place %d holds %s, want %s: not the newest first", i, x.RequestID, want)
		}
	}
	if n := len(list("?limit=3")); n != 3 {
		t.Errorf("limit=3 gives %d", n)
	}
	by := map[string]int{}
	everything := list("?limit=1000")
	for _, x := range everything {
		by["engine="+x.Engine]++
		by["reason="+x.Reason]++
		by["end="+x.Result.End]++
		by["engine="+x.Engine+"&reason="+x.Reason]++
	}
	if len(by) < 5 {
		t.Errorf("too little to filter: %v", by)
	}
	for filter, n := range by {
		if got := list("?limit=1000&" + filter); len(got) != n {
			t.Errorf("%s gives %d, want %d", filter, len(got), n)
		}
	}
	if got := list("?engine=nobody"); got == nil || len(got) != 0 {
		t.Errorf("no match gives %v, want an empty list", got)
	}
	for _, bad := range []string{"?limit=0", "?limit=x", "?limit=-1"} {
		if status, body := r.AdminGet("/api/v1/requests" + bad); status != 400 || !strings.Contains(body, "limit") {
			t.Errorf("%s: %d %s", bad, status, body)
		}
	}
}

// TestExplainTopology: the fields of CONTRACT section 5 that are known by now
// are filled, and none is absent.
func TestExplainTopology(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	for range 4 {
		askBody(t, r, rig.ChatPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"`+longEnough+`"}]}`)
	}
	var v object
	r.Get(t, "/api/v1/topology", &v)
	hasMembers(t, "topology", v, []string{"time", "version", "uptime_s", "status", "models", "policy", "exact", "traffic", "agreement", "engines", "transitions"})
	hasMembers(t, "exact", v["exact"].(object), []string{"mode", "percent"})
	hasMembers(t, "traffic", v["traffic"].(object), []string{"in_flight", "requests_per_s", "prompt_tokens_per_s", "cached_tokens_per_s", "output_tokens_per_s"})
	agreed := v["agreement"].(object)
	hasMembers(t, "agreement", agreed, []string{"agree", "would-move", "tie", "cold", "untrusted"})
	if agreed["agree"].(float64) < 3 {
		t.Errorf("agreement after three warm requests: %v", agreed)
	}
	for _, raw := range v["engines"].([]any) {
		e := raw.(object)
		hasMembers(t, "engine", e, []string{"name", "profile", "state", "state_reason", "state_since", "trust", "trust_reason", "models", "block_tokens", "kv_blocks", "kv_capacity_tokens", "index_blocks",
			"leases", "lease_tokens", "queue_tokens", "prefill_tokens_per_s", "seconds_per_token", "match_tokens_total", "cached_tokens_total", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "errors_per_s", "reported", "gpus"})
		if e["trust"] != "exact" || e["block_tokens"] != 16.0 || e["state"] != "ready" || e["kv_blocks"] != 8192.0 || e["kv_capacity_tokens"] != 8192.0*16 || e["index_blocks"].(float64) < 1 {
			t.Errorf("engine %v", e)
		}
	}
}

// columns is the width that explain prints for.
const columns = 100

// TestExplainCommand: what `ramjet explain` prints for a body, from a file or
// standard input, and for a request that was served; as text 100 columns wide.
func TestExplainCommand(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	body := `{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"` + strings.Repeat(longEnough, 20) + `"}]}`
	served := askBody(t, r, rig.ChatPath, body)
	file := filepath.Join(t.TempDir(), "req.json")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "odd.json")
	if err := os.WriteFile(other, []byte(`{"model":"m","chat_template":"x","max_tokens":20,"messages":[{"role":"user","content":"`+strings.Repeat(longEnough, 20)+`"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := "--admin=" + r.Admin
	for _, c := range []struct {
		what, stdin string
		args        []string
		want        []string
	}{
		{"a file", "", []string{file}, []string{"/v1/chat/completions", "model m", "keys exact", "cap 20", "> ", "mtp", "standard", served.x.Engine + ", because it holds more of the prompt in its cache, by its own events", "its token ids go with it"}},
		{"standard input", body, []string{"-"}, []string{"keys exact", "because"}},
		{"an id", "", []string{"--id", served.x.RequestID}, []string{"keys exact", "Tried: " + served.x.Engine + " (done)."}},
		{"another path", `{"model":"m","prompt":"Hello"}`, []string{"-", "--path=/v1/completions"}, []string{"/v1/completions", "no cap"}},
		{"not exact", "", []string{other}, []string{"template in request", "because"}},
	} {
		code, out, errs := runRamjet(t, c.stdin, append(append([]string{"explain"}, c.args...), admin)...)
		if code != 0 || errs != "" || !containsAll(strings.Join(strings.Fields(out), " "), c.want) {
			t.Errorf("%s: exit %d %s, want %q in\n%s", c.what, code, errs, c.want, out)
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%s: %d columns: %s", c.what, n, line)
			}
		}
		code, out, _ = runRamjet(t, c.stdin, append(append([]string{"explain", "--json"}, c.args...), admin)...)
		var x object
		if err := json.Unmarshal([]byte(out), &x); code != 0 || err != nil {
			t.Errorf("%s as JSON: exit %d, %v", c.what, code, err)
		}
		hasMembers(t, c.what, x, explanationMembers)
	}
}

// TestExplainErrors: each problem has its line, which names what to change.
func TestExplainErrors(t *testing.T) {
	t.Parallel()
	r := explainSetup(t)
	admin := "--admin=" + r.Admin
	for _, c := range []struct {
		what, stdin string
		args        []string
		code        int
		want        string
	}{
		{"no JSON", `{"model":`, []string{"-", admin}, 1, "JSON"},
		{"no file", "", []string{"/nonexistent.json", admin}, 1, "cannot read the request: open /nonexistent.json"},
		{"unknown id", "", []string{"--id=nobody", admin}, 1, "/api/v1/requests"},
		{"unknown model", `{"model":"other","messages":[]}`, []string{"-", admin}, 1, "model"},
		{"a path without decisions", `{}`, []string{"-", "--path=/v1/models", admin}, 1, "has a decision to explain"},
		{"an odd path", `{}`, []string{"-", "--path=/v1/../x", admin}, 1, "path"},
		{"nobody there", `{}`, []string{"-", "--admin=127.0.0.1:1"}, 1, "cannot reach Ramjet's admin port (--admin names it)"},
		{"nothing to explain", "", []string{admin}, 2, "give a file"},
		{"both", "", []string{"x.json", "--id=y", admin}, 2, "give a file"},
		{"a flag that is unknown", "", []string{"--jsn", admin}, 2, "--jsn: unknown flag"},
	} {
		code, out, errs := runRamjet(t, c.stdin, append([]string{"explain"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "ramjet: ") && code == 1 {
			t.Errorf("%s: exit %d, printed %q and %q; want %d and %q", c.what, code, out, errs, c.code, c.want)
		}
	}
	for _, id := range []string{"nobody", "a%2Fb", "%00"} {
		if status, body := r.AdminGet("/api/v1/explain/" + id); status != 404 && status != 400 {
			t.Errorf("id %s: %d %s", id, status, body)
		}
	}
}
