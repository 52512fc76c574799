package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const hello = `"messages":[{"role":"user","content":"Hello"}]`

// arm posts a fault through the control endpoint.
func arm(t *testing.T, s *Server, fault string) {
	t.Helper()
	if a := call(t, s, post("/sim/fault", fault)); a.status != 200 {
		t.Fatalf("fault %s: %d %s", fault, a.status, a.body)
	}
}

// stream sends a streaming chat request of eight tokens and returns what
// comes, raw, and how it ends.
func stream(t *testing.T, s *Server, path, body string) (raw string, err error) {
	t.Helper()
	c := dial(t, s.Addr())
	defer c.Close()
	if _, err := io.WriteString(c, post(path, body, "Connection: close\r\n")); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// TestFaultsOfStreams runs each kind that strikes a stream against real
// sockets: what the client sees, and that the next request is served.
func TestFaultsOfStreams(t *testing.T) {
	t.Parallel()
	chat := `{"stream":true,"max_tokens":8,` + hello + `}`
	three := ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}), 3)
	for _, tc := range []struct {
		name, fault, path, body string
		check                   func(raw string, err error) string // "" = good
	}{
		{"reset", `{"kind":"reset","after_tokens":3}`, "/v1/chat/completions", chat, func(_ string, err error) string {
			return unless(errors.Is(err, syscall.ECONNRESET), "no reset")
		}},
		{"truncate", `{"kind":"truncate","after_tokens":3}`, "/v1/chat/completions", chat, func(raw string, err error) string {
			return unless(err == nil && said(raw) == three && strings.HasSuffix(raw, `"created":1,"mod`), "not cut in a chunk")
		}},
		{"bad-chunk", `{"kind":"bad-chunk","after_tokens":3}`, "/v1/chat/completions", chat, func(raw string, err error) string {
			return unless(err == nil && said(raw) == three && strings.Contains(raw, "\r\nzz\r\n"), "no bad chunk")
		}},
		{"error-event", `{"kind":"error-event","after_tokens":3}`, "/v1/chat/completions", chat, func(raw string, _ error) string {
			return unless(said(raw) == three && strings.Contains(raw, `data: {"error":{"message":`) &&
				strings.Contains(raw, `"type":"InternalServerError","param":null,"code":500}}`) && strings.HasSuffix(raw, "data: [DONE]\n\n\r\n0\r\n\r\n"), "no clean error event")
		}},
		{"error-event responses", `{"kind":"error-event","after_tokens":3}`, "/v1/responses", `{"stream":true,"max_output_tokens":8,"input":"Hello"}`, func(raw string, _ error) string {
			return unless(said(raw) == three && !strings.HasSuffix(raw, "0\r\n\r\n") && !strings.Contains(raw, "rror"), "not cut")
		}},
		{"error-event messages", `{"kind":"error-event","after_tokens":3}`, "/v1/messages", `{"stream":true,"max_tokens":8,` + hello + `}`, func(raw string, _ error) string {
			return unless(said(raw) == three && strings.Contains(raw, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"InternalServerError\"") && strings.HasSuffix(raw, "\r\n0\r\n\r\n"), "no error event")
		}},
		{"abort", `{"kind":"abort","after_tokens":3}`, "/v1/chat/completions", chat, func(raw string, _ error) string {
			return unless(said(raw) == three && strings.Contains(raw, `"delta":{"content":""},"logprobs":null,"finish_reason":"abort"`) &&
				strings.HasSuffix(raw, "data: [DONE]\n\n\r\n0\r\n\r\n"), "no clean abort")
		}},
		{"abort before a token", `{"kind":"abort"}`, "/v1/chat/completions", chat, func(raw string, _ error) string {
			return unless(said(raw) == "" && strings.Contains(raw, `"role":"assistant"`) && strings.Contains(raw, `"finish_reason":"abort"`), "no abort at once")
		}},
		{"abort responses", `{"kind":"abort"}`, "/v1/responses", `{"stream":true,"max_output_tokens":8,"input":"x"}`, func(raw string, _ error) string {
			return unless(strings.Contains(raw, "event: response.incomplete\n") && !strings.Contains(raw, "output_item") && strings.HasSuffix(raw, "\r\n0\r\n\r\n"), "no incomplete answer")
		}},
		{"abort messages", `{"kind":"abort"}`, "/v1/messages", `{"stream":true,"max_tokens":8,` + hello + `}`, func(raw string, _ error) string {
			return unless(strings.Contains(raw, `"delta":{"stop_reason":null,`) && strings.Contains(raw, "event: message_stop\n"), "no abort")
		}},
		{"abort before the head", `{"kind":"abort","after_tokens":-1}`, "/v1/chat/completions", chat, func(raw string, _ error) string {
			return unless(said(raw) == "" && strings.Contains(raw, `"finish_reason":"abort"`), "no abort at once")
		}},
		{"abort before the head, completions", `{"kind":"abort","after_tokens":-1}`, "/v1/completions", `{"stream":true,"max_tokens":8,"prompt":"x"}`, func(raw string, _ error) string {
			return unless(said(raw) == "" && strings.Contains(raw, `"finish_reason":"abort"`), "no abort at once")
		}},
		{"abort before the head, responses", `{"kind":"abort","after_tokens":-1}`, "/v1/responses", `{"stream":true,"max_output_tokens":8,"input":"x"}`, func(raw string, _ error) string {
			return unless(strings.Contains(raw, "event: response.incomplete\n"), "no incomplete answer")
		}},
		{"abort before the head, messages", `{"kind":"abort","after_tokens":-1}`, "/v1/messages", `{"stream":true,"max_tokens":8,` + hello + `}`, func(raw string, _ error) string {
			return unless(said(raw) == "" && strings.Contains(raw, `"delta":{"stop_reason":null,`), "no abort at once")
		}},
		{"before the head", `{"kind":"reset","after_tokens":-1}`, "/v1/chat/completions", chat, func(raw string, err error) string {
			return unless(raw == "" && errors.Is(err, syscall.ECONNRESET), "something came")
		}},
		{"status", `{"kind":"status","status":503}`, "/v1/chat/completions", chat, func(raw string, _ error) string {
			return unless(strings.HasPrefix(raw, "HTTP/1.1 503 Service Unavailable\r\n") && strings.Contains(raw, `"type":"Service Unavailable"`), "no 503")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, fast())
			arm(t, s, tc.fault)
			raw, err := stream(t, s, tc.path, tc.body)
			if bad := tc.check(raw, err); bad != "" {
				t.Errorf("%s (%v):\n%s", bad, err, raw)
			}
			if raw, err := stream(t, s, tc.path, tc.body); err != nil || !strings.HasSuffix(raw, "0\r\n\r\n") {
				t.Errorf("the next request: %v\n%s", err, raw)
			}
			eventually(t, "nothing in flight", func() bool { return s.State().InFlight == 0 })
			if n := s.State().Aborted; n != 0 {
				t.Errorf("%d requests count as left by a client that stayed", n)
			}
		})
	}
}

