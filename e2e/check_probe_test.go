package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// runRamjet runs a command to its end.
func runRamjet(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t, ""), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run ramjet: %v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// probeLines are the lines of `check --probe` for one engine: level by subject,
// and the rest of the line.
func probeLines(out, engine string) (level, text map[string]string) {
	level, text = map[string]string{}, map[string]string{}
	_, rest, _ := strings.Cut(out, "\nengine "+engine+", ")
	rest, _, _ = strings.Cut(rest, "\nengine ")
	for line := range strings.Lines(rest) {
		for _, l := range []string{"ok", "note", "bad"} {
			after, found := strings.CutPrefix(line, "  "+l+" ")
			if !found {
				continue
			}
			subject, words, _ := strings.Cut(strings.TrimSpace(after), "  ")
			level[subject], text[subject] = l, strings.TrimSpace(words)
		}
	}
	return level, text
}

// probeCase is what `check --probe` says in one situation.
type probeCase struct {
	what string
	sim  []string // flags of the engine
	// folder changes the model's folder, or returns another path.
	folder func(t testing.TB, dir string) string
	flags  []string // of check, with ENGINE for the engine's settings
	code   int
	want   map[string]string // subject -> level and words, "" = not there
}

func addressOf(s *rig.SimEngine) string { return "a=" + s.URL() + "," + s.EventFlags("") }

var probeCases = []probeCase{
	{what: "all is well", sim: simEvents, want: map[string]string{
		"reachable": "ok in ", "model": "ok m, loaded from m", "usage": "ok with cached tokens", "token ids": "ok tokenizer and chat template make the engine's ids",
		"handoff": "ok chat by prompt_token_ids, completions by prompt, messages by prompt_token_ids; set handoff.mode=auto to use it",
		"events":  "ok tcp://127.0.0.1:", "record": "ok exact: every batch since the engine started", "block size": "ok 16 tokens, learnt from events"}},
	{what: "handoff is on", flags: []string{"--handoff.mode=auto"}, want: map[string]string{"handoff": "ok chat by prompt_token_ids, completions by prompt, messages by prompt_token_ids"}},
	{what: "events are off", want: map[string]string{"events": "note events are off in the configuration; routing is approximate without", "record": "", "block size": ""}},
	{what: "no replay", sim: []string{"--events=tcp://127.0.0.1:0"}, want: map[string]string{"events": "note no replay: after a late start the record is not whole"}},
	{what: "cached tokens are hidden", sim: []string{"--hide-cached"}, want: map[string]string{"usage": "note without cached tokens; start the engine with --enable-prompt-tokens-details"}},
	{what: "ids are ignored", sim: []string{"--handoff=ignore"}, want: map[string]string{"handoff": "note ids of chats are not read: the engine ignores ids"}},
	{what: "a key is wanted", sim: []string{"--api-key=secret"}, code: 1, want: map[string]string{"model": "bad engines.api_key_file", "usage": ""}},
	{what: "no tokenizer is named", folder: func(testing.TB, string) string { return "" }, want: map[string]string{
		"token ids": "note no local tokenizer, so that routing is approximate: set tokens.path", "handoff": ""}},
	{what: "tokens are off", flags: []string{"--tokens.source=off"}, want: map[string]string{"token ids": "note off in the configuration"}},
	{what: "an empty folder", folder: func(t testing.TB, _ string) string { return t.TempDir() }, code: 1, want: map[string]string{"token ids": "bad tokenizer.json: no such file", "usage": "ok"}},
	{what: "half a tokenizer", folder: cutTokenizer, code: 1, want: map[string]string{"token ids": "bad cannot read tokenizer.json"}},
	{what: "an unknown pattern", folder: oddPattern, code: 1, want: map[string]string{"token ids": "bad is not one of the known ones"}},
	{what: "a foreign tokenizer", folder: foreignTokenizer, code: 1, want: map[string]string{"token ids": "bad the tokenizer does not belong to the model that the engine serves: set tokens.path", "handoff": ""}},
	{what: "a broken template", folder: withTemplate("{% for m in messages %}{{ m.content }}"), code: 1, want: map[string]string{
		"token ids": "ok chats are routed approximately", "chat template": "bad unclosed; set tokens.chat_template"}},
	{what: "an unknown filter", folder: withTemplate("{{ messages | fancy }}"), code: 1, want: map[string]string{"chat template": `bad the filter "fancy" is not supported`}},
	{what: "a template that refuses", folder: withTemplate("{{ raise_exception('no') }}"), code: 1, want: map[string]string{"chat template": "bad it does not render a plain chat"}},
	{what: "another template", folder: withTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"), want: map[string]string{
		"token ids": "note ids differ from the engine's for requests of these classes, which are routed approximately: chat"}},
	{what: "no template", folder: withoutTemplate, want: map[string]string{"token ids": "ok the tokenizer makes the engine's ids", "chat template": "note none in the model's folder"}},
}

// The ways in which a model's folder can be wrong.
func cutTokenizer(t testing.TB, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "tokenizer.json")
	if err := os.Truncate(name, 5000); err != nil {
		t.Fatal(err)
	}
	return dir
}

