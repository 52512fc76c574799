package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"ramjet/e2e/ports"
	"ramjet/e2e/rig"
)

// TestNewcomersEvening is the first evening of somebody who found this
// repository: each step types what the documents or the program's own output
// say, and asserts what a person reads then. docs/EVENING.md tells the same
// evening done by hand. What the page showed is kept in .tools/newcomer.
func TestNewcomersEvening(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "an evening of a minute")
	e := newEvening(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"clone", e.clone},
		{"make demo", e.makeDemo},
		{"page", e.lookAtThePage},
		{"curl", e.typeTheCurlLine},
		{"OpenAI SDK", e.callBySDK},
		{"explain", e.explainIt},
		{"kill b of the demo", e.killAsTheDemoSays},
		{"Ctrl-C", e.endTheDemo},
		{"three typos", e.threeTypos},
		{"own engines", e.serveOwnEngines},
		{"add an engine", e.addAnEngine},
		{"kill an engine", e.killAnEngine},
		{"read the alert", e.readTheAlert},
		{"do what it says", e.startItAgain},
		{"end", e.endIt},
	} {
		if !t.Run(step.name, step.do) {
			return // the next steps stand on this one
		}
	}
}

func (e *evening) clone(t *testing.T) {
	e.run(t, e.home, "git", "-c", "safe.directory=*", "clone", "--quiet", e.repository, "ramjet")
	e.dir = filepath.Join(e.home, "ramjet")
	e.asItStands(t)
	readme := e.file(t, "README.md")
	for _, line := range []string{"make demo", "ramjet check", "ramjet explain", "docs/OPERATIONS.md"} {
		if !strings.Contains(readme, line) {
			t.Errorf("README.md does not lead to %s", line)
		}
	}
}

// The first command of the README. It builds first, which takes a while where
// nothing is cached.
func (e *evening) makeDemo(t *testing.T) {
	e.demo = e.start(t, "make", "demo", "ARGS=--listen=127.0.0.1:0 --admin=127.0.0.1:0")
	e.page = e.demo.showsWithin(t, 60*rig.Patience, `(?m)^  page +(http://\S+/)$`)
	e.demo.shows(t, `(?m)^  health +(http://\S+/health)$`)
	e.public = strings.TrimSuffix(e.demo.shows(t, `(?m)^  try it +curl -N (http://\S+)/v1/chat/completions `), "/")
	e.demo.shows(t, `(?m)^\d\d:\d\d:\d\d  in flight .*(a: .* requests/s.* b: .* requests/s)`)
}

func (e *evening) lookAtThePage(t *testing.T) {
	e.window.open(t, e.page)
	for _, name := range []string{"a", "b"} {
		e.window.sees(t, "1-topology", ".card[data-engine="+name+"]", "engine "+name+" at work", func(text string) bool {
			return strings.Contains(text, "ready") && strings.Contains(text, "exact") && reads(text, `Flow\s+[0-9.]*[1-9]`)
		})
	}
	e.window.sees(t, "1-topology", "#main", "traffic", func(text string) bool {
		return reads(text, `requests/s\s+[0-9.]*[1-9]`) && reads(text, `output tokens/s\s+[0-9]*[1-9]`)
	})
	e.window.sees(t, "1-topology", "#link", "that it is live", func(text string) bool { return text == "live" })
	e.window.open(t, e.page+"#/gpu")
	e.window.sees(t, "2-gpu", "#main", "a simulated GPU of each engine, and its figures", func(text string) bool {
		return strings.Count(text, "simulated GPU") == 2 && reads(text, `[0-9]+ % · [0-9]+ W`) && !strings.Contains(text, "No GPU figures")
	})
}

// The line that the demo prints is typed as it is.
func (e *evening) typeTheCurlLine(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is missing (apt-get install curl)")
	}
	out := e.run(t, e.dir, "sh", "-c", e.demo.shows(t, `(?m)^  try it +(curl .*)$`))
	if !strings.Contains(out, `"delta":{"content":`) || !strings.HasSuffix(strings.TrimSpace(out), "data: [DONE]") {
		t.Errorf("the answer is no stream of words: %.500s", out)
	}
}

// sdkCall is what the openai package's own documentation would have one write.
const sdkCall = `
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
answer = client.chat.completions.with_raw_response.create(model="demo", max_tokens=16, messages=[{"role": "user", "content": "Tell me about rivers."}])
print("id", answer.headers["x-request-id"])
print("engine", answer.headers["x-ramjet-engine"])
print("says", answer.parse().choices[0].message.content)
`

func (e *evening) callBySDK(t *testing.T) {
	out := e.run(t, e.dir, e.python, "-c", sdkCall, e.public)
	said := regexp.MustCompile(`(?m)^id (\S+)\nengine ([ab])\nsays \w+`).FindStringSubmatch(out)
	if said == nil {
		t.Fatalf("the SDK printed %q", out)
	}
	e.asked, e.answered = said[1], said[2]
}

