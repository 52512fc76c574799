package wire

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustPeek(t testing.TB, body string) *Peeked {
	t.Helper()
	p := new(Peeked)
	if err := p.Peek([]byte(body)); err != nil {
		t.Fatalf("%.80q: %v", body, err)
	}
	return p
}

func TestPeekReadsARequest(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"\"model\":\"x\""}],"model":"org/m","tools":[{"a":1}],` +
		`"max_tokens":256,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"text"},"user":"u","n":2,"store":false}`
	p := mustPeek(t, body)
	raw := []byte(body)
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"Object", p.Object, true},
		{"ModelName", string(p.ModelName), "org/m"},
		{"Model", string(p.Model.Of(raw)), `"org/m"`},
		{"Messages", string(p.Messages.Of(raw)), body[strings.Index(body, "[") : strings.Index(body, "],\"model\":\"org")+1]},
		{"MessageCount", p.MessageCount, 2},
		{"Tools", string(p.Tools.Of(raw)), `[{"a":1}]`},
		{"ResponseFormat", string(p.ResponseFormat.Of(raw)), `{"type":"text"}`},
		{"StreamOptions", string(p.StreamOptions.Of(raw)), `{"include_usage":true}`},
		{"Stream", p.Stream, true},
		{"StreamOdd", p.StreamOdd, false},
		{"IncludeUsage", p.IncludeUsage, true},
		{"Cap", p.Cap, int64(256)},
		{"N", p.N, 2},
		{"BestOf", p.BestOf, 1},
		{"Prompts", p.Prompts, 1},
		{"Session", string(p.Session), "u"},
		{"Store", p.Store, FlagFalse},
		{"Media", p.Media, false},
		{"Root", p.Root, Span{0, len(body)}},
		{"Prompt", p.Prompt, Span{}},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestPeekSeesMedia(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}`:                true,
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64"}}]}]}`:                     true,
		`{"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x"}]}]}`:                      true,
		`{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}`:                         true,
		`{"messages":[{"role":"user","content":[{"type":"x","image\u005furl":{}}]}]}`:                                true,
		`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]}`: true,
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"file":"a.go","source":"b"}}]}]}`:   false,
		`{"messages":[{"role":"user","content":"image_url"}]}`:                                                       false,
		`{"messages":[{"role":"user","content":"{\"image_url\":1}"}],"tools":[{"properties":{"image_url":1}}]}`:      false,
		`{"messages":[{"image_url":1}],"messages":[]}`:                                                               false,
	} {
		if p := mustPeek(t, body); p.Media != want {
			t.Errorf("%s: Media is %v", body, p.Media)
		}
	}
}

// Names are told apart at every length, also at those beyond which none is
// looked at.
func TestPeekOnLongNames(t *testing.T) {
	t.Parallel()
	escaped := ""
	for _, c := range "max_completion_tokens" {
		escaped += fmt.Sprintf(`\u%04X`, c)
	}
	for _, name := range []string{"max_completion_tokens", escaped} {
		if p := mustPeek(t, `{"`+name+`":7}`); p.Cap != 7 {
			t.Errorf("%s: cap %d", name, p.Cap)
		}
		if p := mustPeek(t, `{"`+name+`s":7,"`+strings.Repeat("x", 1000)+`":1}`); p.Cap != -1 {
			t.Errorf("%ss: cap %d", name, p.Cap)
		}
	}
}

func TestPeekMarksOddStreams(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]bool{
		`{"stream":true}`: {true, false}, `{"stream":false}`: {false, false}, `{"stream":null}`: {false, false}, `{}`: {false, false},
		`{"stream":1}`: {true, true}, `{"stream":"Yes"}`: {true, true}, `{"stream":0}`: {false, true}, `{"stream":"maybe"}`: {false, true},
		`{"stream":[]}`: {false, true}, `{"stream":NaN}`: {false, true}, `{"stream":2}`: {false, true},
	} {
		if p := mustPeek(t, body); p.Stream != want[0] || p.StreamOdd != want[1] {
			t.Errorf("%s: Stream %v, StreamOdd %v", body, p.Stream, p.StreamOdd)
		}
	}
}

func TestPeekRefusals(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                                 "ends where a value should be (byte 0)",
		`{"a":1,}`:                         "lacks a member name in double quotes (byte 7)",
		`{"a" 1}`:                          "lacks a colon behind a member name (byte 5)",
		`{'a':1}`:                          "lacks a member name in double quotes (byte 1)",
		`[1 2]`:                            "something other than a comma or a closing bracket behind a value (byte 3)",
		`[1`:                               "ends inside an array or object (byte 2)",
		`{"a":"b`:                          "a string that does not end (byte 5)",
		"[\"a\tb\"]":                       "a raw control character in a string (byte 3)",
		`"\x"`:                             "an unknown escape in a string (byte 1)",
		`"\u12g4"`:                         `a \u without four hex digits (byte 1)`,
		`{} {}`:                            "goes on behind its end (byte 3)",
		`[01]`:                             "something other than a comma or a closing bracket behind a value (byte 2)",
		`-`:                                "a minus sign without a number (byte 0)",
		`nul`:                              "has no value where one should be (byte 0)",
		"\"" + "\xff" + "\"":               "is not valid UTF-8 (byte 1)",
		strings.Repeat("9", 4301):          "an integer of more than 4,300 digits (byte 0)",
		strings.Repeat("[", 129):           "is nested deeper than 128 levels (byte 128)",
		`{"a":` + strings.Repeat("[", 128): "is nested deeper than 128 levels (byte 132)",
	} {
		var p Peeked
		err := p.Peek([]byte(body))
		var bad *BodyError
		if !errors.As(err, &bad) || !strings.Contains(bad.Message, want) || !strings.HasPrefix(bad.Message, "The request body ") || bad.Error() != bad.Message {
			t.Errorf("%.40q: %v, want %q", body, err, want)
		}
	}
}