func oddPattern(t testing.TB, dir string) string {
	t.Helper()
	editFile(t, filepath.Join(dir, "tokenizer.json"), `|\\s+(?!\\S)|\\s+"`, `|\\s+"`)
	return dir
}

// foreignTokenizer swaps the ids of two common words.
func foreignTokenizer(t testing.TB, dir string) string {
	t.Helper()
	editFile(t, filepath.Join(dir, "tokenizer.json"), `"the":`, `"t h e":`)
	editFile(t, filepath.Join(dir, "tokenizer.json"), `"Ġthe":`, `"the":`)
	editFile(t, filepath.Join(dir, "tokenizer.json"), `"t h e":`, `"Ġthe":`)
	return dir
}

func withTemplate(text string) func(t testing.TB, dir string) string {
	return func(t testing.TB, dir string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

func withoutTemplate(t testing.TB, dir string) string {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckProbe: each line says how it stands and what to change, and only
// what keeps a setting from working is a problem.
func TestCheckProbe(t *testing.T) {
	t.Parallel()
	for _, c := range probeCases {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dir := rig.SimModelFolder(t)
			if c.folder != nil {
				dir = c.folder(t, dir)
			}
			args := []string{"check", "--probe", "--engine", addressOf(rig.StartSim(t, "a", slices.Concat(simFast, c.sim)...))}
			if dir != "" {
				args = append(args, "--tokenizer="+dir)
			}
			code, out, errs := runRamjet(t, "", append(args, c.flags...)...)
			if code != c.code || errs != "" {
				t.Errorf("exit %d, want %d; %s", code, c.code, errs)
			}
			level, text := probeLines(out, "a")
			for subject, want := range c.want {
				l, words, _ := strings.Cut(want, " ")
				got := level[subject]
				if got != l || !containsAll(text[subject], strings.Split(words, "; ")) {
					t.Errorf("%s: %q %q, want %q", subject, got, text[subject], want)
				}
			}
			if t.Failed() {
				t.Logf("it printed\n%s", out[max(0, strings.Index(out, "\nengine")):])
			}
		})
	}
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

// TestCheckProbeOfSeveral: an engine that is down is told beside one that is
// well, and other commands' exit codes are kept.
func TestCheckProbeOfSeveral(t *testing.T) {
	t.Parallel()
	well, down := rig.StartSim(t, "a", simFast...), rig.StartSim(t, "b", simFast...)
	down.Stop()
	code, out, _ := runRamjet(t, "", "check", "--probe", "--engine", addressOf(well), "--engine", "b="+down.URL()+",events="+"tcp://127.0.0.1:1")
	if code != 1 {
		t.Errorf("exit %d with an engine that is down", code)
	}
	if level, _ := probeLines(out, "a"); level["reachable"] != "ok" {
		t.Errorf("engine a: %v", level)
	}
	if level, text := probeLines(out, "b"); len(level) != 1 || level["reachable"] != "bad" || !strings.Contains(text["reachable"], "is it running") {
		t.Errorf("engine b: %v %v", level, text)
	}
	code, out, _ = runRamjet(t, "", "check", "--probe", "--engine", "a="+well.URL()+",events=tcp://127.0.0.1:1")
	if level, text := probeLines(out, "a"); code != 1 || level["events"] != "bad" || !strings.Contains(text["events"], "engines.events") {
		t.Errorf("a wrong endpoint: exit %d, %q %q", code, level["events"], text["events"])
	}
	code, out, errs := runRamjet(t, "", "check", "--probe", "--engine", addressOf(well), "--tokenizer=/nonexistent/model")
	if code != 1 || !strings.Contains(errs, "--tokenizer: tokens.path: cannot read") || strings.Contains(out, "\nengine a,") {
		t.Errorf("an absent folder: exit %d, %s", code, errs)
	}
	if code, _, errs := runRamjet(t, "", "check", "--probes"); code != 2 || !strings.Contains(errs, "--probes: unknown flag") {
		t.Errorf("a flag that is unknown: exit %d, %s", code, errs)
	}
}

// TestCheckProbeOfOnePublisher: an engine reached by two names publishes once.
func TestCheckProbeOfOnePublisher(t *testing.T) {
	t.Parallel()
	one := rig.StartSim(t, "a", append(append([]string(nil), simFast...), rig.Publishing...)...)
	code, out, _ := runRamjet(t, "", "check", "--probe", "--engine", "a="+one.URL(), "--engine", "b="+one.URL())
	level, _ := probeLines(out, "a")
	other, text := probeLines(out, "b")
	if code != 1 || level["events"] != "ok" || other["events"] != "bad" || !strings.Contains(text["events"], "is also where engine a publishes") {
		t.Errorf("exit %d, a %q, b %q %q", code, level["events"], other["events"], text["events"])
	}
	if code, _, errs := runRamjet(t, "", "explain", "--jsn"); code != 2 || !strings.Contains(errs, "--json") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
