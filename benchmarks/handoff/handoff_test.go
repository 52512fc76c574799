package handoff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ramjet/benchmarks/lab"
)

// A longer size is the shorter one and more, and no two turns are alike: only so is every turn one that comes back.
func TestConversationGrows(t *testing.T) {
	c := newConversation(1)
	c.grow(5_000)
	one, two := c.turn(), c.turn()
	if bytes.Equal(one, two) {
		t.Error("two turns are equal")
	}
	c.grow(50_000)
	long := c.turn()
	at := bytes.Index(one, []byte(`,{"role":"user","content":"Question`))
	if !bytes.HasPrefix(long, one[:at]) || len(long) < 50_000 {
		t.Errorf("the long conversation of %d bytes does not begin with the short one", len(long))
	}
	for _, b := range [][]byte{one, long} {
		var v struct {
			Messages []struct{ Role, Content string }
			Max      int `json:"max_tokens"`
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		for i, m := range v.Messages {
			if want := map[bool]string{true: "user", false: "assistant"}[i%2 == 1]; i > 0 && m.Role != want || m.Content == "" {
				t.Errorf("message %d is of %q: %.40q", i, m.Role, m.Content)
			}
		}
	}
}

// engine answers chats with a stream and /tokenize with ids, and notes what it was asked.
type engine struct {
	asked  []string
	bodies [][]byte
	ids    string
	stream string
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.asked, e.bodies = append(e.asked, r.URL.Path), append(e.bodies, body)
	if r.URL.Path == "/tokenize" {
		_, _ = io.WriteString(w, e.ids)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, e.stream)
}

const goodStream = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}

data: {"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":4100,"prompt_tokens_details":{"cached_tokens":4096}}}

data: [DONE]

`

func TestSend(t *testing.T) {
	for _, c := range []struct{ name, stream, err string }{
		{"good", goodStream, ""},
		{"no usage", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "no usage"},
		{"an error in the stream", "data: {\"error\":{\"message\":\"gone\"}}\n\n", "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(&engine{stream: c.stream})
			defer s.Close()
			got, err := send(s.Client(), s.URL, []byte(`{}`))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one of %q", err, c.err)
				}
				return
			}
			if err != nil || got.prompt != 4100 || got.cached != 4096 || got.first <= 0 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	refused := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such model", http.StatusNotFound) }))
	defer refused.Close()
	if _, err := send(refused.Client(), refused.URL, nil); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("a refusal gave %v", err)
	}
}

// The asking router asks first, passes the same bytes on, and refuses where the question fails.
func TestAskingRouter(t *testing.T) {
	for _, c := range []struct {
		ids   string
		asked []string
		err   bool
	}{
		{`{"count":3,"tokens":[1,2,3]}`, []string{"/tokenize", chatPath}, false},
		{`{"error":"x"}`, []string{"/tokenize"}, true},
	} {
		e := &engine{ids: c.ids, stream: goodStream}
		s := httptest.NewServer(e)
		ports, err := lab.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", ports[0])
		go func() { _ = Ask(address, s.URL) }() // ends with the test binary
		for end := time.Now().Add(time.Minute); !lab.Answers("http://"+address+"/health") && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
		body := newConversation(1).turn()
		got, err := send(http.DefaultClient, "http://"+address, body)
		if (err != nil) != c.err || !c.err && got.prompt != 4100 {
			t.Errorf("%+v, %v", got, err)
		}
		if fmt.Sprint(e.asked) != fmt.Sprint(c.asked) {
			t.Errorf("the engine was asked %v, want %v", e.asked, c.asked)
		}
		for _, b := range e.bodies {
			if !bytes.Equal(b, body) {
				t.Errorf("the body changed on the way: %.80q", b)
			}
		}
		s.Close()
	}
}

func TestReport(t *testing.T) {
	var visits []Visit
	add := func(way string, tokens, atOnce, round int, first, api float64) {
		visits = append(visits, Visit{Way: way, Wanted: tokens, AtOnce: atOnce, Round: round, Prompt: float64(tokens) + 7, First: []float64{first}, Seconds: 2, Requests: 6, API: api})
	}
	for round := 1; round <= 3; round++ {
		for _, tokens := range []int{4_000, 93_000} {
			add(Direct, tokens, 1, round, 0.100, 0.200)
			add(Asking, tokens, 1, round, 0.200, 0.400)
			add(Ramjet, tokens, 1, round, 0.040, 0.030*float64(round+1)) // CPU 0.3 to 0.6 of direct
		}
	}
	doc, ok := report(Meta{Command: "the command", VLLM: "0.32.0"}, visits)
	if !ok {
		t.Error("nothing is above its bound in every round")
	}
	for _, want := range []string{
		"`the command`", "vLLM 0.32.0",
		"| 93007 | 1 | 100.0 ms | 200.0 ms | 40.0 ms | 0.40 (0.40 .. 0.40) | 0.20 (0.20 .. 0.20) | <= 0.5 x direct | met |",
		"| 4007 | 1 | 100.0 ms | 200.0 ms | 40.0 ms | 0.40 (0.40 .. 0.40) | 0.20 (0.20 .. 0.20) | - | shown |",
		"| 93007 | 1 | 200.0 ms | 400.0 ms | 90.0 ms | 0.45 (0.30 .. 0.60) | 0.22 (0.15 .. 0.30) | <= 0.35 x direct | not separable |",
		"| 93007 | 1 | 3.00 | 3.00 | 3.00 | 1.00 (1.00 .. 1.00) |",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the report lacks %q:\n%s", want, doc)
		}
	}
	for i := range visits {
		if visits[i].Way == Ramjet {
			visits[i].API = 0.150
		}
	}
	if _, ok := report(Meta{}, visits); ok {
		t.Error("0.75 x of the CPU keeps a bound of 0.35 x")
	}
}
