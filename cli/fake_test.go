package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"ramjet/config"
)

// fakeRamjet plays both ports of a running Ramjet.
type fakeRamjet struct {
	*httptest.Server

	mu     sync.Mutex // guards what follows
	asked  []fakeAsked
	chats  int
	answer func(w http.ResponseWriter, r *http.Request) bool // first; false: the usual follows
}

type fakeAsked struct{ method, target, auth, body string }

func newFakeRamjet(t *testing.T) *fakeRamjet {
	t.Helper()
	f := &fakeRamjet{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeRamjet) addr() string { return strings.TrimPrefix(f.URL, "http://") }

// record is an explanation as CONTRACT section 4 has it.
const record = `{"request_id":null,"time":"2026-11-30T10:00:00.000Z","path":"/v1/chat/completions","model":"m","dialect":"openai","stream":true,"session":"84191a194cdc2382",
"prompt_tokens":5120,"keys":"exact","keys_note":null,"output_cap":256,"expected_output_tokens":180,"handoff":true,"policy":"latency","cohort":{"percent":100,"in":true},
"candidates":[{"engine":"a","profile":"mtp","state":"ready","trust":"exact","usable":true,"note":null,"match_tokens":4096,"match_exact_tokens":4096,"match_approximate_tokens":4000,"match_in_flight_tokens":0,"uncached_tokens":1024,"queue_tokens":0,"prefill_requests":0,"decode_requests":3,"prefill_tokens_per_s":10000,"seconds_per_token":0.0089,"wait_s":0.0,"prefill_s":0.102,"decode_s":1.602,"delay_s":0.0,"cost_s":0.708},
{"engine":"b","profile":"standard","state":"ready","trust":"exact","usable":true,"note":null,"match_tokens":1024,"match_exact_tokens":1024,"match_approximate_tokens":0,"match_in_flight_tokens":2048,"uncached_tokens":3072,"queue_tokens":900,"prefill_requests":1,"decode_requests":0,"prefill_tokens_per_s":10000,"seconds_per_token":0.0095,"wait_s":0.09,"prefill_s":0.307,"decode_s":1.71,"delay_s":0.0,"cost_s":1.018},
{"engine":"c","profile":"none","state":"down","trust":"blind","usable":false,"note":"its port refuses connections, and what else there is to say of it takes more than one line of a terminal","match_tokens":0,"match_exact_tokens":0,"match_approximate_tokens":0,"match_in_flight_tokens":0,"uncached_tokens":null,"queue_tokens":null,"prefill_requests":0,"decode_requests":0,"prefill_tokens_per_s":10000,"seconds_per_token":null,"wait_s":null,"prefill_s":null,"decode_s":null,"delay_s":null,"cost_s":null}],
"engine":"a","reason":"exact","runner_up":"b","margin_s":0.31,"forgone_tokens":0,"shadow":{"engine":"b","reason":"load","agreement":"would-move"},"attempts":[],"result":null}`

func (f *fakeRamjet) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked = append(f.asked, fakeAsked{r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), string(body)})
	answer := f.answer
	f.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	switch {
	case r.URL.Path == "/v1/chat/completions":
		f.chat(w, body)
	case r.URL.Path == "/api/v1/topology":
		fmt.Fprint(w, `{"engines":[{"trust":"exact"},{"trust":"exact"}]}`)
	case r.URL.Path == "/metrics":
		fmt.Fprint(w, "ramjet_handoff_total{engine=\"a\",outcome=\"probed\"} 1\nramjet_handoff_total{engine=\"b\",outcome=\"probed\"} 1\n")
	case strings.HasPrefix(r.URL.Path, "/api/v1/explain"):
		if strings.HasSuffix(r.URL.Path, "-own") {
			fmt.Fprint(w, strings.Replace(record, `"handoff":true`, `"handoff":false`, 1))
			return
		}
		fmt.Fprint(w, record)
	}
}

// chat streams an answer of two words, by a and b in turn.
func (f *fakeRamjet) chat(w http.ResponseWriter, body []byte) {
	f.mu.Lock()
	f.chats++
	n := f.chats
	f.mu.Unlock()
	var q map[string]any
	_ = json.Unmarshal(body, &q)
	id := fmt.Sprint("r", n)
	if _, own := q["kv_transfer_params"]; own {
		id += "-own"
	}
	w.Header().Set("X-Ramjet-Engine", string(rune('a'+n%2)))
	w.Header().Set("X-Ramjet-Match", "3000")
	w.Header().Set("X-Request-Id", id)
	for _, data := range []string{`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"two "}}]}`, `{"choices":[{"delta":{"content":"words"}}]}`,
		`{"choices":[],"usage":{"prompt_tokens":4000,"completion_tokens":2}}`, "[DONE]"} {
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

// demo runs Demo in front of the fake and returns what it printed and the
// configuration that it made.
func (f *fakeRamjet) demo(t *testing.T, o DemoOptions) (printed string, cfg *config.Config, err error) {
	t.Helper()
	var out strings.Builder
	stopped := 0
	o.Out = &out
	o.Serve = func(c *config.Config) (*Running, error) {
		cfg = c
		return &Running{Public: f.addr(), Admin: f.addr(), Stop: func() { stopped++ }}, nil
	}
	err = Demo(t.Context(), o)
	if stopped != 1 {
		t.Errorf("the proxy was stopped %d times", stopped)
	}
	return out.String(), cfg, err
}

// inProcess answers requests without a network, so that time can be virtual.
type inProcess func(w *memory, r *http.Request)

// memory is an answer in memory.
type memory struct {
	status int
	header http.Header
	body   strings.Builder
}

func (m *memory) Header() http.Header         { return m.header }
func (m *memory) WriteHeader(status int)      { m.status = status }
func (m *memory) Write(p []byte) (int, error) { return m.body.Write(p) }

// RoundTrip implements http.RoundTripper.
func (f inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &memory{status: http.StatusOK, header: http.Header{}}
	f(w, r)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(strings.NewReader(w.body.String()))}, nil
}
