package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// goldenCase is one input of testdata/peek/golden.json and what Python makes
// of it; make_golden.py beside it says how each value comes about.
type goldenCase struct {
	Family  string
	Body    []byte
	Times   int
	Accept  bool
	Why     string
	Depth   int
	Object  bool
	Reading *goldenReading
}

type goldenReading struct {
	Model              *string
	Stream             string
	IncludeUsage       string `json:"include_usage"`
	Cap                *int64
	N                  *int
	BestOf             *int `json:"best_of"`
	Session            *string
	Prompts            int
	Messages           int
	PreviousResponseID *string `json:"previous_response_id"`
	Store              string
	Background         string
	Echo               string
	KVTransfer         bool `json:"kv_transfer"`
	Present            []string
}

func loadGolden(t testing.TB) []goldenCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/peek/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for i := range file.Cases {
		c := &file.Cases[i]
		c.Body = bytes.Repeat(c.Body, max(c.Times, 1))
	}
	return file.Cases
}

func TestPeekAgreesWithPython(t *testing.T) {
	t.Parallel()
	cases := loadGolden(t)
	if len(cases) < 1000 {
		t.Fatalf("only %d golden cases: was make_golden.py run?", len(cases))
	}
	var p Peeked // reused, as a server does, so that nothing may be left over
	seen := map[string]int{}
	for _, c := range cases {
		seen[c.Family]++
		err := p.Peek(c.Body)
		// UTF-16 and UTF-32 are passed on unread, good or bad.
		want := c.Accept && c.Depth <= MaxDepth || p.Opaque
		if got := err == nil; got != want {
			t.Errorf("%s %.60q: accepted %v (%v), Python accepts %v %s at depth %d", c.Family, c.Body, got, err, c.Accept, c.Why, c.Depth)
			continue
		}
		switch {
		case p.Opaque:
			if c.Accept && !strings.HasPrefix(c.Family, "utf-") || p.Object {
				t.Errorf("%s %.60q: taken for UTF-16 or UTF-32", c.Family, c.Body)
			}
		case p.Object != (want && c.Object):
			t.Errorf("%s %.60q: Object is %v", c.Family, c.Body, p.Object)
		case p.Object:
			checkReading(t, &c, &p)
		default:
			checkEmpty(t, &c, &p)
		}
	}
	for _, family := range []string{"document", "number", "constant", "string", "surrogate", "utf-8", "utf-16", "utf-32-be", "bom", "depth", "name", "duplicate", "flag", "damaged"} {
		if seen[family] == 0 {
			t.Errorf("no case of family %s", family)
		}
	}
}

func checkReading(t *testing.T, c *goldenCase, p *Peeked) {
	t.Helper()
	w := c.Reading
	check := func(what string, got, want any) {
		if got != want {
			t.Errorf("%s %.100q: %s is %v, Python reads %v", c.Family, c.Body, what, got, want)
		}
	}
	text := func(what string, got []byte, want *string) {
		if want == nil {
			if got != nil {
				t.Errorf("%s %.100q: %s is %q, Python reads none", c.Family, c.Body, what, got)
			}
			return
		}
		decoded, err := base64.StdEncoding.DecodeString(*want)
		if err != nil {
			t.Fatal(err)
		}
		if got == nil || !bytes.Equal(got, decoded) {
			t.Errorf("%s %.100q: %s is %.40q, Python reads %.40q", c.Family, c.Body, what, got, decoded)
		}
	}
	text("model", p.ModelName, w.Model)
	text("session", p.Session, w.Session)
	text("previous_response_id", p.PreviousResponseID, w.PreviousResponseID)
	check("stream", p.Stream, w.Stream == "true")
	check("include_usage", p.IncludeUsage, w.IncludeUsage == "true")
	check("background", p.Background, w.Background == "true")
	check("echo", p.Echo, w.Echo == "true")
	check("store", p.Store, map[string]Flag{"true": FlagTrue, "false": FlagFalse, "absent": FlagAbsent, "refused": FlagAbsent}[w.Store])
	check("kv_transfer_params", p.KVTransfer, w.KVTransfer)
	check("cap", p.Cap, orElse(w.Cap, -1))
	check("n", p.N, orElse(w.N, 1))
	check("best_of", p.BestOf, orElse(w.BestOf, 1))
	check("prompts", p.Prompts, w.Prompts)
	check("messages", p.MessageCount, w.Messages)
	checkSpans(t, c, p)
}

func checkSpans(t *testing.T, c *goldenCase, p *Peeked) {
	t.Helper()
	for name, span := range map[string]Span{"messages": p.Messages, "prompt": p.Prompt, "input": p.Input, "system": p.System, "tools": p.Tools,
		"instructions": p.Instructions, "response_format": p.ResponseFormat, "model": p.Model} {
		if span.Empty() == slices.Contains(c.Reading.Present, name) {
			t.Errorf("%s %.100q: %s present is %v", c.Family, c.Body, name, !span.Empty())
		}
		var alone Peeked
		if !span.Empty() && alone.Peek(span.Of(c.Body)) != nil {
			t.Errorf("%s %.100q: the span of %s holds %.60q", c.Family, c.Body, name, span.Of(c.Body))
		}
	}
	if root := p.Root.Of(c.Body); root[0] != '{' || root[len(root)-1] != '}' {
		t.Errorf("%s %.100q: root spans %.60q", c.Family, c.Body, root)
	}
}

// checkEmpty makes sure that a refused or foreign body leaves nothing of the
// body before it.
func checkEmpty(t *testing.T, c *goldenCase, p *Peeked) {
	t.Helper()
	if p.ModelName != nil || p.Session != nil || p.Stream || p.Cap != -1 || p.N != 1 || p.Prompts != 1 || !p.Messages.Empty() || p.MessageCount != 0 {
		t.Errorf("%s %.60q: something is set: %+v", c.Family, c.Body, p)
	}
}

func orElse[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}
