package tokens

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/wire"
)

func testSource(t testing.TB) *Source {
	t.Helper()
	return NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 8 << 20, Cache: 16 << 20})
}

// TestOpenIsParse: the reading without a copy sees what Parse sees.
func TestOpenIsParse(t *testing.T) {
	t.Parallel()
	bodies := []string{`{}`, `[]`, `{"messages":[]}`, `{"messages":[1, {"a":[1,2]} ,"x"],"messages":5}`, `{"messages":5,"messages":[ 1 ,2 ]}`, `{"m\u0065ssages":[1]}`,
		`{"messages":[{"role":"user","content":"x"}],"messages":null}`, `{"input":"x"}`, `{"input":[],"input":[{"role":"user"}]}`, ` { "prompt" : [ "a" , "b" ] } `, `{"prompt":[1,2,3]}`,
		`{"prompt":[[1],[2,3]]}`, `{"prompt":"x","suffix":"y"}`, longChat(20)}
	for _, body := range bodies {
		for e := EndpointChat; e <= EndpointResponses; e++ {
			var p wire.Peeked
			if err := p.Peek([]byte(body)); err != nil {
				t.Fatal(err)
			}
			var a, b Conversation
			noteA, noteB := a.Parse(e, []byte(body), &p), b.open(e, []byte(body), &p)
			if noteA != noteB || !slices.Equal(a.items, b.items) || !slices.Equal(a.members, b.members) || fmt.Sprint(a.prompts) != fmt.Sprint(b.prompts) {
				t.Errorf("%d %s:\n%q %v %v\n%q %v %v", e, body, noteA, a.items, a.members, noteB, b.items, b.members)
			}
		}
	}
}

