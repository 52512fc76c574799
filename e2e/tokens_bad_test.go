package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestTokensBadFiles: whatever is wrong with the model's files, a line of the
// log says it, requests are routed approximately, and none fails.
func TestTokensBadFiles(t *testing.T) {
	t.Parallel()
	s := rig.StartSim(t, "a", simFast...)
	for _, c := range []struct {
		what   string
		folder func(t testing.TB, dir string) string
		log    []string // words of one warning
		note   string   // of a chat
	}{
		{"absent", func(_ testing.TB, dir string) string { return dir + "/nowhere" }, []string{"token ids are not made here", "no such file"}, "no tokenizer"},
		{"empty", func(t testing.TB, _ string) string { return t.TempDir() }, []string{"token ids are not made here", "tokenizer.json"}, "no tokenizer"},
		{"cut", cutTokenizer, []string{"token ids are not made here", "cannot read tokenizer.json"}, "no tokenizer"},
		{"pattern", oddPattern, []string{"token ids are not made here", "is not one of the known ones"}, "no tokenizer"},
		{"foreign", foreignTokenizer, []string{"token ids compared", "does not belong to the model"}, "foreign tokenizer"},
		{"broken template", withTemplate("{% for m in messages %}"), []string{"only completions are routed by their token ids", "unclosed"}, "no chat template"},
		{"refusing template", withTemplate("{{ raise_exception('no') }}"), []string{"only completions are routed by their token ids", "template refuses"}, "template refuses"},
		{"no template", withoutTemplate, []string{"only completions are routed by their token ids", "no chat template"}, "no chat template"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: c.folder(t, rig.SimModelFolder(t)), Flags: handingOver, Settled: func(r *rig.Ramjet) string {
				if r.Logged(append(c.log, `"level":"warn"`)...) {
					return ""
				}
				return fmt.Sprintf("no warning with %q", c.log)
			}})
			for n, kind := range sessionKinds {
				talk := newSimSession(6, n, kind)
				talk.fill = 2000
				for range 2 {
					a := ask(t, r, talk, n%2 == 0)
					known := kind == "completions" && (strings.Contains(c.what, "template"))
					if known {
						a.counted(t)
						continue
					}
					// Text shorter than a chunk has no keys at all.
					if a.x.Keys != "approximate" && (a.x.Keys != "none" || a.answer.prompt > 4096) || a.x.Handoff {
						t.Errorf("%s: keys %q, handoff %v, %d tokens", kind, a.x.Keys, a.x.Handoff, a.answer.prompt)
					}
					// From the second turn on the engine's own ids of the beginning may be at hand.
					if a.x.Note() != c.note && (a.x.Note() != "known prefix" || talk.turns == 1) {
						t.Errorf("%s: note %q, want %q", kind, a.x.Note(), c.note)
					}
				}
			}
		})
	}
}

// TestTokensLongRuns: what a tokenizer could choke on is bounded by size and
// time, and goes its way all the same.
func TestTokensLongRuns(t *testing.T) {
	t.Parallel()
	s := rig.StartSim(t, "a", append([]string{"--max-model-len=9000000", "--kv-blocks=600000"}, "--speed=1000")...)
	r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: rig.SimModelFolder(t), Flags: []string{"--tokens.max-bytes=6MiB", "--tokens.max-time=20ms"}, Settled: rig.Said("token ids compared")})
	for _, c := range []struct{ what, char, path string }{
		{"letters", "a", rig.ChatPath}, {"spaces", " ", "/v1/completions"}, {"line ends", `\n`, rig.MessagesPath}, {"ideographs", "水", rig.ResponsesPath}, {"escapes", `\u00e9`, rig.ChatPath},
	} {
		t.Run(c.what, func(t *testing.T) {
			text := strings.Repeat(c.char, (4<<20)/len(c.char))
			body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + text + `"}]}`
			switch c.path {
			case "/v1/completions":
				body = `{"model":"m","max_tokens":1,"prompt":"` + text + `"}`
			case rig.ResponsesPath:
				body = `{"model":"m","max_output_tokens":1,"input":"` + text + `"}`
			}
			a := askBody(t, r, c.path, body)
			if a.x.Keys != "approximate" || a.x.Note() == "" {
				t.Errorf("keys %q, note %q", a.x.Keys, a.x.Note())
			}
			if took := a.line.Num("route_s"); took > 10 {
				t.Errorf("the decision took %v s", took)
			}
			if a.x.Note() == "an engine's cache is not known exactly" {
				a.counted(t) // its ids are known in spite of its length
			}
		})
	}
	long := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("words and more ", 500_000) + `"}]}`
	if a := askBody(t, r, rig.ChatPath, long); a.x.Note() != "too long" || a.x.Keys != "approximate" {
		t.Errorf("beyond tokens.max_bytes: keys %q, note %q", a.x.Keys, a.x.Note())
	}
}