// said joins the generated text in the events of a raw stream of any dialect.
func said(raw string) (text string) {
	for line := range strings.Lines(raw) {
		var e struct {
			Delta   json.RawMessage
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || json.Unmarshal([]byte(data), &e) != nil {
			continue
		}
		for _, c := range e.Choices {
			text += c.Text + c.Delta.Content
		}
		var one string // Responses
		var of struct{ Text string }
		if json.Unmarshal(e.Delta, &one) != nil {
			_ = json.Unmarshal(e.Delta, &of) // Messages
		}
		text += one + of.Text
	}
	return text
}

func unless(ok bool, bad string) string {
	if ok {
		return ""
	}
	return bad
}

// TestFaultsOfPlainAnswers: the same for answers that are not streamed.
func TestFaultsOfPlainAnswers(t *testing.T) {
	t.Parallel()
	body := `{"max_tokens":8,` + hello + `}`
	for _, tc := range []struct{ fault, part string }{
		{`{"kind":"error-event"}`, "HTTP/1.1 500 Internal Server Error\r\n"},
		{`{"kind":"abort"}`, `"content":"","refusal":null`},
		{`{"kind":"abort","after_tokens":-1}`, `"content":"","refusal":null`},
		{`{"kind":"abort","after_tokens":8}`, `"finish_reason":"length"`}, // the answer is complete by then
		{`{"kind":"truncate"}`, "content-length: 1000\r\n"},
		{`{"kind":"bad-chunk"}`, "\r\n\r\nzz\r\n"},
		{`{"kind":"status","status":429}`, "HTTP/1.1 429 Too Many Requests\r\n"},
	} {
		s := start(t, fast())
		arm(t, s, tc.fault)
		if raw, err := stream(t, s, "/v1/chat/completions", body); err != nil || !strings.Contains(raw, tc.part) {
			t.Errorf("%s: %v\n%s", tc.fault, err, raw)
		}
	}
}

func TestFaultCounts(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	arm(t, s, `{"kind":"status","status":503,"count":2}`)
	arm(t, s, `{"kind":"status","status":429,"count":0}`)
	want := []int{503, 503, 429, 429, 429}
	for i, status := range want {
		if a := call(t, s, post("/v1/completions", `{"prompt":"x","max_tokens":1}`)); a.status != status {
			t.Errorf("request %d: %d, want %d", i, a.status, status)
		}
	}
	if f := s.State().Faults; len(f) != 1 || f[0].Status != 429 {
		t.Errorf("armed: %+v", f)
	}
	call(t, s, post("/sim/clear", ""))
	if a := call(t, s, post("/v1/completions", `{"prompt":"x","max_tokens":1}`)); a.status != 200 {
		t.Errorf("after clear: %d", a.status)
	}
}

func TestUnknownFaultListsTheKinds(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	for _, body := range []string{`{"kind":"explode"}`, `{}`, `{"kind":"reset","after_tokens":-2}`, `{"kind":"status","status":99}`, `nonsense`} {
		a := call(t, s, post("/sim/fault", body))
		if a.status != 400 {
			t.Errorf("%s: %d", body, a.status)
		}
		for _, k := range FaultKinds {
			if strings.Contains(body, "explode") && !strings.Contains(a.body, k) {
				t.Errorf("%s does not name %s", a.body, k)
			}
		}
	}
	for _, k := range []string{"event-gap", "event-stop", "event-lie", "event-last-copy"} {
		arm(t, s, `{"kind":"`+k+`"}`)
	}
	if f := s.State().Faults; len(f) != 4 {
		t.Errorf("event faults: %+v", f)
	}
	if a := call(t, s, post("/v1/completions", `{"prompt":"x","max_tokens":1}`)); a.status != 200 {
		t.Errorf("an event fault hit a request: %d", a.status)
	}
}

// TestStallHoldsOneStream: the stream stops, the connection stays, other
// requests go on, and clear or the time limit sets it free.
func TestStallHoldsOneStream(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault Fault
		clear bool
		after time.Duration
	}{
		{"until its time is over", Fault{Kind: "stall", AfterTokens: 2, Count: 1, Seconds: 40}, false, 40 * time.Second},
		{"until cleared", Fault{Kind: "stall", AfterTokens: 2, Count: 1}, true, time.Minute},
		{"slow head", Fault{Kind: "slow-head", Count: 1, Seconds: 3}, false, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
				if err := s.Fault(tc.fault); err != nil {
					t.Fatal(err)
				}
				c, begin := dial(), time.Now()
				got := make(chan answer, 1)
				go func() {
					_, _ = io.WriteString(c, post("/v1/chat/completions", `{"stream":true,"max_tokens":5,`+hello+`}`))
					got <- readAnswer(t, bufio.NewReader(c))
				}()
				time.Sleep(2 * time.Second)
				other := dial()
				go func() {
					_, _ = io.WriteString(other, post("/v1/completions", `{"prompt":"x","max_tokens":1}`))
				}()
				if a := readAnswer(t, bufio.NewReader(other)); a.status != 200 || len(got) != 0 {
					t.Errorf("other request: %d, held answers: %d", a.status, 1-len(got))
				}
				if tc.clear {
					time.Sleep(tc.after - time.Since(begin))
					s.Clear()
				}
				a := <-got
				if d := time.Since(begin); d < tc.after || d > tc.after+time.Second {
					t.Errorf("done after %v", d)
				}
				if text, _ := deltas(t, a.body); text != ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}), 5) {
					t.Errorf("text %q", text)
				}
				_, _ = c.Close(), other.Close()
			})
		})
	}
}

func TestStalledClientMayLeave(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		if err := s.Fault(Fault{Kind: "stall", Count: 1}); err != nil {
			t.Fatal(err)
		}
		c := dial()
		go func() {
			_, _ = io.WriteString(c, post("/v1/chat/completions", `{"stream":true,"max_tokens":5,`+hello+`}`))
			_, _ = io.Copy(io.Discard, c)
		}()
		time.Sleep(time.Second)
		_ = c.Close()
		synctest.Wait()
		if st := s.State(); st.InFlight != 0 || st.Aborted != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestStaleHangTimer: the end of a hang that was cleared leaves a later one alone.
func TestStaleHangTimer(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, _ func() net.Conn) {
		hang := func(seconds float64) {
			if err := s.Fault(Fault{Kind: "hung", Seconds: seconds}); err != nil {
				t.Fatal(err)
			}
		}
		hang(2)
		s.Clear()
		hang(5)
		for _, w := range []struct {
			after time.Duration
			hung  bool
		}{{3 * time.Second, true}, {3 * time.Second, false}} {
			time.Sleep(w.after)
			synctest.Wait()
			if got := s.State().Hung; got != w.hung {
				t.Errorf("hung %v after another %v", got, w.after)
			}
		}
	})
}

// refused reports whether nobody listens at the server's address.
func refused(s *Server) bool {
	c, err := net.Dial("tcp", s.Addr())
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func TestDieClosesEverythingUntilRestart(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Control = "127.0.0.1:0"
	s := startKept(t, o)
	idle := dial(t, s.Addr())
	if a := exchange(t, idle, get("/health")); a.status != 200 {
		t.Fatal(a.status)
	}
	arm(t, s, `{"kind":"die","after_tokens":2}`)
	raw, _ := stream(t, s, "/v1/chat/completions", `{"stream":true,"max_tokens":8,`+hello+`}`)
	if said(raw) != ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}), 2) || strings.HasSuffix(raw, "0\r\n\r\n") {
		t.Errorf("the stream that killed it:\n%s", raw)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection lives")
	}
	if !refused(s) {
		t.Error("the port is open")
	}
	c := dial(t, s.ControlAddr())
	if a := exchange(t, c, get("/sim/state")); a.status != 200 || !strings.Contains(a.body, `"in_flight":0`) {
		t.Errorf("control: %d %s", a.status, a.body)
	}
	if a := exchange(t, c, get("/health")); a.status != 404 {
		t.Errorf("the control port serves the API: %d", a.status)
	}
	if a := exchange(t, c, post("/sim/restart", `{"seconds":0.01}`)); a.status != 200 {
		t.Errorf("restart: %d", a.status)
	}
	eventually(t, "the port opens again", func() bool { return !refused(s) })
	if a := call(t, s, post("/v1/completions", `{"prompt":"x","max_tokens":1}`)); a.status != 200 {
		t.Errorf("after restart: %d", a.status)
	}
}