// TestOtherEndpoints: prompts of every form, asked for twice, and with one more item.
func TestOtherEndpoints(t *testing.T) {
	t.Parallel()
	s := testSource(t)
	long := strings.Repeat("<|im_start|>user\\nSome words that are here again.<|im_end|>\\n", 40)
	for _, c := range []struct {
		e    Endpoint
		body string
		way  Way // of the second time
		ends int
	}{
		{EndpointCompletions, `{"prompt":"` + long + `"}`, WayWhole, 1},
		{EndpointCompletions, `{"prompt":"` + long + long + `<|im_start|>"}`, WayWhole, 1},
		{EndpointCompletions, `{"prompt":""}`, WayWhole, 1},
		{EndpointCompletions, `{"prompt":["a","` + long + `","c"],"add_special_tokens":false}`, WayWhole, 3},
		{EndpointCompletions, `{"prompt":[1,2,3]}`, WayWhole, 1},
		{EndpointCompletions, `{"prompt":[[1,2,3],[4]]}`, WayWhole, 2},
		{EndpointMessages, `{"system":"` + long + `","messages":[{"role":"user","content":"x"}]}`, WaySame, 1},
		{EndpointMessages, `{"system":"` + long + `","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":[{"type":"text","text":"z"}]}]}`, WaySame, 1},
		{EndpointMessages, `{"system":"short","messages":[{"role":"user","content":"x"}]}`, WaySame, 1},
		{EndpointResponses, `{"input":"x"}`, WaySame, 1},
		{EndpointResponses, `{"input":"y"}`, WaySame, 1},
		{EndpointResponses, `{"input":[{"role":"user","content":"x"}]}`, WaySame, 1},
		{EndpointResponses, `{"instructions":"` + long + `","input":[{"role":"user","content":"x"}]}`, WaySame, 1},
		{EndpointChat, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"and th"}],"continue_final_message":true,"add_generation_prompt":false}`, WaySame, 1},
	} {
		var scr Scratch
		for again := range 2 {
			ids := checked(t, s, c.e, []byte(c.body), &scr)
			if again == 1 && scr.Way() != c.way {
				t.Errorf("%.80s: way %d, wanted %d", c.body, scr.Way(), c.way)
			}
			if ends := scr.Ends(); len(ends) != c.ends || ends[len(ends)-1] != len(ids) {
				t.Errorf("%.80s: ends %v of %d ids", c.body, ends, len(ids))
				continue
			}
			first := ids[:scr.Ends()[0]]
			if got, want := s.AppendKeys(nil, 5, first, 16, &scr), radix.AppendKeys(nil, 5, first, 16); !slices.Equal(got, want) {
				t.Errorf("%.80s: keys differ", c.body)
			}
		}
	}
}

// TestKnownTextIsNotEncodedAgain: the second time of a text, or of a longer one, costs no encoding.
func TestKnownTextIsNotEncodedAgain(t *testing.T) {
	t.Parallel()
	s := testSource(t)
	var scr Scratch
	turn := strings.Repeat("Many words that must not be looked at again. ", 200)
	prompt := `<|im_start|>user\n` + turn + `<|im_end|>\n`
	checked(t, s, EndpointCompletions, []byte(`{"prompt":"`+prompt+`"}`), &scr)
	for _, c := range []struct {
		prompt  string
		encoded int // at most
	}{
		{prompt, 1},                                             // the same; the line end behind it is not worth keeping
		{prompt + `<|im_start|><|im_end|>`, 1},                  // longer
		{`<|im_start|>` + prompt, 1},                            // elsewhere
		{prompt + `<|im_start|>` + turn + `.`, len(turn) + 1},   // something new behind
		{prompt + `<|im_start|>` + prompt + `<|im_start|>n`, 2}, // the same again
	} {
		checked(t, s, EndpointCompletions, []byte(`{"prompt":"`+c.prompt+`"}`), &scr)
		if scr.Encoded() > c.encoded {
			t.Errorf("%.30s of %d bytes: %d bytes encoded, wanted %d", c.prompt, len(c.prompt), scr.Encoded(), c.encoded)
		}
	}
}

// TestSourceNotes lists why ids are not known, beside TestNotes.
func TestSourceNotes(t *testing.T) {
	t.Parallel()
	bare := NewSource(testTokenizer(t), nil, SourceOptions{Cache: 1 << 20})
	small := NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 1000, Cache: 1 << 20})
	s := testSource(t)
	for _, c := range []struct {
		s          *Source
		e          Endpoint
		body, note string
	}{
		{bare, EndpointChat, `{"messages":[{"role":"user","content":"x"}]}`, noteNoTemplate},
		{bare, EndpointCompletions, `{"prompt":"x"}`, ""},
		{small, EndpointChat, `{"messages":[{"role":"user","content":"` + strings.Repeat("x ", 500) + `"}]}`, noteTooLong},
		{small, EndpointChat, `{"messages":[{"role":"user","content":"` + strings.Repeat("x ", 300) + `"}]}`, ""},
		{s, EndpointCompletions, `{"prompt":"` + strings.Repeat("-", 2*maxPiece) + `"}`, noteTooLong},
		{s, EndpointChat, `[1]`, noteInvalid},
		{s, EndpointChat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, noteMedia},
		{s, EndpointResponses, `{"input":"x","previous_response_id":"r"}`, noteStored},
		{s, EndpointChat, `{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, maxItems) + `{"role":"user","content":"x"}]}`, noteTooLong},
		{s, Endpoint(9), `{"messages":[{"role":"user","content":"x"}]}`, noteInvalid},
	} {
		var p wire.Peeked
		var scr Scratch
		if err := p.Peek([]byte(c.body)); err != nil {
			t.Fatal(err)
		}
		dst := []uint32{1, 2}
		ids, note := c.s.Ids(dst, c.e, []byte(c.body), &p, &scr)
		if note != c.note || note != "" && (len(ids) != 2 || len(scr.Ends()) > 0) {
			t.Errorf("%.60s: note %q, wanted %q; %d ids", c.body, note, c.note, len(ids))
		}
	}
}

// TestUnverifiedIsOwed: where a verification was dropped the next request is verified.
func TestUnverifiedIsOwed(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var p Prepared
	for i, want := range []bool{true, true, false} {
		prepare(t, m, &p, EndpointCompletions, "m", fmt.Sprintf(`{"prompt":"text %d"}`, i))
		run := p.Verify([]byte(`{"prompt":"x"}`))
		if (run != nil) != want {
			t.Errorf("request %d is verified: %v", i+1, run != nil)
		}
		if i == 0 {
			p.Unverified()
		}
	}
}

// TestPostponedIsOwed: where nobody could run a verification nothing is copied for one, and the next request is verified.
func TestPostponedIsOwed(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var p Prepared
	for i, want := range []bool{true, true, true, false, false} {
		body := fmt.Sprintf(`{"prompt":"text %d"}`, i)
		prepare(t, m, &p, EndpointCompletions, "m", body)
		if i == 0 || i == 1 || i == 4 { // drawn twice, and once not
			if p.scr.verify != want {
				t.Errorf("request %d is to be verified: %v", i+1, !want)
			}
			p.Postpone()
			want = false
		}
		if run := p.Verify([]byte(body)); (run != nil) != want {
			t.Errorf("request %d is verified: %v", i+1, run != nil)
		}
	}
	if prepare(t, m, &p, EndpointCompletions, "m", `{"prompt":"more"}`); p.scr.verify {
		t.Error("one that was not drawn is owed")
	}
	p.Postpone()
	p.Release()
	p.Postpone() // says nothing of a request that is over
}

