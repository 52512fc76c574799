package sim

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestErrorsAreVLLMs holds status, shape and place of every error that was
// recorded against vLLM 0.32, and some beside them.
func TestErrorsAreVLLMs(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.MaxModelLen = 400
	s := start(t, o)
	chat, comp := "/v1/chat/completions", "/v1/completions"
	long := strings.Repeat("word ", 500)
	plain := func(path, contentType, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, contentType, len(body), body)
	}
	for _, tc := range []struct {
		name, raw string
		status    int
		parts     string // separated by |
	}{
		{"bad JSON", post(chat, `{"model":`), 400, `{"error":{"message":"1 validation error:|"type":"Bad Request","param":"body.8","code":400}}`},
		{"not an object", post(chat, `[1]`), 400, `"type":"Bad Request","param":"body"`},
		{"null", post(chat, `null`), 400, `Field required|"type":"Bad Request"`},
		{"empty body", post(chat, ``), 400, `Field required|"param":"body"`},
		{"no messages", post(chat, `{"model":"m"}`), 400, `Field required|"type":"Bad Request","param":"body.messages"`},
		{"messages of another type", post(chat, `{"messages":"x"}`), 400, `valid list`},
		{"role missing", post(chat, `{"messages":[{"content":"x"}]}`), 400, `Field required`},
		{"no prompt", post(comp, `{"model":"m"}`), 400, `"param":"body.prompt"`},
		{"empty prompt list", post(comp, `{"prompt":[]}`), 400, `"type":"BadRequestError"`},
		{"token id out of range", post(comp, `{"prompt":[99999999]}`), 400, `out of vocabulary`},
		{"no content type", plain(chat, "", `{}`), 400, `Unsupported Media Type: Only 'application/json' is allowed`},
		{"text/plain", plain(chat, "Content-Type: text/plain\r\n", `{}`), 400, `Unsupported Media Type`},
		{"compressed", plain(chat, "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\xff"), 400, `{"detail":"There was an error parsing the body"}`},
		{"prompt too long", post(chat, `{"stream":true,"max_tokens":1,"messages":[{"role":"user","content":"`+long+`"}]}`), 400, `maximum context length is 400 tokens|"type":"BadRequestError","param":"input_tokens","code":400`},
		{"too long with the output", post(comp, `{"prompt":"a b c","max_tokens":399}`), 400, `"param":"input_tokens"`},
		{"max_tokens above the model", post(comp, `{"prompt":"a","max_tokens":401}`), 400, `"param":"max_tokens"`},
		{"max_tokens 0", post(chat, `{"max_tokens":0,`+hello+`}`), 400, `max_tokens must be at least 1, got 0.","type":"BadRequestError","param":"max_tokens"`},
		{"temperature", post(chat, `{"temperature":-1,`+hello+`}`), 400, `"type":"BadRequestError","param":"temperature"`},
		{"max_tokens in words", post(chat, `{"max_tokens":"many",`+hello+`}`), 400, `"type":"Bad Request","param":"body.max_tokens"`},
		{"n 0", post(chat, `{"n":0,`+hello+`}`), 400, `"param":"n"`},
		{"stream_options without stream", post(chat, `{"stream_options":{"include_usage":true},`+hello+`}`), 400, `"type":"Bad Request","param":"stream_options"`},
		{"unknown model", post(chat, `{"model":"other",`+hello+`}`), 404, "The model `other` does not exist.|" + `"type":"NotFoundError","param":"model","code":404`},
		{"absent model", post(chat, `{"max_tokens":1,`+hello+`}`), 200, `"model":"m"`},
		{"model in another case", post(chat, `{"Model":"other","max_tokens":1,`+hello+`}`), 200, `"model":"m"`},
		{"the last of equal keys", post(chat, `{"model":"m","model":"other",`+hello+`}`), 404, "`other`"},
		{"an image", post(chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`), 400, `At most 0 image_url(s)`},
		{"both ends of the prompt", post(chat, `{"continue_final_message":true,`+hello+`}`), 400, `Cannot set both`},
		{"named tool that is not there", post(chat, `{"tool_choice":{"type":"function","function":{"name":"x"}},"tools":[`+weather+`],`+hello+`}`), 400, `"param":"tool_choice"`},
		{"required without tools", post(chat, `{"tool_choice":"required",`+hello+`}`), 400, "`tools` must be set"},
		{"Anthropic unknown model", post("/v1/messages", `{"model":"x","max_tokens":1,`+hello+`}`), 404, `{"type":"error","error":{"type":"NotFoundError","message":`},
		{"Anthropic validation", post("/v1/messages", `{"model":"m",`+hello+`}`), 400, `{"error":{"message":"1 validation error|"param":"body.max_tokens"`},
		{"responses without input", post("/v1/responses", `{}`), 400, `"param":"body.input"`},
		{"unknown previous response", post("/v1/responses", `{"input":"x","previous_response_id":"resp_none"}`), 404, `Response with id 'resp_none' not found.`},
		{"unknown response", get("/v1/responses/resp_none"), 404, `"param":"response_id"`},
		{"no response id", get("/v1/responses/none"), 400, `Expected an ID that begins with 'resp'`},
		{"cancel of nothing", post("/v1/responses/resp_none/cancel", ""), 404, `not found`},
		{"no audio file", post("/v1/audio/transcriptions", `{}`), 400, `"param":"body.file"`},
		{"unknown path", get("/nothing"), 404, `{"detail":"Not Found"}`},
		{"model by id", get("/v1/models/m"), 404, `{"detail":"Not Found"}`},
		{"/v1/tokenize", post("/v1/tokenize", `{"prompt":"x"}`), 404, `{"detail":"Not Found"}`},
		{"wrong method", get(chat), 405, `{"detail":"Method Not Allowed"}`},
		{"POST on a GET route", post("/version", ""), 405, `{"detail":"Method Not Allowed"}`},
		{"unknown method", "BREW /version HTTP/1.1\r\n\r\n", 405, `{"detail":"Method Not Allowed"}`},
		{"escaped path", get("/vers%69on"), 200, `0.32.0`},
		{"no Host", "GET /version HTTP/1.1\r\n\r\n", 200, `0.32.0`},
		{"absolute target", "GET http://x/version?a=b HTTP/1.1\r\n\r\n", 200, `0.32.0`},
		{"h2c upgrade of a GET", "GET /version HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", 200, `0.32.0`},
		{"h2c upgrade loses the body", post(comp, `{"prompt":"x"}`, "Connection: Upgrade, HTTP2-Settings\r\n", "Upgrade: h2c\r\n"), 400, `Field required`},
		{"WebSocket", "GET /v1/realtime HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 403, ``},
		{"preflight", "OPTIONS " + chat + " HTTP/1.1\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n\r\n", 400, `Disallowed CORS origin`},
		{"OPTIONS without Origin", "OPTIONS " + chat + " HTTP/1.1\r\n\r\n", 405, `Method Not Allowed`},
		{"two lengths", "POST /version HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, `Invalid HTTP request received.`},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, `Invalid HTTP request received.`},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, `Invalid HTTP request received.`},
		{"restart in the past", post("/sim/restart", `{"seconds":-1}`), 400, `at least 0`},
		{"control of nonsense", post("/sim/evict", `x`), 400, `cannot read`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := call(t, s, tc.raw)
			if a.status != tc.status {
				t.Errorf("status %d, want %d: %s", a.status, tc.status, a.body)
			}
			for _, p := range strings.Split(tc.parts, "|") {
				if !strings.Contains(a.body, p) {
					t.Errorf("%s\nlacks %s", a.body, p)
				}
			}
			if a.status == 405 && a.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("CORS is open")
			}
		})
	}
}

func TestHeadIsNotAllowed(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	c := dial(t, s.Addr())
	if _, err := io.WriteString(c, "HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 405 ") || !strings.HasSuffix(string(b), "\r\n\r\n") {
		t.Errorf("%v: %q", err, b)
	}
}

// TestKeyIsAskedByPrefix: vLLM guards /v1, /v2 and /inference, unknown paths
// there too, takes only a bearer token, and lets preflights pass.
func TestKeyIsAskedByPrefix(t *testing.T) {
	t.Parallel()
	o := fast()
	o.APIKey = "secret"
	s := start(t, o)
	for _, tc := range []struct {
		raw    string
		status int
	}{
		{get("/v1/models"), 401},
		{get("/v1/nothing"), 401},
		{"GET /v1/models HTTP/1.1\r\nx-api-key: secret\r\n\r\n", 401},
		{"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n", 401},
		{"GET /v1/models HTTP/1.1\r\nAuthorization: Basic secret\r\n\r\n", 401},
		{"GET /v1/models HTTP/1.1\r\nauthorization: bearer secret\r\n\r\n", 200},
		{"OPTIONS /v1/models HTTP/1.1\r\n\r\n", 405},
		{get("/health"), 200},
		{get("/sim/state"), 200},
		{post("/tokenize", `{"prompt":"x"}`), 200},
	} {
		a := call(t, s, tc.raw)
		if a.status != tc.status || tc.status == 401 && a.body != `{"error":"Unauthorized"}` {
			t.Errorf("%q: %d %s", tc.raw, a.status, a.body)
		}
	}
}

func TestStateCountsAndKeepsBodies(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	body := `{"prompt":"` + strings.Repeat("word ", 40) + `","max_tokens":5}`
	call(t, s, post("/v1/completions", body))
	call(t, s, post("/v1/completions", body))
	var st State
	a := call(t, s, get("/sim/state"))
	if err := json.Unmarshal([]byte(a.body), &st); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	h := hex.EncodeToString(sum[:])
	if st.Requests != 2 || st.InFlight != 0 || st.Aborted != 0 || st.OutputTokens != 10 || st.CachedTokens == 0 ||
		len(st.Bodies) != 2 || st.Bodies[0] != h || st.Bodies[1] != h || st.KVBlocks == 0 || st.KVBlocksUsed != 0 {
		t.Errorf("%s", a.body)
	}
	for i := range keptBodies + 3 {
		s.journal.body(&request{method: "POST", body: []byte(strconv.Itoa(i))})
	}
	_, _, _, bodies := s.journal.counts()
	last := sha256.Sum256([]byte(strconv.Itoa(keptBodies + 2)))
	first := sha256.Sum256([]byte("3"))
	if len(bodies) != keptBodies || bodies[keptBodies-1] != hex.EncodeToString(last[:]) || bodies[0] != hex.EncodeToString(first[:]) {
		t.Error("the ring of bodies is not the last thousand in order")
	}
}

// TestTextIsKnown: every endpoint's text is ExpectedText of its prompt.
func TestTextIsKnown(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	user := ChatMessage{Role: "user", Content: "Tell me"}
	system := ChatMessage{Role: "system", Content: "Be brief."}
	for _, tc := range []struct {
		path, body string
		prompt     []uint32
	}{
		{"/v1/chat/completions", `{"stream":true,"max_completion_tokens":20,"max_tokens":3,"messages":[{"role":"user","content":"Tell me"}]}`, chatPrompt(t, user)},
		{"/v1/chat/completions", `{"stream":true,"max_tokens":20,"messages":[{"role":"system","content":[{"type":"text","text":"Be brief."}]},{"role":"user","content":"Tell me"}]}`, chatPrompt(t, system, user)},
		{"/v1/completions", `{"stream":true,"max_tokens":20,"prompt":"Tell me"}`, Tokenizer().Encode("Tell me")},
		{"/v1/completions", `{"stream":true,"max_tokens":20,"prompt":["Tell me"]}`, Tokenizer().Encode("Tell me")},
		{"/v1/completions", `{"stream":true,"max_tokens":20,"prompt":[5,6,7]}`, []uint32{5, 6, 7}},
		{"/v1/completions", `{"stream":true,"max_tokens":20,"prompt":[[5,6,7]]}`, []uint32{5, 6, 7}},
		{"/v1/responses", `{"stream":true,"max_output_tokens":20,"input":"Tell me","instructions":"Be brief."}`, chatPrompt(t, system, user)},
		{"/v1/messages", `{"stream":true,"max_tokens":20,"system":"Be brief.","messages":[{"role":"user","content":"Tell me"}]}`, chatPrompt(t, system, user)},
		{"/v1/messages", `{"stream":true,"max_tokens":20,"system":[{"type":"text","text":"x-anthropic-billing-header: y"},{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":[{"type":"text","text":"Tell me"}]}]}`, chatPrompt(t, system, user)},
		{"/v1/chat/completions", `{"stream":true,"max_tokens":20,"kv_transfer_params":{"prompt_token_ids":[9,8,7]},"messages":[{"role":"user","content":"Tell me"}]}`, []uint32{9, 8, 7}},
	} {
		raw, err := stream(t, s, tc.path, tc.body)
		if got, want := said(raw), ExpectedText(7, tc.prompt, 20); err != nil || got != want {
			t.Errorf("%s %s: %v\n got %q\nwant %q", tc.path, tc.body, err, got, want)
		}
	}
}

func TestMultibyteTextIsNeverCut(t *testing.T) {
	t.Parallel()
	d := newDetokenizer(nil, false)
	text := "héllo wörld — 日本語 🙂 end"
	var got strings.Builder
	ids := Tokenizer().Encode(text)
	for i, id := range ids {
		piece, _ := d.push([]uint32{id}, i == len(ids)-1)
		if strings.ContainsRune(string(piece), '\uFFFD') || strings.ToValidUTF8(string(piece), "?") != string(piece) {
			t.Errorf("piece %q", piece)
		}
		got.Write(piece)
	}
	if got.String() != text {
		t.Errorf("got %q", got.String())
	}
}

// TestStopStrings compares the streaming search with a search in the whole
// text, for stops at every place and every cut into tokens.
func TestStopStrings(t *testing.T) {
	t.Parallel()
	text := "alpha beta gamma beta delta"
	ids := Tokenizer().Encode(text)
	for from := range len(text) {
		for to := from + 1; to <= min(from+8, len(text)); to++ {
			stop := text[from:to]
			for _, keep := range []bool{false, true} {
				d := newDetokenizer([]string{"zzz", stop}, keep)
				got, hit := "", ""
				for i := 0; i < len(ids) && hit == ""; i++ {
					var piece []byte
					piece, hit = d.push(ids[i:i+1], i == len(ids)-1)
					got += string(piece)
				}
				want, _, _ := strings.Cut(text, stop)
				if keep {
					want += stop
				}
				if got != want || hit != stop {
					t.Fatalf("stop %q: got %q with %q, want %q", stop, got, hit, want)
				}
			}
		}
	}
}

func TestStopEndsTheSequence(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		whole := ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}), 400)
		words := strings.Fields(whole)
		stop := words[5]
		out, _ := writes(t, dial(), post("/v1/chat/completions", `{"max_tokens":400,"stop":["`+stop+`"],`+hello+`}`, "Connection: close\r\n"))
		want, _, _ := strings.Cut(whole, stop)
		body := out[len(out)-1]
		if !strings.Contains(body, `"content":`+string(appendString(nil, want))) || !strings.Contains(body, `"finish_reason":"stop","stop_reason":"`+stop+`"`) {
			t.Errorf("%s\nwant text %q", body, want)
		}
		synctest.Wait()
		if st := s.State(); st.OutputTokens > 30 || st.Running != 0 {
			t.Errorf("the engine went on: %+v", st)
		}
	})
}

