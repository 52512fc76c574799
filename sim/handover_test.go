package sim

import (
	"encoding/json"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// promptTokens reads the prompt's length from any endpoint's usage.
func promptTokens(t *testing.T, a answer) int {
	t.Helper()
	var r struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Input  int `json:"input_tokens"`
			Read   int `json:"cache_read_input_tokens"`
			Made   int `json:"cache_creation_input_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return r.Usage.Prompt + r.Usage.Input + r.Usage.Read + r.Usage.Made
}

// TestHandoffModes: whose ids are used as the prompt, by the place where they stand and the endpoint.
func TestHandoffModes(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	text := len(chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}))
	const inParams, inBody = `"kv_transfer_params":{"prompt_token_ids":[9,8,7,6]},`, `"prompt_token_ids":[9,8,7,6,5],`
	for _, tc := range []struct {
		mode               string
		params, body, both int // prompt tokens; 0 = status 400
	}{
		{HandoffBoth, 4, 5, 5},
		{HandoffParams, 4, text, 4},
		{HandoffField, text, 5, 5},
		{HandoffIgnore, text, text, text},
		{HandoffConnector, text, text, text},
		{HandoffRefuse, 0, 0, 0},
	} {
		if a := call(t, s, post("/sim/handoff", `{"mode":"`+tc.mode+`"}`)); a.status != 200 {
			t.Fatal(a)
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
			for members, want := range map[string]int{inParams: tc.params, inBody: tc.body, inParams + inBody: tc.both, "": text} {
				a := call(t, s, post(path, `{"max_tokens":1,`+members+hello+`}`))
				if want == 0 {
					if a.status != 400 {
						t.Errorf("%s %s %s: status %d", tc.mode, path, members, a.status)
					}
					continue
				}
				if got := promptTokens(t, a); got != want {
					t.Errorf("%s %s %s: %d prompt tokens, wanted %d", tc.mode, path, members, got, want)
				}
			}
		}
	}
	st := s.State()
	if st.HandedOver != 2*(3+2+2) || st.ToConnector != 4 || st.Handoff != HandoffRefuse {
		t.Errorf("state %+v", st)
	}
	if a := call(t, s, post("/sim/handoff", `{"mode":"sometimes"}`)); a.status != 400 || !strings.Contains(a.body, HandoffConnector) {
		t.Errorf("%+v", a)
	}
}

// TestHandoffGuards: echo keeps ids from being used, and the endpoints that do not know them ignore them.
func TestHandoffGuards(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	text := len(chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}))
	const ids = `"prompt_token_ids":[9,8],"kv_transfer_params":{"prompt_token_ids":[9,8]},`
	for _, tc := range []struct {
		path, body string
		want       int
	}{
		{"/v1/chat/completions", `{"echo":true,"max_tokens":1,` + ids + hello + `}`, text},
		{"/v1/responses", `{"max_output_tokens":1,` + ids + `"input":"Hello"}`, text},
		{"/v1/completions", `{"max_tokens":1,` + ids + `"prompt":[1,2,3]}`, 3},
		{"/v1/chat/completions", `{"max_tokens":1,"prompt_token_ids":null,"kv_transfer_params":null,` + hello + `}`, text},
		{"/v1/chat/completions", `{"max_tokens":1,"kv_transfer_params":{"do_remote_decode":false},` + hello + `}`, text},
	} {
		if got := promptTokens(t, call(t, s, post(tc.path, tc.body))); got != tc.want {
			t.Errorf("%s %s: %d prompt tokens, wanted %d", tc.path, tc.body, got, tc.want)
		}
	}
	for _, bad := range []string{`"prompt_token_ids":[99999999],`, `"prompt_token_ids":"x",`, `"prompt_token_ids":[],`, `"kv_transfer_params":{"prompt_token_ids":[-1]},`, `"kv_transfer_params":3,`} {
		if a := call(t, s, post("/v1/chat/completions", `{`+bad+hello+`}`)); a.status != 400 {
			t.Errorf("%s: status %d", bad, a.status)
		}
	}
}

// TestHandoffSavesTime: with ids the head comes after the body's share of the time alone, and requests that come
// together wait for each other: there is one thread.
func TestHandoffSavesTime(t *testing.T) {
	words := strings.Repeat("word ", 4000)
	prompt := chatPrompt(t, ChatMessage{Role: "user", Content: words})
	body := `"stream":true,"max_tokens":2,"messages":[{"role":"user","content":"` + words + `"}]}`
	with := `{"prompt_token_ids":` + string(appendIDs(nil, prompt)) + `,` + body
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		head := func(bodies ...string) time.Duration {
			begin, heads := time.Now(), make(chan time.Duration, len(bodies))
			for _, b := range bodies {
				go func() {
					c := dial()
					go func() { _, _ = io.WriteString(c, post("/v1/chat/completions", b, "Connection: close\r\n")) }()
					_, err := io.ReadFull(c, make([]byte, 20))
					heads <- time.Since(begin)
					if _, e := io.Copy(io.Discard, c); err != nil || e != nil {
						t.Error(err, e)
					}
					_ = c.Close()
				}()
			}
			var last time.Duration
			for range bodies {
				last = max(last, <-heads)
			}
			return last
		}
		text, ids := s.Core().TokenizeTime(len(prompt))+s.Core().FrontendTime(len(prompt)), s.Core().FrontendTime(len(prompt))
		if got := head("{" + body); got != text {
			t.Errorf("as text: head after %v, wanted %v", got, text)
		}
		time.Sleep(time.Minute)
		if got := head(with); got != ids || ids*3 > text {
			t.Errorf("as ids: head after %v, wanted %v; as text %v", got, ids, text)
		}
		time.Sleep(time.Minute)
		if got := head(with, "{"+body, "{"+body); got != 2*text+ids {
			t.Errorf("three at once: last head after %v, wanted %v", got, 2*text+ids)
		}
	})
}

// TestEffort: reasoning_effort "none" is enable_thinking false for the chat endpoint, not for /tokenize.
func TestEffort(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	count := func(members string) (chat, tokenize int) {
		var r struct{ Count int }
		if err := json.Unmarshal([]byte(call(t, s, post("/tokenize", `{`+members+hello+`}`)).body), &r); err != nil {
			t.Fatal(err)
		}
		return promptTokens(t, call(t, s, post("/v1/chat/completions", `{"max_tokens":1,`+members+hello+`}`))), r.Count
	}
	plain, plainTok := count("")
	off, offTok := count(`"chat_template_kwargs":{"enable_thinking":false},`)
	if plain != plainTok || off != offTok || plain == off {
		t.Fatalf("%d %d %d %d", plain, plainTok, off, offTok)
	}
	for members, want := range map[string][2]int{
		`"reasoning_effort":"none",`: {off, plain},
		`"reasoning_effort":"low",`:  {plain, plain},
		`"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true},`: {plain, plain},
	} {
		if c, tok := count(members); [2]int{c, tok} != want {
			t.Errorf("%s: chat %d, tokenize %d, wanted %v", members, c, tok, want)
		}
	}
}