// Why did it go there: by the command of the README, by the API, by the page.
func (e *evening) explainIt(t *testing.T) {
	out := e.run(t, e.dir, "./ramjet", "explain", "--admin="+e.admin(), "--id", e.asked)
	for _, want := range []string{`(?m)^>  ` + e.answered + ` `, `(?m)^   [ab] `, `(?m)^` + e.answered + `, because `, `(?m)^Tried: ` + e.answered + ` \(done\)`} {
		if !reads(out, want) {
			t.Errorf("ramjet explain does not say %s:\n%s", want, out)
		}
	}
	var x struct {
		ID         string `json:"request_id"`
		Engine     string
		Reason     string
		Candidates []struct{ Engine string }
	}
	e.get(t, "/api/v1/explain/"+e.asked, &x)
	if x.ID != e.asked || x.Engine != e.answered || x.Reason == "" || len(x.Candidates) != 2 {
		t.Errorf("the API explains %+v", x)
	}
	e.window.open(t, e.page+"#/requests")
	e.window.sees(t, "3-requests", "#main", "requests", func(text string) bool { return reads(text, `[1-9][0-9]* of the last `) })
	find := `{ const i = document.querySelector('[aria-label="Filter by request id or session"]'); i.value = '` + e.asked + `'; i.dispatchEvent(new Event('input')); }`
	e.window.value("(() => " + find + ")()")
	e.window.sees(t, "3-requests", "#main", "that request alone", func(text string) bool { return reads(text, `(^|\s)1 of the last `) && strings.Contains(text, e.asked) })
	e.window.value("document.querySelector('.requests-table button.link').click()")
	e.window.sees(t, "4-explanation", ".detail", "its explanation", func(text string) bool {
		return strings.Contains(text, e.asked) && strings.Contains(text, "What was weighed") && reads(text, e.answered+`: .+`) && reads(text, `Cost\s+[0-9]`)
	})
}

// The demo says how to kill one of its engines, and for how long.
func (e *evening) killAsTheDemoSays(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is missing (apt-get install curl)")
	}
	e.window.open(t, e.page+"#/topology")
	e.window.sees(t, "5-killed", ".card[data-engine=b]", "engine b", func(text string) bool { return strings.Contains(text, "ready") })
	e.run(t, e.dir, "sh", "-c", e.demo.shows(t, `(?m)^  kill b +(curl .*)$`))
	// It is back after ten seconds, and then has to prove itself.
	e.window.sees(t, "5-killed", ".card[data-engine=b]", "that b is gone", func(text string) bool { return reads(text, `down|warming`) })
	e.demo.shows(t, `"engine":"b","from":"ready","to":("down")`)
	e.window.sees(t, "5-killed", "#health", "that something is wrong", func(text string) bool { return reads(text, `degraded`) })
}

// Ctrl-C, which a terminal sends to all that runs in it.
func (e *evening) endTheDemo(t *testing.T) {
	e.demo.signalGroup(syscall.SIGINT)
	e.demo.shows(t, `(?m)^(stopped)$`)
	e.demo.ends(t)
}

// Each of three typos is named with its place and the nearest right name.
func (e *evening) threeTypos(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		e.startSim(t, name, ports.Kept(e.t)) // one of them dies and comes back
	}
	e.write(t, "my.yaml", strings.NewReplacer("profile: mtp", "profil: mtp", "standard", "standart", "interval", "intervall").Replace(e.settings("a", "b")))
	out := e.fails(t, 1, "./ramjet", "check", "--config", "my.yaml")
	for _, want := range []string{
		`(?m)^my\.yaml:2:\d+: engines\.a\.profil: unknown key; did you mean profile\?$`,
		`(?m)^my\.yaml:3:\d+: engines\.b\.profile: unknown profile "standart"; did you mean standard\?$`,
		`(?m)^my\.yaml:4:\d+: health\.intervall: unknown key; did you mean health\.interval\?$`,
	} {
		if !reads(out, want) {
			t.Errorf("ramjet check does not say %s", want)
		}
	}
	if t.Failed() || strings.Count(strings.TrimSpace(out), "\n") != 2 {
		t.Errorf("ramjet check said, about three typos:\n%s", out)
	}
	e.write(t, "my.yaml", e.settings("a", "b"))
	out = e.run(t, e.dir, "./ramjet", "check", "--config", "my.yaml")
	if !reads(out, `(?m)^valid, digest [0-9a-f]+$`) || !reads(out, `(?m)^  interval: 500ms +# my\.yaml:4$`) {
		t.Errorf("ramjet check says of the mended file:\n%s", out)
	}
}

func (e *evening) serveOwnEngines(t *testing.T) {
	e.serve = e.start(t, "./ramjet", "--config", "my.yaml", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log.format=json")
	e.public = "http://" + e.serve.shows(t, `"public":"([^"]+)"`)
	e.page = e.serve.shows(t, `"admin":"(http://[^"]+)"`) + "/"
	e.watch(t) // Prometheus needs some seconds to find out that somebody is there
	e.ask(t)
	e.window.open(t, e.page)
	for _, name := range []string{"a", "b"} {
		e.window.sees(t, "6-own", ".card[data-engine="+name+"]", "engine "+name+" at work", func(text string) bool {
			return strings.Contains(text, "ready") && reads(text, `Flow\s+[0-9.]*[1-9]`)
		})
	}
}

// The file is edited and SIGHUP sent; the engine appears, warms up and gets
// its share, and no request is lost.
func (e *evening) addAnEngine(t *testing.T) {
	e.write(t, "my.yaml", e.settings("a", "b", "c"))
	e.serve.signal(syscall.SIGHUP)
	e.serve.shows(t, `"engine":"c",.*"message":"(engine added)"`)
	e.serve.shows(t, `"changed":"\[engines\.c\]",.*"message":"(configuration reloaded)"`)
	e.window.sees(t, "7-added", ".card[data-engine=c]", "engine c at work", func(text string) bool {
		return reads(text, `ready|slow-start`) && reads(text, `Flow\s+[0-9.]*[1-9]`)
	})
	e.nothingLost(t)
}

// kill -9; who waits for an answer does not notice, who watches does.
func (e *evening) killAnEngine(t *testing.T) {
	e.sims["b"].signal(syscall.SIGKILL)
	e.window.sees(t, "8-down", ".card[data-engine=b]", "that b is down, and why", func(text string) bool { return reads(text, `down\s+for [0-9]+ s\s+connection refused`) })
	e.window.sees(t, "8-down", "#health", "that something is wrong", func(text string) bool { return reads(text, `degraded`) })
	if state, reason := e.engine(t, "b"); state != "down" || reason != "connection refused" {
		t.Errorf("the API says that b is %s: %s", state, reason)
	}
	out := e.run(t, e.dir, "./ramjet", "top", "--once", "--admin="+e.admin())
	if !reads(out, `(?m)^b +\S+ +down `) || !reads(out, `(?m)^  b down for \d+s: connection refused`) {
		t.Errorf("ramjet top does not say that b is down:\n%s", out)
	}
	e.nothingLost(t)
}

// The alert says in one line what is wrong and where it stands what to do, and
// there it stands.
func (e *evening) readTheAlert(t *testing.T) {
	a := e.alert(t, "RamjetEngineOut")
	if want := "Engine b has been down for ten minutes."; a.Annotations["summary"] != want {
		t.Errorf("the alert says %q, want %q", a.Annotations["summary"], want)
	}
	file, anchor, _ := strings.Cut(a.Annotations["runbook"], "#")
	for section := range strings.SplitSeq(e.file(t, file), "\n### ") {
		title, text, _ := strings.Cut(section, "\n")
		if strings.EqualFold(title, anchor) && strings.Contains(text, "`down`: start it") && strings.Contains(text, "`GET /health` has the reason") {
			return
		}
	}
	t.Errorf("%s does not say under %s what to do", file, anchor)
}

func (e *evening) startItAgain(t *testing.T) {
	before := len(e.serve.out.String())
	e.startSim(t, "b", strings.TrimPrefix(e.sims["b"].url, "http://"))
	e.window.sees(t, "9-back", ".card[data-engine=b]", "that b is back at work", func(text string) bool {
		return reads(text, `ready|slow-start`) && reads(text, `Flow\s+[0-9.]*[1-9]`)
	})
	rig.Eventually(t, 12*rig.Patience, "an answer of b", func() string {
		if !reads(e.serve.out.String()[before:], `"end":"done".*"engine":"b"`) {
			return "its log has none"
		}
		return ""
	})
	e.window.sees(t, "9-back", "#health", "that all is well", func(text string) bool { return strings.TrimSpace(text) == "ok" })
	e.nothingLost(t)
}

func (e *evening) endIt(t *testing.T) {
	if n := e.stopAsking(); n < 20 {
		t.Errorf("only %d requests were answered all the evening", n)
	}
	e.serve.signal(syscall.SIGTERM)
	if code := e.serve.ends(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, e.serve.out.String())
	}
}

// reads reports whether a person finds what is looked for in a text.
func reads(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// settings is a file with those engines. An engine that was added need not
// prove itself for half a minute, as by default: an evening is short.
func (e *evening) settings(names ...string) string {
	var b strings.Builder
	b.WriteString("engines:\n")
	for i, name := range names {
		fmt.Fprintf(&b, "  - {name: %s, url: %s, profile: %s}\n", name, e.sims[name].url, []string{"mtp", "standard", "standard"}[i])
	}
	b.WriteString("health: {interval: 500ms, timeout: 3s, stable: 2s, slow_start: 2s}\n")
	return b.String()
}

func (e *evening) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