// TestNaturalEnd: without a cap the model ends its own turn.
func TestNaturalEnd(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		prompt := chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"})
		n := NaturalLength(7, PromptHash(prompt))
		out, _ := writes(t, dial(), post("/v1/chat/completions", `{`+hello+`}`, "Connection: close\r\n"))
		body := out[len(out)-1]
		want := ExpectedText(7, prompt, n-1)
		if !strings.Contains(body, fmt.Sprintf(`"completion_tokens":%d`, n)) || !strings.Contains(body, `"finish_reason":"stop"`) ||
			!strings.Contains(body, string(appendString(nil, want))) {
			t.Errorf("%d tokens expected: %s", n, body)
		}
	})
}

func TestContinueFinalMessage(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	body := `{"max_tokens":20,"stream":true,"echo":true,"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"Count"},{"role":"assistant","content":"One, two"}]}`
	full, err := RenderChat([]ChatMessage{{Role: "user", Content: "Count"}, {Role: "assistant", Content: "One, two"}}, ChatOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cut, _, _ := strings.Cut(full, "One, two")
	prompt := Tokenizer().Encode(cut + "One, two")
	raw, _ := stream(t, s, "/v1/chat/completions", body)
	if got, want := said(raw), "One, two"+ExpectedText(7, prompt, 20); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	a := call(t, s, post("/tokenize", strings.Replace(body, `"max_tokens":20,"stream":true,"echo":true,`, "", 1)))
	if !strings.Contains(a.body, `"tokens":`+string(appendIDs(nil, prompt))) {
		t.Errorf("tokenize: %s", a.body)
	}
}

// TestTokenizeAgreesWithTheChat: the chat form gives the prompt that the chat
// endpoint uses, and detokenize undoes it.
func TestTokenizeAgreesWithTheChat(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	for _, body := range []string{
		`{` + hello + `}`,
		`{` + hello + `,"tools":[` + weather + `]}`,
		`{` + hello + `,"chat_template_kwargs":{"enable_thinking":false}}`,
		`{"messages":[{"role":"developer","content":"x"},{"role":"user","content":"y"},{"role":"assistant","content":"","reasoning":"hm","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","content":"z"}]}`,
	} {
		var tok struct {
			Count  int
			Tokens []uint32
		}
		if err := json.Unmarshal([]byte(call(t, s, post("/tokenize", body)).body), &tok); err != nil {
			t.Fatal(err)
		}
		a := call(t, s, post("/v1/chat/completions", `{"max_tokens":1,"return_token_ids":true,"tool_choice":"none",`+body[1:]))
		if !strings.Contains(a.body, `"prompt_token_ids":`+string(appendIDs(nil, tok.Tokens))) || tok.Count != len(tok.Tokens) || tok.Count == 0 {
			t.Errorf("%s: %v\n%s", body, tok, a.body)
		}
		ids := string(appendIDs(nil, tok.Tokens))
		d := call(t, s, post("/detokenize", `{"tokens":`+ids+`}`))
		if want := Tokenizer().Decode(tok.Tokens, false); d.body != string(append(appendString([]byte(`{"prompt":`), want), '}')) {
			t.Errorf("detokenize: %s", d.body)
		}
	}
}

func TestToolArgumentsFitTheSchema(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"s":{"type":"string"},"i":{"type":"integer"},"n":{"type":["number","null"]},"b":{"type":"boolean"},"e":{"enum":["x y",2]},"c":{"const":{"k":1}},
		"l":{"type":"array","items":{"type":"integer"}},"o":{"type":"object","properties":{"p":{"type":"null"}}},"any":{}}}`
	for seed := range uint64(50) {
		var v struct {
			S string
			I int
			N float64
			B bool
			E string
			C map[string]int
			L []int
			O map[string]any
		}
		got := argumentsFor(json.RawMessage(schema), seed, 0)
		if err := json.Unmarshal([]byte(got), &v); err != nil || v.E != "x y" || v.C["k"] != 1 || len(v.L) != 1 || v.O == nil || v.S == "" {
			t.Fatalf("%s: %v", got, err)
		}
		if got != argumentsFor(json.RawMessage(schema), seed, 0) {
			t.Fatal("not a function of seed and schema")
		}
	}
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 50) + `{}` + strings.Repeat(`}}`, 50)
	if got := argumentsFor(json.RawMessage(deep), 1, 0); !json.Valid([]byte(got)) {
		t.Errorf("deep schema: %s", got)
	}
	if got := argumentsFor(nil, 1, 0); got != "{}" {
		t.Errorf("no schema: %s", got)
	}
}

func TestToolCallCutByTheCap(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	a := call(t, s, post("/v1/chat/completions", `{"max_tokens":3,"tool_choice":"required","tools":[`+weather+`],`+hello+`}`))
	if !strings.Contains(a.body, `"finish_reason":"length"`) || !strings.Contains(a.body, `"completion_tokens":3`) {
		t.Error(a.body)
	}
	a = call(t, s, post("/v1/chat/completions", `{"max_tokens":3,"tools":[`+weather+`],`+hello+`}`))
	if !strings.Contains(a.body, `"tool_calls":[]`) {
		t.Errorf("a call that nobody asked for: %s", a.body)
	}
}

// TestResponsesStore: an answer can be read again, be built upon, and a
// background one can be cancelled.
func TestResponsesStore(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		ask := func(raw string) answer {
			c := dial()
			go func() { _, _ = io.WriteString(c, raw) }()
			defer c.Close()
			return readAnswer(t, bufio.NewReader(c))
		}
		first := ask(post("/v1/responses", `{"input":"one","max_output_tokens":3}`, "X-Request-Id: r1\r\n"))
		if got := ask(get("/v1/responses/resp_r1")); got.body != first.body || got.status != 200 {
			t.Errorf("stored: %s", got.body)
		}
		said := ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "one"}), 3)
		second := ask(post("/v1/responses", `{"input":"two","max_output_tokens":3,"previous_response_id":"resp_r1","store":false}`, "X-Request-Id: r2\r\n"))
		prompt := chatPrompt(t, ChatMessage{Role: "user", Content: "one"}, ChatMessage{Role: "assistant", Content: said}, ChatMessage{Role: "user", Content: "two"})
		if !strings.Contains(second.body, string(appendString([]byte(`"text":`), ExpectedText(7, prompt, 3)))) || !strings.Contains(second.body, `"previous_response_id":"resp_r1"`) {
			t.Errorf("second turn: %s", second.body)
		}
		if a := ask(get("/v1/responses/resp_r2")); a.status != 404 {
			t.Errorf("store false: %d", a.status)
		}
		for _, id := range []string{"r3", "r4"} {
			a := ask(post("/v1/responses", `{"input":"x","max_output_tokens":400,"background":true}`, "X-Request-Id: "+id+"\r\n"))
			if a.status != 200 || !strings.Contains(a.body, `"status":"in_progress"`) {
				t.Errorf("background: %s", a.body)
			}
		}
		time.Sleep(time.Second)
		if a := ask(post("/v1/responses/resp_r3/cancel", "")); a.status != 200 || !strings.Contains(a.body, `"status":"cancelled"`) {
			t.Errorf("cancel: %d %s", a.status, a.body)
		}
		synctest.Wait()
		if st := s.State(); st.InFlight != 1 || st.Running != 1 {
			t.Errorf("after the cancel: %+v", st)
		}
		time.Sleep(time.Minute)
		if a := ask(get("/v1/responses/resp_r3")); !strings.Contains(a.body, `"status":"cancelled"`) {
			t.Errorf("cancelled: %s", a.body)
		}
		if a := ask(get("/v1/responses/resp_r4")); !strings.Contains(a.body, `"status":"incomplete"`) || !strings.Contains(a.body, `"output_tokens":400`) {
			t.Errorf("finished: %s", a.body)
		}
		if a := ask(post("/v1/responses/resp_r4/cancel", "")); a.status != 400 {
			t.Errorf("cancel of a finished one: %d", a.status)
		}
	})
}

func TestEmbeddingsAreDeterministicUnitVectors(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	var v struct {
		Data []struct{ Embedding []float64 }
	}
	a := call(t, s, post("/v1/embeddings", `{"model":"m","input":["one","two","one"]}`))
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || len(v.Data) != 3 {
		t.Fatalf("%v %s", err, a.body)
	}
	same, norm := true, 0.0
	for i, x := range v.Data[0].Embedding {
		same = same && x == v.Data[2].Embedding[i]
		norm += x * x
	}
	if !same || v.Data[0].Embedding[0] == v.Data[1].Embedding[0] || norm < 0.999 || norm > 1.001 {
		t.Errorf("norm %v, same %v", norm, same)
	}
	if b := call(t, s, post("/v1/embeddings", `{"input":"one","encoding_format":"base64"}`)); b.status != 200 || !strings.Contains(b.body, `"embedding":"`) {
		t.Errorf("base64: %s", b.body)
	}
}