// TestAdaptersAndHiddenUsage: adapters are models with a cache of their own; HideCached takes the details away.
func TestAdaptersAndHiddenUsage(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Adapters = "tuned,other"
	s := start(t, o)
	words := `"messages":[{"role":"user","content":"` + strings.Repeat("word ", 200) + `"}]`
	cached := func(model string) string {
		a := call(t, s, post("/v1/chat/completions", `{"max_tokens":1,"model":"`+model+`",`+words+`}`))
		_, rest, _ := strings.Cut(a.body, `"cached_tokens":`)
		n, _, _ := strings.Cut(rest, ",")
		return strconv.Itoa(a.status) + " " + n
	}
	for _, tc := range [][2]string{{"m", "200 0"}, {"tuned", "200 0"}, {"other", "200 0"}, {"tuned", "200 208"}, {"m", "200 208"}, {"none", "404 "}} {
		if got := cached(tc[0]); got != tc[1] {
			t.Errorf("%s: %q, wanted %q", tc[0], got, tc[1])
		}
	}
	if a := call(t, s, get("/v1/models")); !strings.Contains(a.body, `"id":"tuned","object":"model"`) || strings.Count(a.body, `"parent":"m"`) != 2 {
		t.Errorf("models %s", a.body)
	}
	if a := call(t, s, post("/tokenize", `{"model":"tuned","prompt":"x"}`)); a.status != 200 {
		t.Errorf("%+v", a)
	}
	o = fast()
	o.HideCached = true
	s = start(t, o)
	_ = cached("m")
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		a := call(t, s, post(path, `{"max_tokens":1,"prompt":"x",`+words+`}`))
		b := call(t, s, post(path, `{"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},"prompt":"x",`+words+`}`))
		if !strings.Contains(a.body, `"prompt_tokens_details":null`) || strings.Contains(a.body+b.body, "cached_tokens") || !strings.Contains(b.body, `"completion_tokens":1}`) {
			t.Errorf("%s: %s\n%s", path, a.body, b.body)
		}
	}
}
