package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestB7Row09Pipelining: requests that come behind one another, or while an
// answer is still streaming, are answered in order and never mixed.
func TestB7Row09Pipelining(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		x.streamHead()
		for _, ev := range []string{roleEvent(), deltaEvent(x.id()), finishEvent("stop"), doneEvent} {
			x.pause(10 * time.Millisecond)
			x.events(ev)
		}
		x.write(lastChunk)
	}
	a.on(play)
	b.on(play)
	for _, mode := range []string{"one write", "early"} {
		t.Run(mode, func(t *testing.T) {
			c := r.dial(t)
			var ids []string
			var all string
			for range 4 {
				ids = append(ids, r.id("pipe"))
				all += request("POST", chatPath, ids[len(ids)-1], chatBody(true))
			}
			if mode == "early" { // the second comes in the middle of the first answer
				first, rest := all[:len(all)/4], all[len(all)/4:]
				c.send(first)
				c.head(patience)
				c.send(rest)
			} else {
				c.send(all)
			}
			for _, id := range ids {
				resp := c.response(patience)
				if resp.status != 200 || strings.Count(string(resp.body), "pipe-") != 1 || !strings.Contains(string(resp.body), `"`+id+`"`) {
					t.Errorf("answer to %s: %d %.400q", id, resp.status, resp.body)
				}
			}
		})
	}
}

// TestB7Row10JSON: what Python's reader refuses, or nesting beyond 128, is a 400
// of ours at once; everything else is the engine's business, byte for byte. The
// table is testdata/json.txt.
func TestB7Row10JSON(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, tc := range readJSONCases(t) {
		t.Run(tc.name, func(t *testing.T) {
			id := r.id("json")
			began := time.Now()
			resp := r.do(t, request("POST", chatPath, id, tc.body))
			got := append(a.byID(id), b.byID(id)...)
			if tc.pass {
				if resp.status != 200 || len(got) != 1 || string(got[0].body) != tc.body {
					t.Errorf("answered %d %.200q, want the engine's answer to the same bytes", resp.status, resp.body)
				}
				return
			}
			_, e, _ := parseAPIError(string(resp.body))
			if resp.status != 400 || e.Type != "invalid_request_error" || e.Code != "invalid_request" || len(got) != 0 {
				t.Errorf("answered %d %.200q (at the engine: %d), want 400 invalid_request", resp.status, resp.body, len(got))
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("refused after %v", took)
			}
		})
	}
}

type jsonCase struct {
	name, body string
	pass       bool
}

// readJSONCases reads lines of `pass|400 <tab> body`, escaped as the vectors
// are, and adds the bodies that are too large for a line.
func readJSONCases(t *testing.T) []jsonCase {
	t.Helper()
	text, err := os.ReadFile("testdata/json.txt")
	if err != nil {
		t.Fatalf("cannot read the table: %v", err)
	}
	nest := func(n int) string {
		return `{"model":"m","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	cases := []jsonCase{
		{"nested 100", nest(100), true}, {"nested 128", nest(127), true}, {"nested 129", nest(128), false}, {"nested 1000", nest(1000), false},
		{"100,000 open arrays", strings.Repeat("[", 100_000), false},
		{"100,000 open objects", strings.Repeat(`{"a":`, 100_000), false},
		// Python reads no integer of more than 4,300 digits (sys.int_info).
		{"an integer of 4,300 digits", `{"model":"m","x":` + strings.Repeat("9", 4300) + "}", true},
		{"an integer of 100,000 digits", `{"model":"m","x":` + strings.Repeat("9", 100_000) + "}", false},
		{"a fraction of 100,000 digits", `{"model":"m","x":0.` + strings.Repeat("9", 100_000) + "}", true},
		{"a name of 100,000 letters", `{"model":"m","` + strings.Repeat("n", 100_000) + `":1}`, true},
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		verdict, body, ok := strings.Cut(line, "\t")
		body, err := unescapePlain(body)
		if !ok || err != nil || verdict != "pass" && verdict != "400" {
			t.Fatalf("testdata/json.txt:%d: %q: %v", i+1, line, err)
		}
		cases = append(cases, jsonCase{fmt.Sprintf("line %d %.40s", i+1, body), body, verdict == "pass"})
	}
	return cases
}

// TestB7Row11Encodings: a compressed body cannot be judged and vLLM does not
// decode it either.
func TestB7Row11Encodings(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, enc := range []string{"gzip", "br", "deflate", "zstd", "gzip, identity", "GZIP"} {
		id := r.id("enc")
		resp := r.do(t, request("POST", chatPath, id, "\x1f\x8b\x08not really", "Content-Encoding: "+enc))
		if resp.status != 415 || resp.code() != "unsupported_encoding" {
			t.Errorf("%s: answered %d %.200q, want 415 unsupported_encoding", enc, resp.status, resp.body)
		}
		if len(a.byID(id))+len(b.byID(id)) != 0 {
			t.Errorf("%s: reached an engine", enc)
		}
	}
	if resp := r.post(t, chatPath, chatBody(false), "Content-Encoding: identity"); resp.status != 200 {
		t.Errorf("identity: answered %d %.200q", resp.status, resp.body)
	}
	id := r.id("accept")
	r.do(t, request("POST", chatPath, id, chatBody(false), "Accept-Encoding: gzip, br"))
	if x := waitFor(t, id, a, b); x.fields.get("Accept-Encoding") != "" && x.fields.get("Accept-Encoding") != "identity" {
		t.Errorf("Accept-Encoding to the engine is %q, want identity", x.fields.get("Accept-Encoding"))
	}
	r.counted(t, 6, "415", "rejected")
}
