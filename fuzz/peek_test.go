package fuzz

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"ramjet/wire"
)

// FuzzPeek compares wire's one-pass reader with a slow one on encoding/json,
// on all bodies that both must accept, and checks on every input that the
// spans lie inside the body and that splices are read again as meant.
func FuzzPeek(f *testing.F) {
	addPeekSeeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		var p wire.Peeked
		err := p.Peek(body)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was written to")
		}
		checkVerdict(t, body, &p, err)
		if err != nil {
			return
		}
		checkPeekSpans(t, body, &p)
		checkSplices(t, body, &p)
		if p.Object && json.Valid(body) {
			compareWithTwin(t, body, &p)
		}
	})
}

func addPeekSeeds(f *testing.F) {
	raw, err := os.ReadFile("../wire/testdata/peek/golden.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Cases []struct{ Body []byte } }
	if err := json.Unmarshal(raw, &file); err != nil {
		f.Fatal(err)
	}
	for i, c := range file.Cases {
		// All of the corpus is checked in wire; some are enough to start from.
		if i%7 == 0 && len(c.Body) < 500 {
			f.Add(c.Body)
		}
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url"}]}],"model":"a/b","max_tokens":256.0,"n":2,"stream":true,"stream_options":{"include_usage":false},"metadata":{"user_id":"\u0061"}}`))
}

// checkVerdict: JSON and no more is accepted, apart from what Python adds.
func checkVerdict(t *testing.T, body []byte, p *wire.Peeked, err error) {
	t.Helper()
	valid := json.Valid(body)
	switch {
	case err == nil && !valid:
		python := bytes.Contains(body, []byte("NaN")) || bytes.Contains(body, []byte("Infinity")) || bytes.HasPrefix(body, []byte("\xef\xbb\xbf"))
		if !python && !p.Opaque {
			t.Fatalf("accepted: %q", body)
		}
	case err != nil && valid:
		if utf8.Valid(body) && nesting(body) <= wire.MaxDepth && longestDigits(body) <= 4300 {
			t.Fatalf("refused: %q: %v", body, err)
		}
	}
	if err != nil && (p.Object || p.ModelName != nil || !p.Messages.Empty()) {
		t.Fatalf("refused, yet something is set: %q", body)
	}
}

// nesting of valid JSON: brackets outside strings.
func nesting(body []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

func longestDigits(body []byte) (longest int) {
	run := 0
	for _, c := range body {
		if run++; c < '0' || c > '9' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

func checkPeekSpans(t *testing.T, body []byte, p *wire.Peeked) {
	t.Helper()
	for _, s := range []wire.Span{p.Root, p.Model, p.StreamOptions, p.Messages, p.Prompt, p.Input, p.System, p.Tools, p.Instructions, p.ResponseFormat} {
		if s == (wire.Span{}) {
			continue
		}
		if s.Start < 0 || s.Start >= s.End || s.End > len(body) {
			t.Fatalf("%q: span %v", body, s)
		}
		var alone wire.Peeked
		if err := alone.Peek(s.Of(body)); err != nil {
			t.Fatalf("%q: span %v is no value: %v", body, s, err)
		}
	}
	checkElements(t, body, p)
	if p.Prompts < 1 || p.N < 1 || p.BestOf < 1 || p.Cap < -1 || p.Cap == 0 || p.MessageCount < 0 {
		t.Fatalf("%q: %+v", body, p)
	}
}

// checkElements compares the elements that were noted in passing with Go's own reading of the list, and wants them noted
// where the body has one such member: behind it another one, be it null, may have taken their place.
func checkElements(t *testing.T, body []byte, p *wire.Peeked) {
	t.Helper()
	for _, list := range []wire.Span{p.Messages, p.Input} {
		if list == (wire.Span{}) {
			continue
		}
		got, ok := p.AppendElements(nil, body, list)
		var want []json.RawMessage
		if json.Unmarshal(list.Of(body), &want) != nil {
			continue // no list, or Python alone can read it
		}
		if !ok {
			if listMembers(body) == 1 && len(want) <= 4096 {
				t.Fatalf("%q: the elements of %v are unknown", body, list)
			}
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d elements, want %d", body, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i].Of(body), want[i]) {
				t.Fatalf("%q: element %d is %q, want %q", body, i, got[i].Of(body), want[i])
			}
		}
	}
}

// listMembers counts the members of the body whose elements are noted.
func listMembers(body []byte) (n int) {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return 0
		}
		if name == "messages" || name == "input" {
			n++
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return 0
		}
	}
	return n
}

func checkSplices(t *testing.T, body []byte, p *wire.Peeked) {
	t.Helper()
	const name = "other\"\u2028"
	out, asked := wire.AppendSplices(nil, body, p, name, true)
	var again wire.Peeked
	if err := again.Peek(out); err != nil {
		t.Fatalf("%q became %q: %v", body, out, err)
	}
	if had := !p.Model.Empty(); had && string(again.ModelName) != name || !had && again.ModelName != nil {
		t.Fatalf("%q became %q: model %q", body, out, again.ModelName)
	}
	if want := p.IncludeUsage || asked; again.IncludeUsage != want || asked && (!p.Stream || p.IncludeUsage) {
		t.Fatalf("%q became %q: asked %v, read %v", body, out, asked, again.IncludeUsage)
	}
	if again.Stream != p.Stream || again.Cap != p.Cap || again.MessageCount != p.MessageCount || again.Prompts != p.Prompts || !bytes.Equal(again.Session, p.Session) {
		t.Fatalf("%q became %q: something else changed", body, out)
	}
	if !asked && p.Model.Empty() && !bytes.Equal(out, body) {
		t.Fatalf("%q became %q without a reason", body, out)
	}
}

// twinObject reads an object by encoding/json's tokens: exact names, the last
// of several wins, null is absent.
func twinObject(t *testing.T, raw []byte) map[string]json.RawMessage {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		members[name.(string)] = value
		if string(value) == "null" {
			delete(members, name.(string))
		}
	}
	return members
}

func compareWithTwin(t *testing.T, body []byte, p *wire.Peeked) {
	t.Helper()
	m := twinObject(t, body)
	same := func(what string, got, want any) {
		if got != want {
			t.Fatalf("%q: %s is %v, encoding/json reads %v", body, what, got, want)
		}
	}
	for name, span := range map[string]wire.Span{"model": p.Model, "messages": p.Messages, "prompt": p.Prompt, "input": p.Input, "system": p.System,
		"tools": p.Tools, "instructions": p.Instructions, "response_format": p.ResponseFormat} {
		same(name, string(span.Of(body)), string(m[name]))
	}
	same("model", likeJSON(p.ModelName), twinText(m["model"]))
	same("previous_response_id", likeJSON(p.PreviousResponseID), twinText(m["previous_response_id"]))
	same("session", likeJSON(p.Session), twinSession(t, m))
	same("stream", p.Stream, twinTrue(m["stream"]))
	same("echo", p.Echo, twinTrue(m["echo"]))
	same("background", p.Background, twinTrue(m["background"]))
	same("kv_transfer_params", p.KVTransfer, m["kv_transfer_params"] != nil)
	if options := m["stream_options"]; len(options) > 0 && options[0] == '{' {
		same("include_usage", p.IncludeUsage, twinTrue(twinObject(t, options)["include_usage"]))
	}
	limit := m["max_completion_tokens"]
	for _, name := range []string{"max_tokens", "max_output_tokens"} {
		if limit == nil {
			limit = m[name]
		}
	}
	same("cap", p.Cap, twinCount(limit, -1))
	same("n", int64(p.N), twinCount(m["n"], 1))
	same("best_of", int64(p.BestOf), twinCount(m["best_of"], 1))
	compareLists(t, body, p, m)
}

func compareLists(t *testing.T, body []byte, p *wire.Peeked, m map[string]json.RawMessage) {
	t.Helper()
	var messages, input, prompt []json.RawMessage
	_ = json.Unmarshal(m["messages"], &messages) // what is no list has no elements
	_ = json.Unmarshal(m["input"], &input)
	_ = json.Unmarshal(m["prompt"], &prompt)
	count := len(messages)
	if m["messages"] == nil && len(input) > 0 && input[0][0] == '{' {
		count = len(input)
	}
	if m["prompt"] == nil {
		prompt = input
	}
	prompts := 1
	if len(prompt) > 0 && (prompt[0][0] == '"' || prompt[0][0] == '[') {
		prompts = len(prompt)
	}
	if p.MessageCount != count || p.Prompts != prompts {
		t.Fatalf("%q: %d messages, %d prompts; encoding/json reads %d, %d", body, p.MessageCount, p.Prompts, count, prompts)
	}
}

func twinText(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &s) // valid by what came before
	}
	return s
}

// likeJSON writes bytes that are no UTF-8 as encoding/json does: U+FFFD for
// an escaped surrogate that stands alone, which wire keeps as three bytes,
// and for each byte that was raw.
func likeJSON(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && len(b) >= 3 && b[0] == 0xed {
			n = 3
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

func twinSession(t *testing.T, m map[string]json.RawMessage) string {
	t.Helper()
	var user json.RawMessage
	if meta := m["metadata"]; len(meta) > 0 && meta[0] == '{' {
		user = twinObject(t, meta)["user_id"]
	}
	for _, raw := range []json.RawMessage{m["session_id"], m["prompt_cache_key"], user, m["user"]} {
		if s := twinText(raw); s != "" {
			return s
		}
	}
	return ""
}

func twinTrue(raw json.RawMessage) bool {
	switch v := twinValue(raw).(type) {
	case bool:
		return v
	case float64:
		return v == 1
	case string:
		switch strings.ToLower(v) {
		case "1", "true", "t", "on", "yes", "y":
			return true
		}
	}
	return false
}

func twinCount(raw json.RawMessage, other int64) int64 {
	v, ok := twinValue(raw).(float64)
	if !ok {
		// A whole number too large for a float64 is large all the same.
		if len(raw) > 300 && strings.Trim(string(raw), "0123456789") == "" {
			return math.MaxInt32
		}
		return other
	}
	if v < 1 || v != math.Floor(v) {
		return other
	}
	return int64(min(v, math.MaxInt32))
}

func twinValue(raw json.RawMessage) any {
	if len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
		if v, err := strconv.ParseFloat(string(raw), 64); err == nil {
			return v
		}
		return nil
	}
	var v any
	_ = json.Unmarshal(raw, &v) // valid by what came before
	return v
}
