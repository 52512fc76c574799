package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// refusedTemplates are those that cannot be proven, and what the refusal says: engines with such a model are asked for
// their ids, or routed by what they were sent before.
var refusedTemplates = map[string]string{
	"DeepSeek-V4-Flash": `the filter "from_json" is not supported`,
	"Kimi-K3":           "the default of parameter 4 of a macro is not supported",
}

// errOtherTemplate says that a template's file is not here, or not the one that the golden text was made with.
var errOtherTemplate = errors.New("scripts/templates.sh fetches it")

// loaded keeps templates from one test to the next: proving them takes a while.
var loaded sync.Map // name -> func() (*Template, error)

// goldenTemplate returns the template that a golden text was made with. An error that is errOtherTemplate is a reason to
// skip; every other one is a refusal.
func goldenTemplate(g *goldenFile, name string) (*Template, error) {
	once, _ := loaded.LoadOrStore(name, sync.OnceValues(func() (*Template, error) { return loadGoldenTemplate(g, name) }))
	return once.(func() (*Template, error))()
}

// provenTemplate returns nil for a template that a test has to do without.
func provenTemplate(t testing.TB, g *goldenFile, name string) *Template {
	t.Helper()
	tpl, err := goldenTemplate(g, name)
	if err != nil && !errors.Is(err, errOtherTemplate) && refusedTemplates[name] == "" {
		t.Fatalf("%s is refused: %v", name, err)
	}
	return tpl
}

func loadGoldenTemplate(g *goldenFile, name string) (*Template, error) {
	if name == "sim" {
		return simTemplate(), nil
	}
	source, err := os.ReadFile(filepath.Join("..", ".tools", "templates", name+".jinja"))
	if err != nil {
		return nil, fmt.Errorf("the template is missing, %w: %w", errOtherTemplate, err)
	}
	sum := sha256.Sum256(bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n")))
	if hex.EncodeToString(sum[:]) != g.Templates[name].SHA256 {
		return nil, fmt.Errorf("the template is another version than the golden text's, %w", errOtherTemplate)
	}
	return NewTemplate(string(source), TemplateOptions{Now: goldenNow, Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}})
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
			tpl, err := goldenTemplate(g, name)
			if errors.Is(err, errOtherTemplate) {
				t.Skip(err)
			}
			if why := refusedTemplates[name]; why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Fatalf("%v, want a refusal that says %q", err, why)
			} else if why != "" {
				return
			}
			if err != nil {
				t.Fatal(err)
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
