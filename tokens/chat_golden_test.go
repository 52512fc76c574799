package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/wire"
)

// goldenFile is what testdata/chat/make_golden.py writes.
type goldenFile struct {
	Templates map[string]struct {
		SHA256   string
		Parts    bool
		Merge    bool
		Disabled string
	}
	Cases []struct {
		Kind  string
		Body  json.RawMessage
		Want  map[string]string
		Error []string
	}
}

func readGolden(t testing.TB) *goldenFile {
	t.Helper()
	path := os.Getenv("RAMJET_CHAT_GOLDEN")
	if path == "" {
		path = "testdata/chat/golden.json"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return &g
}

// loaded keeps templates from one test to the next: proving them takes a while.
var loaded sync.Map // name -> func() *Template

// goldenTemplate returns the template that a golden text was made with, nil where its file is not here or not the same.
func goldenTemplate(t testing.TB, g *goldenFile, name string) *Template {
	t.Helper()
	once, _ := loaded.LoadOrStore(name, sync.OnceValue(func() *Template { return loadGoldenTemplate(t, g, name) }))
	return once.(func() *Template)()
}

func loadGoldenTemplate(t testing.TB, g *goldenFile, name string) *Template {
	if name == "sim" {
		return simTemplate()
	}
	source, err := os.ReadFile(filepath.Join("..", ".tools", "templates", name+".jinja"))
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n")))
	if hex.EncodeToString(sum[:]) != g.Templates[name].SHA256 {
		t.Logf("%s is another version of the template than the golden text's", name)
		return nil
	}
	tpl, err := NewTemplate(string(source), TemplateOptions{Now: goldenNow, Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}})
	if err != nil {
		t.Logf("%s: refused: %v", name, err)
		return nil
	}
	return tpl
}

var endpointOf = map[string]Endpoint{"chat": EndpointChat, "messages": EndpointMessages, "responses": EndpointResponses}

// renderGolden renders a body as the cases want it.
func renderGolden(t testing.TB, tpl *Template, e Endpoint, body []byte) (string, string) {
	t.Helper()
	var p wire.Peeked
	var c Conversation
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	if note := c.Parse(e, body, &p); note != "" {
		return "", note
	}
	out, note := c.Render(nil, tpl)
	return string(out), note
}

// TestAgainstVLLM compares with what real vLLM 0.32 made of each body. Other templates than ours are third parties'
// files and not checked in: scripts/templates.sh puts them where this test looks.
func TestAgainstVLLM(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	var names []string
	for name := range g.Templates {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tpl := goldenTemplate(t, g, name)
			if tpl == nil {
				t.Skip("no file ../.tools/templates/" + name + ".jinja that fits")
			}
			compareGolden(t, g, name, tpl)
		})
	}
}

func compareGolden(t *testing.T, g *goldenFile, name string, tpl *Template) {
	traits := g.Templates[name]
	if tpl.plain.parts != traits.Parts || tpl.mergeSystem != traits.Merge || tpl.disabledEffort != traits.Disabled && tpl.disabledEffort != "" {
		t.Errorf("parts %t, merge %t, disabled effort %s; vLLM finds %t, %t, %s", tpl.plain.parts, tpl.mergeSystem, tpl.disabledEffort, traits.Parts, traits.Merge, traits.Disabled)
	}
	equal, refused, wrong := 0, 0, 0
	notes := map[string]int{}
	for i, c := range g.Cases {
		got, note := renderGolden(t, tpl, endpointOf[c.Kind], c.Body)
		want, answered := c.Want[name]
		switch {
		case note != "":
			refused++
			if answered {
				notes[note]++
			}
		case !answered:
			notes["rendered what vLLM refuses"]++
		case got == want || digest(got) == want:
			equal++
		default:
			wrong++
			if wrong <= 3 {
				t.Errorf("case %d (%s %s): got %d bytes\n%q\nwant\n%q", i, c.Kind, c.Body, len(got), clip(got, want), clip(want, got))
			}
		}
	}
	t.Logf("%s: %d equal, %d not known, %d wrong; %v; stable %v", name, equal, refused, wrong, notes, tpl.plain.stable)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:16]
}

// clip cuts what is equal in front.
func clip(s, other string) string {
	n := 0
	for n < len(s) && n < len(other) && s[n] == other[n] {
		n++
	}
	return strings.TrimSpace(s[max(0, n-60):min(len(s), n+200)])
}

// goldenNow is the date that the golden texts were made with.
func goldenNow() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }
