package rig

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Helpers of the tests about engine states: what an operator sees of them, and
// what makes an engine go through them.

// Swift are health settings that let every transition happen within a second or
// two. The checks' own limit stays long enough for a loaded machine.
var Swift = []string{"--health.interval=60ms", "--health.timeout=400ms", "--health.successes=3", "--health.stable=500ms",
	"--health.slow-start=500ms", "--health.failures=3", "--health.stall=60s", "--eject.after=3", "--eject.base=400ms", "--eject.max=900ms"}

// Settings appends flags to Swift; a later flag wins over an earlier one.
func Settings(more ...string) []string { return append(append([]string(nil), Swift...), more...) }

// Transition is one change of an engine's state.
type Transition struct {
	Time   time.Time `json:"time"`
	Engine string    `json:"engine"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Reason string    `json:"reason"`
}

// EngineStatus is an engine's state and load in the topology.
type EngineStatus struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`
	Reason string    `json:"state_reason"`
	Since  time.Time `json:"state_since"`
	Leases struct {
		Prefill int `json:"prefill"`
		Decode  int `json:"decode"`
	} `json:"leases"`
	LeaseTokens float64 `json:"lease_tokens"`
	IndexBlocks *int    `json:"index_blocks"`
}

// Engines reads the engines and the changes of their states.
func (r *Ramjet) Engines(t testing.TB) (map[string]EngineStatus, []Transition) {
	t.Helper()
	var v struct {
		Engines     []EngineStatus `json:"engines"`
		Transitions []Transition   `json:"transitions"`
	}
	status, body := r.AdminGet("/api/v1/topology")
	if err := json.Unmarshal([]byte(body), &v); status != 200 || err != nil {
		t.Fatalf("/api/v1/topology: %d %v %.200s", status, err, body)
	}
	byName := map[string]EngineStatus{}
	for _, e := range v.Engines {
		byName[e.Name] = e
	}
	return byName, v.Transitions
}

// Status is what the admin API tells of an engine.
func (r *Ramjet) Status(t testing.TB, name string) EngineStatus {
	t.Helper()
	byName, _ := r.Engines(t)
	return byName[name]
}

// Changes are the transitions of one engine, oldest first.
func (r *Ramjet) Changes(t testing.TB, name string) (list []Transition) {
	t.Helper()
	_, all := r.Engines(t)
	for _, c := range all {
		if c.Engine == name {
			list = append(list, c)
		}
	}
	return list
}

// Went waits until an engine's changes are these states in this order, and
// checks that every eye sees the last of them: topology, metrics and /health.
func (r *Ramjet) Went(t testing.TB, limit time.Duration, name string, states ...string) []Transition {
	t.Helper()
	var list []Transition
	want := strings.Join(states, " ")
	last := Poll(limit, func() string {
		list = r.Changes(t, name)
		if got := Path(list); got != want {
			return "it went " + got
		}
		return ""
	})
	if last != "" {
		t.Fatalf("engine %s did not go %s within %v: %s; %+v", name, want, limit, last, list)
	}
	for i, c := range list {
		if c.Reason == "" || i > 0 && (c.From != list[i-1].To || c.Time.Before(list[i-1].Time)) {
			t.Errorf("engine %s: a transition does not follow from the one before: %+v", name, list)
		}
	}
	return list
}

// Path tells transitions in the words of the states that were entered.
func Path(list []Transition) string {
	var words []string
	for _, c := range list {
		words = append(words, c.To)
	}
	return strings.Join(words, " ")
}

// Is waits until an engine is in a state for every eye.
func (r *Ramjet) Is(t testing.TB, limit time.Duration, name, state string) {
	t.Helper()
	Eventually(t, limit, "engine "+name+" "+state, func() string {
		m := r.Metrics()
		var told struct {
			Status  string `json:"status"`
			Engines map[string]struct{ State, Reason string }
		}
		_, body := r.AdminGet("/health")
		_ = json.Unmarshal([]byte(body), &told)
		e := r.Status(t, name)
		switch {
		case e.State != state || e.Reason == "" || e.Since.IsZero():
			return fmt.Sprintf("topology: %s (%s) since %v", e.State, e.Reason, e.Since)
		case m.Sum("ramjet_engine_state", "engine", name, "state", state) != 1 || m.Sum("ramjet_engine_state", "engine", name) != 1:
			return "the metrics tell another state, or two"
		case told.Engines[name].State != state || told.Engines[name].Reason == "":
			return fmt.Sprintf("/health tells %+v", told.Engines[name])
		}
		return ""
	})
}

// Stays checks for a while that an engine keeps a state.
func (r *Ramjet) Stays(t testing.TB, d time.Duration, name, state string) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if e := r.Status(t, name); e.State != state {
			t.Errorf("engine %s is %s (%s), want %s all the time", name, e.State, e.Reason, state)
			return
		}
	}
}

// Ailing is an answer to /health that says no.
var Ailing = FullResponse(503, "text/plain", "")

// Well restores an engine's own words for a path.
func (e *Engine) Well(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.gets, path)
}

// Hang lets an engine take requests for a path and never answer.
func (e *Engine) Hang(path string) { e.Get(path, "") }

// Failing answers every request with a status.
func Failing(status int) Script {
	return func(x *Exchange) {
		x.Write(JSONResponse(status, `{"error":{"message":"no","type":"server_error","param":null,"code":null}}`))
	}
}

// Steady sends one plain request after the other until stop is called, and
// returns the answers that were not 200 with "choices".
func Steady(t testing.TB, r *Ramjet, pause time.Duration) (stop func() (sent int, bad []string)) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	sent := 0
	var bad []string
	go func() {
		defer close(ended)
		a := NewAsker(t, "http://"+r.Public)
		defer a.Close()
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			id := r.ID("steady")
			p := a.Chat(id, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hello %s"}],"max_tokens":64}`, id))
			if sent++; !p.Ok() {
				bad = append(bad, p.String()+fmt.Sprintf(" %.200q", p.Raw))
			}
		}
	}()
	var stopped bool
	stop = func() (int, []string) {
		if !stopped {
			stopped = true
			close(done)
			<-ended
		}
		return sent, bad
	}
	t.Cleanup(func() { stop() })
	return stop
}

// DistinctBody is a streamed chat of about 2,000 tokens that begins like no
// other of the same test.
func DistinctBody(name string, i int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s %d %s"}],"stream":true,"max_tokens":64}`,
		name, i, strings.Repeat("word ", 1600))
}

// StuckStream opens a stream on b that gives two events and then nothing, and
// returns its client.
func StuckStream(t testing.TB, r *Ramjet, a, b *Engine) *Client {
	t.Helper()
	b.On(func(x *Exchange) {
		x.StreamHead()
		x.Events(RoleEvent(), DeltaEvent("one"))
		x.Gone(0)
	})
	c := r.Dial(t)
	for range 4 {
		id := r.ID("stuck")
		c.Send(Request("POST", ChatPath, id, ChatBody(true)))
		if x := WaitFor(t, id, a, b); x.E == b {
			break
		}
		c.Response(Patience)
	}
	c.EventCount(Patience, 2)
	return c
}
