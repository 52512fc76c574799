//go:build !race

package tokens

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/radix"
	"ramjet/wire"
)

// returning is a long conversation, and its next turns, each a new message of 200 tokens.
type returning struct {
	tb     testing.TB
	s      *Source
	scr    Scratch
	p      wire.Peeked
	bodies [][]byte
	ids    []uint32
	keys   []uint64
	ways   [ways]int
	i      int
}

// newReturning has a conversation of about `items` messages of 250 tokens, and `turns` bodies that continue it, each
// with two messages more than the conversation and another text in the last.
func newReturning(tb testing.TB, tok *Tokenizer, tpl *Template, items, turns int) *returning {
	return newReturningText(tb, tok, tpl, benchProse, items, turns)
}

const benchProse = "The committee met again on Tuesday to consider the report, which had been sent to every member a week before. Nobody had read it, and so the chairman did what he always did. "

func newReturningText(tb testing.TB, tok *Tokenizer, tpl *Template, text string, items, turns int) *returning {
	tb.Helper()
	r := &returning{tb: tb, s: NewSource(tok, tpl, SourceOptions{MaxBytes: 8 << 20, Cache: 256 << 20})}
	pieces := slicesOf(text, 1000)
	message := func(i int, role string, n int) string {
		piece := pieces[i%len(pieces)]
		return `{"role":"` + role + `","content":` + quoteJSON(fmt.Sprintf("%d: %s", i, piece[:min(n, len(piece))])) + `}`
	}
	list := []string{`{"role":"system","content":"You are careful."}`}
	for i := 0; i < items; i += 2 {
		list = append(list, message(i, "user", 1000), message(i+1, "assistant", 1000))
	}
	list = append(list, message(items, "user", 1000))
	old := strings.Join(list, ",")
	r.bodies = append(r.bodies, []byte(`{"model":"m","messages":[`+old+`],"stream":true}`))
	for i := range turns {
		r.bodies = append(r.bodies, []byte(`{"model":"m","messages":[`+old+`,`+message(i, "assistant", 400)+`,`+message(i+7000, "user", 400)+`],"stream":true}`))
	}
	r.next()
	if tb.Failed() {
		tb.FailNow()
	}
	return r
}

func slicesOf(text string, n int) (list []string) {
	text = strings.Repeat(text, 1+n/len(text))
	for len(text) >= n {
		list, text = append(list, strings.ToValidUTF8(text[:n], "")), text[n:]
	}
	return list
}

// next does all that is done before a request is routed: peek, ids and keys.
func (r *returning) next() {
	body := r.bodies[r.i%len(r.bodies)]
	r.i++
	if err := r.p.Peek(body); err != nil {
		r.tb.Fatal(err)
	}
	var note string
	if r.ids, note = r.s.Ids(r.ids[:0], EndpointChat, body, &r.p, &r.scr); note != "" {
		r.tb.Fatal(note)
	}
	r.ways[r.scr.Way()]++
	r.keys = r.s.AppendKeys(r.keys[:0], radix.Root("m", "", ""), r.ids, 16, &r.scr)
}

// done checks that all turns but the first went the short way.
func (r *returning) done(t testing.TB) {
	if r.ways[WayWhole] != 1 || r.ways[WayGrown] == 0 {
		t.Errorf("ways %v", r.ways)
	}
}

// BenchmarkSession is the whole preparation of a request (peek, ids, keys) at three lengths.
func BenchmarkSession(b *testing.B) {
	code := benchTexts(b)["code"]
	tpl := simTemplate()
	tok := benchTokenizer(b, "qwen3")
	if tok.VocabSize() > 100_000 {
		if t := provenTemplate(b, readGolden(b), "Qwen3-8B-Q8_0"); t != nil {
			tpl = t
		}
	}
	for _, kind := range []string{"prose", "code"} {
		text := map[string]string{"prose": benchProse, "code": code}[kind]
		for _, size := range []int{1, 10, 100} {
			items := size * 9 / 2
			if kind == "code" {
				items = size * 10 / 3
			}
			name := fmt.Sprintf("%s/%dk/", kind, size)
			b.Run(name+"returning", func(b *testing.B) {
				r := newReturningText(b, tok, tpl, text, max(items, 4), 2000/size)
				b.SetBytes(int64(len(r.bodies[1])))
				b.ReportAllocs()
				for b.Loop() {
					if r.i%len(r.bodies) == 0 { // each turn once: begin anew, where the old conversation alone is known
						b.StopTimer()
						r.s.cache.clear()
						r.i = 0
						r.next()
						b.StartTimer()
					}
					r.next()
				}
				if r.ways[WayGrown] == 0 || r.ways[WaySame] > 0 {
					b.Errorf("ways %v", r.ways)
				}
				b.ReportMetric(float64(len(r.ids)), "tokens")
			})
			b.Run(name+"same", func(b *testing.B) {
				r := newReturningText(b, tok, tpl, text, max(items, 4), 0)
				b.SetBytes(int64(len(r.bodies[0])))
				b.ReportAllocs()
				for b.Loop() {
					r.next()
				}
			})
			b.Run(name+"whole", func(b *testing.B) { // rendered whole, of known messages
				r := newReturningText(b, tok, tpl, text, max(items, 4), 0)
				b.SetBytes(int64(len(r.bodies[0])))
				b.ReportAllocs()
				for b.Loop() {
					for key, e := range r.s.cache.entries {
						if e.mark != nil {
							e.mark = &mark{node: hash128{Hi: 1}} // leads nowhere
							_ = key
						}
					}
					r.next()
				}
				if r.ways[WaySame]+r.ways[WayGrown] > 0 {
					b.Errorf("ways %v", r.ways)
				}
			})
			b.Run(name+"cold", func(b *testing.B) {
				r := newReturningText(b, tok, tpl, text, max(items, 4), 0)
				b.SetBytes(int64(len(r.bodies[0])))
				b.ReportAllocs()
				for b.Loop() {
					r.s.cache.clear()
					r.next()
				}
			})
		}
	}
}