func TestAudioNamesTheFile(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	file := bytes.Repeat([]byte{0, 1, 2, '\r', '\n', '-', '-', 255}, 9000)
	sum := sha256.Sum256(file)
	want := fmt.Sprintf("size %d sha256 %x", len(file), sum)
	for _, streamed := range []string{"false", "true"} {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		_ = m.WriteField("model", "m")
		_ = m.WriteField("stream", streamed)
		p, _ := m.CreateFormFile("file", "a.wav")
		_, _ = p.Write(file)
		_ = m.Close()
		raw := fmt.Sprintf("POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", m.FormDataContentType(), b.Len(), b.String())
		a := call(t, s, raw)
		got := said(a.body)
		if streamed == "false" {
			var v struct{ Text string }
			_ = json.Unmarshal([]byte(a.body), &v)
			got = v.Text
		} else if !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("stream ends with %q", a.body)
		}
		if got != want {
			t.Errorf("stream %s: %d %q", streamed, a.status, got)
		}
	}
}

func TestMetricsUnderVLLMsNames(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Profile = ProfileMTP
	s := start(t, o)
	call(t, s, post("/v1/completions", `{"prompt":"a b c","max_tokens":50}`))
	a := call(t, s, get("/metrics"))
	if ct := a.header.Get("Content-Type"); ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	label := `{engine="0",model_name="m"`
	for _, line := range []string{
		"vllm:num_requests_running" + label + "} 0\n", "vllm:num_requests_waiting" + label + "} 0\n", "vllm:kv_cache_usage_perc" + label + "} 0\n",
		"vllm:generation_tokens_total" + label + "} 50\n", "vllm:prefix_cache_queries_total" + label, "vllm:prefix_cache_hits_total" + label + "} 0\n",
		"vllm:request_success_total" + label + `,finished_reason="length"} 1` + "\n", "vllm:time_to_first_token_seconds_count" + label + "} 1\n",
		"vllm:time_to_first_token_seconds_bucket" + label + `,le="+Inf"} 1` + "\n", "vllm:e2e_request_latency_seconds_sum" + label, "vllm:request_generation_tokens_sum" + label + "} 50\n",
		"vllm:spec_decode_num_drafts_total" + label, "vllm:spec_decode_num_accepted_tokens_per_pos_total" + label + `,position="2"}`,
		"process_start_time_seconds ", "# TYPE vllm:num_requests_running gauge\n", "vllm:cache_config_info" + label + `,block_size="16"`,
	} {
		if !strings.Contains(a.body, line) {
			t.Errorf("no %q in\n%s", line, a.body)
		}
	}
	for line := range strings.Lines(a.body) {
		if !strings.HasPrefix(line, "#") && len(strings.Fields(line)) != 2 {
			t.Errorf("line %q", line)
		}
	}
}

