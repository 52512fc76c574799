package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row09Pipelining: requests that come behind one another, or while an
// answer is still streaming, are answered in order and never mixed.
func TestB7Row09Pipelining(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		x.StreamHead()
		for _, ev := range []string{rig.RoleEvent(), rig.DeltaEvent(x.ID()), rig.FinishEvent("stop"), rig.DoneEvent} {
			x.Pause(10 * time.Millisecond)
			x.Events(ev)
		}
		x.Write(rig.LastChunk)
	}
	a.On(play)
	b.On(play)
	for _, mode := range []string{"one write", "early"} {
		t.Run(mode, func(t *testing.T) {
			c := r.Dial(t)
			var ids []string
			var all string
			for range 4 {
				ids = append(ids, r.ID("pipe"))
				all += rig.Request("POST", rig.ChatPath, ids[len(ids)-1], rig.ChatBody(true))
			}
			if mode == "early" { // the second comes in the middle of the first answer
				first, rest := all[:len(all)/4], all[len(all)/4:]
				c.Send(first)
				c.Head(rig.Patience)
				c.Send(rest)
			} else {
				c.Send(all)
			}
			for _, id := range ids {
				resp := c.Response(rig.Patience)
				if resp.Status != 200 || strings.Count(string(resp.Body), "pipe-") != 1 || !strings.Contains(string(resp.Body), `"`+id+`"`) {
					t.Errorf("answer to %s: %d %.400q", id, resp.Status, resp.Body)
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, tc := range readJSONCases(t) {
		t.Run(tc.name, func(t *testing.T) {
			id := r.ID("json")
			began := time.Now()
			resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, tc.body))
			got := append(a.ByID(id), b.ByID(id)...)
			if tc.pass {
				if resp.Status != 200 || len(got) != 1 || string(got[0].Body) != tc.body {
					t.Errorf("answered %d %.200q, want the engine's answer to the same bytes", resp.Status, resp.Body)
				}
				return
			}
			_, e, _ := rig.ParseAPIError(string(resp.Body))
			if resp.Status != 400 || e.Type != "invalid_request_error" || e.Code != "invalid_request" || len(got) != 0 {
				t.Errorf("answered %d %.200q (at the engine: %d), want 400 invalid_request", resp.Status, resp.Body, len(got))
			}
			if took := time.Since(began); took > 5*time.Second {
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
		body, err := rig.UnescapePlain(body)
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, enc := range []string{"gzip", "br", "deflate", "zstd", "gzip, identity", "GZIP"} {
		id := r.ID("enc")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, "\x1f\x8b\x08not really", "Content-Encoding: "+enc))
		if resp.Status != 415 || resp.Code() != "unsupported_encoding" {
			t.Errorf("%s: answered %d %.200q, want 415 unsupported_encoding", enc, resp.Status, resp.Body)
		}
		if len(a.ByID(id))+len(b.ByID(id)) != 0 {
			t.Errorf("%s: reached an engine", enc)
		}
	}
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false), "Content-Encoding: identity"); resp.Status != 200 {
		t.Errorf("identity: answered %d %.200q", resp.Status, resp.Body)
	}
	id := r.ID("accept")
	r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false), "Accept-Encoding: gzip, br"))
	if x := rig.WaitFor(t, id, a, b); x.Fields.Get("Accept-Encoding") != "" && x.Fields.Get("Accept-Encoding") != "identity" {
		t.Errorf("Accept-Encoding to the engine is %q, want identity", x.Fields.Get("Accept-Encoding"))
	}
	r.Counted(t, 6, "415", "rejected")
}

// TestB7Row09ByteByByte: two requests that arrive byte by byte, the second
// right behind the first.
func TestB7Row09ByteByByte(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	first, second := r.ID("bytes"), r.ID("bytes")
	chunkedRequest := "POST " + rig.ChatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + second + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + rig.ChunkEach(rig.VectorBody, 9) + rig.LastChunk
	c := r.Dial(t)
	for _, b := range []byte(rig.Request("POST", rig.ChatPath, first, rig.ChatBody(true)) + chunkedRequest) {
		if _, err := c.Conn.Write([]byte{b}); err != nil {
			t.Fatalf("cannot send: %v", err)
		}
	}
	for range 2 {
		if resp := c.Response(rig.Patience); resp.Status != 200 || !resp.Complete {
			t.Errorf("answered %d %.200q", resp.Status, resp.Body)
		}
	}
	if x, y := rig.WaitFor(t, first, a), rig.WaitFor(t, second, a); string(x.Body) != rig.ChatBody(true) || string(y.Body) != rig.VectorBody {
		t.Errorf("bodies at the engine: %q and %q", x.Body, y.Body)
	}
	rig.NoAnomalies(t, a)
}