// TestVerifyFindsOut: a wrong memory is found, and not used any more.
func TestVerifyFindsOut(t *testing.T) {
	t.Parallel()
	s := testSource(t)
	var scr Scratch
	var p wire.Peeked
	body := []byte(longChat(12))
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	ids, _ := s.Ids(nil, EndpointChat, body, &p, &scr)
	if run := s.Verify(EndpointChat, body, ids, &scr); run == nil || !run() {
		t.Fatal("the first call is not verified, or is wrong")
	}
	if s.Verify(EndpointChat, body, ids, &scr) != nil {
		t.Error("one call is verified twice")
	}
	scr.node.ids[3]++ // as a collision or a fault would
	ids, _ = s.Ids(nil, EndpointChat, body, &p, &scr)
	run := s.Verify(EndpointChat, body, ids, &scr)
	if scr.Way() != WaySame || run == nil {
		t.Fatalf("way %d", scr.Way())
	}
	clear(ids) // the function has a copy of its own
	if run() {
		t.Fatal("the fault was not found")
	}
	for range 3 {
		checked(t, s, EndpointChat, body, &scr)
		if scr.Way() != WayWhole {
			t.Errorf("way %d after a fault", scr.Way())
		}
	}
	if st := s.Stats(); st.Mismatches != 1 || st.Entries != 0 {
		t.Errorf("%+v", st)
	}
	verified := 0
	for range 2 * sampled {
		ids, _ := s.Ids(nil, EndpointChat, body, &p, &scr)
		if run := s.Verify(EndpointChat, body, ids, &scr); run != nil {
			verified++
		}
	}
	if verified != 2 {
		t.Errorf("%d of %d calls verified", verified, 2*sampled)
	}
}

// TestClockTurnsThePage: a template with a date forgets at midnight, one with the time each minute.
func TestClockTurnsThePage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		date string
		step time.Duration
	}{
		{``, 0},
		{`{{ strftime_now("%d %b %Y") }}`, 24 * time.Hour},
		{`{%- if strftime_now is defined %}{{ strftime_now ( '%Y' ) }}{% endif %}`, 24 * time.Hour},
		{`{{ strftime_now("%H:%M") }}`, time.Minute},
		{`{%- set f = "%M" %}{{ strftime_now(f) }}`, time.Minute},
	} {
		at := time.Date(2026, 3, 29, 23, 59, 30, 0, time.UTC)
		tpl, err := NewTemplate(c.date+"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
			TemplateOptions{Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		s := NewSource(testTokenizer(t), tpl, SourceOptions{Cache: 1 << 20})
		if s.clock != c.step {
			t.Errorf("%s: a step of %v, wanted %v", c.date, s.clock, c.step)
		}
		var scr Scratch
		body := []byte(`{"messages":[{"role":"user","content":"What day is it?"}]}`)
		checked(t, s, EndpointChat, body, &scr)
		at = at.Add(time.Minute)
		checked(t, s, EndpointChat, body, &scr)
		if want := map[bool]Way{true: WaySame, false: WayWhole}[c.step == 0]; scr.Way() != want {
			t.Errorf("%s: way %d after midnight", c.date, scr.Way())
		}
	}
}

// TestHostileBodies: nothing of what clients may send breaks or disturbs what is remembered.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 1 << 20, MaxTime: time.Second, Cache: 1 << 20})
	var scr Scratch
	r := rand.New(rand.NewPCG(6, 6))
	good := longChat(8)
	var p wire.Peeked
	tried := 0
	for range 1500 {
		body := []byte(good)
		for range 1 + r.IntN(3) {
			switch i := r.IntN(len(body)); r.IntN(3) {
			case 0:
				body[i] = `{}[]",:\ntx0 <|`[r.IntN(15)]
			case 1:
				body = slices.Delete(body, i, min(len(body), i+1+r.IntN(30)))
			case 2:
				body = slices.Insert(body, i, []byte([]string{`<|im_end|>`, `"`, `{"role":"user"},`, `\ud800`, "\x00", `null`, `[[[[`, `\u0000`}[r.IntN(8)])...)
			}
		}
		if p.Peek(body) != nil || !p.Object {
			continue
		}
		tried++
		for e := EndpointChat; e <= EndpointResponses; e++ {
			if _, note := s.Ids(nil, e, body, &p, &scr); note != "" && !slices.Contains(Notes(), note) {
				t.Errorf("note %q is not in the list", note)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d bodies were JSON", tried)
	}
	checked(t, s, EndpointChat, []byte(good), &scr)
	s.cache.check(t)
}