// TestTwoChoicesCostOnePrefill: choices of one prompt have equal text and
// share what the first one has cached.
// TestHybridUsage: for a hybrid model vLLM does not say what it wrote to the
// cache, and the prompt's count must not suffer from that.
func TestHybridUsage(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Hybrid = "mmma"
	s := start(t, o)
	prompt := strconv.Itoa(len(chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"})))
	for _, c := range []struct{ path, body, usage string }{
		{"/v1/messages", `{"max_tokens":2,` + hello + `}`, `"usage":{"input_tokens":` + prompt + `,"output_tokens":2,"cache_creation_input_tokens":null,"cache_read_input_tokens":0}`},
		{"/v1/responses", `{"max_output_tokens":2,"input":"Hello"}`, `"usage":{"input_tokens":` + prompt + `,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":null,`},
	} {
		if a := call(t, s, post(c.path, c.body)); a.status != 200 || !strings.Contains(a.body, c.usage) {
			t.Errorf("%s: %d %s, wanted %s", c.path, a.status, a.body, c.usage)
		}
	}
}

func TestTwoChoices(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	a := call(t, s, post("/v1/completions", `{"prompt":["a","b"],"n":3,"max_tokens":4}`))
	var v struct {
		Choices []struct {
			Index int
			Text  string
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || len(v.Choices) != 6 || v.Usage.Completion != 24 {
		t.Fatalf("%v %s", err, a.body)
	}
	for i, c := range v.Choices {
		want := ExpectedText(7, Tokenizer().Encode([]string{"a", "b"}[i/3]), 4)
		if c.Index != i || c.Text != want {
			t.Errorf("choice %d: %+v, want %q", i, c, want)
		}
	}
}