// A reader who grows a stack or looks back for every bracket would take
// minutes for these.
func TestPeekOnAbuse(t *testing.T) {
	t.Parallel()
	const big = 8 << 20
	quick := func(what string, body []byte, accept bool) *Peeked {
		p, begin := new(Peeked), time.Now()
		if err := p.Peek(body); (err == nil) != accept {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s took %v", what, took)
		}
		return p
	}
	quick("open brackets", []byte(strings.Repeat("[", 100_000)), false)
	quick("open braces", []byte(strings.Repeat(`{"a":`, 100_000)), false)
	quick("blanks", []byte(strings.Repeat(" ", big)), false)
	quick("blanks around", []byte(strings.Repeat("\n", big)+"{}"+strings.Repeat("\t", big)), true)
	quick("backslashes", []byte(`{"a":"`+strings.Repeat(`\\`, big/2)+`"}`), true)
	quick("odd backslashes", []byte(`{"a":"`+strings.Repeat(`\`, big+1)+`"}`), false)
	quick("no end", []byte(`{"a":"`+strings.Repeat("a", big)), false)
	quick("empty arrays", []byte("["+strings.Repeat("[],", big/3)+"[]]"), true)
	quick("escaped names", []byte("{"+strings.Repeat(`"mod\u0065l":"m",`, big/17)+`"a":1}`), true)
	quick("metadata again and again", []byte("{"+strings.Repeat(`"metadata":{"user_id":"`+strings.Repeat("x", 100)+`"},`, big/140)+`"a":1}`), true)
	if p := quick("long model", []byte(`{"model":"`+strings.Repeat("\\u006d", 64<<10)+`"}`), true); len(p.ModelName) != 64<<10 {
		t.Errorf("long model: %d bytes", len(p.ModelName))
	}
	if p := quick("8 MiB chat", chatBody("code", big), true); string(p.ModelName) != "org/model-7b" || p.MessageCount < 1000 || p.Cap != 256 {
		t.Errorf("8 MiB chat: %q, %d messages, cap %d", p.ModelName, p.MessageCount, p.Cap)
	}
	if p := quick("many prompts", []byte(`{"prompt":[`+strings.Repeat(`[1],`, 100_000)+`[2]]}`), true); p.Prompts != 100_001 {
		t.Errorf("many prompts: %d", p.Prompts)
	}
}

// Every string length and every place of a special byte passes all of the
// three speeds of the string reader: steps of 8, of 64 and of single bytes.
func TestStringsAtEveryAlignment(t *testing.T) {
	t.Parallel()
	for _, insert := range []struct {
		text   string
		accept bool
		value  string
	}{
		{"", true, ""}, {`\n`, true, "\n"}, {`\"`, true, `"`}, {`\\`, true, `\`}, {`\\\"`, true, `\"`}, {`\u00e9`, true, "é"}, {`\ud83d\ude00`, true, "😀"},
		{"é", true, "é"}, {"\x7f", true, "\x7f"}, {"\x80", false, ""}, {"\x1f", false, ""}, {"\x00", false, ""}, {`\u00g`, false, ""}, {`\a`, false, ""}, {"\xed\xa0\x80", true, "\xed\xa0\x80"},
		{`\` + "\x1f", false, ""}, {`\"\"\"\"\"\"\"\"`, true, `""""""""`}, {`!#[]`, true, "!#[]"}, {"\u2028", true, "\u2028"},
	} {
		for before := range 140 {
			for _, after := range []int{0, 1, 7, 8, 63, 64, 70} {
				a, b := strings.Repeat("a", before), strings.Repeat("b", after)
				var p Peeked
				err := p.Peek([]byte(`{"model":"` + a + insert.text + b + `"}`))
				if (err == nil) != insert.accept {
					t.Fatalf("%q behind %d, before %d: %v", insert.text, before, after, err)
				}
				if want := a + insert.value + b; insert.accept && string(p.ModelName) != want {
					t.Fatalf("%q behind %d, before %d: %q", insert.text, before, after, p.ModelName)
				}
			}
		}
	}
}

func TestSpecialMarksExactly(t *testing.T) {
	t.Parallel()
	block := make([]byte, 64)
	for c := range 256 {
		for _, other := range []byte{'a', 0x20, 0x21, 0x23, 0x7f, 0x80, 0xff, '"', 0} {
			for i := range block {
				block[i] = other
			}
			for _, at := range []int{0, 1, 7, 8, 31, 62, 63} {
				keep := block[at]
				block[at] = byte(c)
				marks, _ := special64(block)
				for i, b := range block {
					if got, want := marks>>i&1 != 0, b < 0x20 || b == '"' || b == '\\'; got != want {
						t.Fatalf("byte %#x at %d is marked %v", b, i, got)
					}
				}
				block[at] = keep
			}
		}
	}
}

// A body cut anywhere is refused, and never read beyond its end.
func TestPeekCutAtEveryByte(t *testing.T) {
	t.Parallel()
	body := chatBody("code", 1500)
	var p Peeked
	for i := range len(body) {
		if err := p.Peek(body[:i:i]); err == nil {
			t.Fatalf("cut at %d: accepted", i)
		}
	}
	if err := p.Peek(body); err != nil || !p.Object {
		t.Fatal(err)
	}
}

// Real texts, in the JSON that their own recorder wrote.
func TestPeekOnRealText(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../../shared/traces/lmcache_agent_text.jsonl.gz")
	if err != nil {
		t.Skipf("no traces beside the repository, real texts are not read: %v", err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(unzipped)
	var p Peeked
	for n := range 200 {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		var want struct {
			Input     string
			SessionID string `json:"session_id"`
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		var input string
		if err := p.Peek(line); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if err := json.Unmarshal(p.Input.Of(line), &input); err != nil || input != want.Input || string(p.Session) != want.SessionID {
			t.Errorf("line %d: input %.40q, session %q, %v", n, input, p.Session, err)
		}
	}
}

func TestScratchIsNotKeptWhenLarge(t *testing.T) {
	t.Parallel()
	var p Peeked
	if err := p.Peek([]byte(`{"model":"` + strings.Repeat(`\n`, 100_000) + `"}`)); err != nil {
		t.Fatal(err)
	}
	if err := p.Peek([]byte(`{}`)); err != nil || cap(p.scratch) > maxScratch {
		t.Errorf("%v, %d bytes kept", err, cap(p.scratch))
	}
}

func TestElementsAreNotedInPassing(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0,", maxNoted) + "0"
	for _, c := range []struct {
		name, body string
		want       []string
		known      bool
	}{
		{"blanks", "{\"messages\": [ {\"a\":[1,2]} ,\t\"x,y\"\n, [3 , 4] ] }", []string{`{"a":[1,2]}`, `"x,y"`, `[3 , 4]`}, true},
		{"one", `{"messages":[{"role":"user"}]}`, []string{`{"role":"user"}`}, true},
		{"none", `{"messages":[ ]}`, nil, true},
		{"input", `{"input":["a","b"],"model":"m"}`, []string{`"a"`, `"b"`}, true},
		{"the last of two", `{"messages":[1,2],"messages":[3]}`, []string{`3`}, true},
		{"null behind it", `{"messages":[1,2],"messages":null}`, nil, false},
		{"no list", `{"messages":{"a":1,"b":2}}`, nil, false},
		{"the other list behind it", `{"messages":[1,2],"input":[3]}`, nil, false},
		{"as many as are noted", `{"messages":[` + long + `]}`, strings.Split(long, ","), true},
		{"too many", `{"messages":[` + long + `,0]}`, nil, false},
		{"a list of another name", `{"messages":[1,2],"stop":[3,4,5]}`, []string{`1`, `2`}, true},
	} {
		var p Peeked
		for range 2 { // room of the first reading is used again
			if err := p.Peek([]byte(c.body)); err != nil {
				t.Fatal(c.name, err)
			}
			list := p.Messages
			if list == (Span{}) {
				list = p.Input
			}
			var got []string
			spans, known := p.AppendElements(nil, []byte(c.body), list)
			for _, s := range spans {
				got = append(got, string(s.Of([]byte(c.body))))
			}
			if known != c.known || !slices.Equal(got, c.want) {
				t.Errorf("%s: %v %q, want %v %q", c.name, known, got, c.known, c.want)
			}
		}
		p.Forget()
		if _, known := p.AppendElements(nil, []byte(c.body), p.Messages); known || cap(p.commas) > keptCommas {
			t.Errorf("%s: known after it was forgotten: %v, room for %d", c.name, known, cap(p.commas))
		}
		if list, known := p.Members(); known || len(list) > 0 || p.listed != nil {
			t.Errorf("%s: %d members are known after they were forgotten: %v", c.name, len(list), known)
		}
	}
}

func TestDecodedTextsDoNotShareBytes(t *testing.T) {
	t.Parallel()
	p := mustPeek(t, `{"model":"a\u0062","previous_response_id":"c\u0064","metadata":{"user\u005fid":"e\u0066"},"strea\u006d":"\u0074rue"}`)
	if string(p.ModelName) != "ab" || string(p.PreviousResponseID) != "cd" || string(p.Session) != "ef" || !p.Stream {
		t.Errorf("%q %q %q %v", p.ModelName, p.PreviousResponseID, p.Session, p.Stream)
	}
}