func TestDieEndsServeIfAsked(t *testing.T) {
	t.Parallel()
	o := fast()
	o.ExitOnDie = true
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context()) }()
	arm(t, s, `{"kind":"die","now":true}`)
	if err := <-done; !errors.Is(err, ErrDied) {
		t.Errorf("Serve: %v", err)
	}
}

func TestRefuseClosesThePortForAWhile(t *testing.T) {
	t.Parallel()
	s := startKept(t, fast())
	c := dial(t, s.Addr())
	r := bufio.NewReader(c)
	if _, err := io.WriteString(c, post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":6000}`, "Connection: close\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	arm(t, s, `{"kind":"refuse","seconds":3}`)
	eventually(t, "refusal", func() bool { return refused(s) })
	body, err := io.ReadAll(c)
	if err != nil && !isTimeout(err) || !strings.Contains(string(body), "data: ") {
		t.Errorf("the stream under way: %v, %d bytes", err, len(body))
	}
	eventually(t, "the port opens again", func() bool { return !refused(s) })
}

func TestRestartBeginsAnew(t *testing.T) {
	t.Parallel()
	s := startKept(t, fast())
	prompt := `{"prompt":"` + strings.Repeat("word ", 200) + `","max_tokens":2}`
	cached := func() int {
		var v struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		a := call(t, s, post("/v1/completions", prompt))
		if err := json.Unmarshal([]byte(a.body), &v); err != nil {
			t.Fatalf("%v in %q", err, a.body)
		}
		return v.Usage.Details.Cached
	}
	started := s.started.Load()
	if a, b := cached(), cached(); a != 0 || b == 0 {
		t.Fatalf("cached %d, then %d", a, b)
	}
	call(t, s, post("/sim/restart", `{"seconds":3}`))
	eventually(t, "refusal", func() bool { return refused(s) })
	eventually(t, "the port opens again", func() bool { return !refused(s) })
	if s.started.Load() == started {
		t.Error("the same start time")
	}
	if n := cached(); n != 0 {
		t.Errorf("cached %d after a restart", n)
	}
	if n := cached(); n == 0 {
		t.Error("nothing cached the second time")
	}
	if a := call(t, s, post("/sim/evict", `{"blocks":100000}`)); !strings.Contains(a.body, `"evicted":`) || a.body == `{"evicted":0}` {
		t.Errorf("evict: %s", a.body)
	}
	if n := cached(); n != 0 {
		t.Errorf("cached %d after evicting all", n)
	}
}

func TestStartDelayRefuses(t *testing.T) {
	t.Parallel()
	o := fast()
	o.StartDelay = 3 * time.Second
	s := startKept(t, o)
	if !refused(s) {
		t.Error("the port is open at once")
	}
	eventually(t, "the port opens", func() bool { return !refused(s) })
}
