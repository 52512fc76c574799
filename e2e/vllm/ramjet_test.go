package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ramjet is a running process of the binary under test.
type ramjet struct {
	t             *testing.T
	public, admin string // URLs
	cmd           *exec.Cmd
	out           output
	ended         chan struct{}
	requests      int
}

// startRamjet runs `ramjet serve` in front of the engines, with the model's folder as tokenizer, and waits until every
// engine is ready.
func startRamjet(t *testing.T, engines []*engine, flags ...string) *ramjet {
	t.Helper()
	r := &ramjet{t: t, ended: make(chan struct{})}
	portFile := filepath.Join(t.TempDir(), "ports")
	args := []string{"serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--port-file", portFile, "--log.format=json",
		"--tokenizer", model(t, engines[0].options.model)}
	for _, e := range engines {
		args = append(args, "--engine", e.name+"="+e.url)
	}
	r.cmd = exec.Command(binary(t), append(args, flags...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("cannot start ramjet: %v", err)
	}
	go func() { _ = r.cmd.Wait(); close(r.ended) }()
	t.Cleanup(r.finish)
	eventually(t, patience, "ramjet listens", func() string {
		select {
		case <-r.ended:
			t.Fatalf("ramjet ended:\n%s", r.out.tail(20))
		default:
		}
		b, _ := os.ReadFile(portFile)
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "public="); ok {
				r.public = "http://" + v
			}
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "admin="); ok {
				r.admin = "http://" + v
			}
		}
		if r.public == "" || r.admin == "" {
			return fmt.Sprintf("the port file holds %q", b)
		}
		return ""
	})
	for _, e := range engines {
		r.awaitState(e.name, "ready")
	}
	return r
}

func (r *ramjet) finish() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Error("ramjet did not stop after SIGTERM")
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	if out := r.out.String(); strings.Contains(out, "\ngoroutine ") || strings.Contains(out, "BUG:") {
		r.t.Error("ramjet panicked")
	}
	if r.t.Failed() {
		r.t.Logf("ramjet said at last:\n%s", r.out.tail(15))
	}
}

// get asks the admin port for JSON.
func (r *ramjet) get(path string) (status int, body []byte) {
	resp, err := client.Get(r.admin + path)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, body
}

// topology is what these tests look at in /api/v1/topology.
type topology struct {
	Engines []struct {
		Name, State, Trust string
		TrustReason        string `json:"trust_reason"`
		BlockTokens        *int   `json:"block_tokens"`
		IndexBlocks        *int64 `json:"index_blocks"`
	}
}

func (r *ramjet) topology() (v topology) {
	if status, body := r.get("/api/v1/topology"); status == http.StatusOK {
		_ = json.Unmarshal(body, &v)
	}
	return v
}

func (r *ramjet) awaitState(name, state string) {
	r.t.Helper()
	eventually(r.t, patience, "engine "+name+" is "+state, func() string {
		resp, err := client.Get(r.public + "/health")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		var v struct {
			Engines map[string]struct{ State, Reason string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
			return err.Error()
		}
		if e := v.Engines[name]; e.State != state {
			return fmt.Sprintf("%s (%s)", e.State, e.Reason)
		}
		return ""
	})
}

// awaitTrust waits until Ramjet believes what it knows of every engine.
func (r *ramjet) awaitTrust() {
	r.t.Helper()
	eventually(r.t, patience, "residency is exact", func() string {
		v := r.topology()
		if len(v.Engines) == 0 {
			return "no topology"
		}
		for _, e := range v.Engines {
			if e.Trust != "exact" {
				return fmt.Sprintf("%s is %s: %s", e.Name, e.Trust, e.TrustReason)
			}
		}
		return ""
	})
}

// settled waits until the index has taken in what the engines have published: it does not change any more. vLLM
// publishes a step's events before that step's tokens, so when an answer has ended they are on their way at most.
func (r *ramjet) settled() {
	r.t.Helper()
	last, same := "", 0
	eventually(r.t, patience, "the index comes to rest", func() string {
		now := ""
		for _, e := range r.topology().Engines {
			if e.IndexBlocks != nil {
				now += fmt.Sprint(e.Name, *e.IndexBlocks, " ")
			}
		}
		if now != last {
			last, same = now, 0
		}
		if same++; same < 3 {
			return now
		}
		return ""
	})
}

// sent is a request that went through Ramjet, and what Ramjet says of it.
type sent struct {
	*answer
	id     string
	engine string
	match  int // X-Ramjet-Match
}

// send posts a body with an id of its own.
func (r *ramjet) send(path, body string) *sent {
	r.t.Helper()
	r.requests++
	s := &sent{id: fmt.Sprintf("t-%d", r.requests)}
	s.answer = post(r.t, r.public+path, body, "X-Request-Id", s.id).ok(r.t, path)
	s.engine = s.header.Get("X-Ramjet-Engine")
	match, err := strconv.Atoi(s.header.Get("X-Ramjet-Match"))
	if err != nil {
		r.t.Fatalf("X-Ramjet-Match is %q", s.header.Get("X-Ramjet-Match"))
	}
	s.match = match
	return s
}

// explanation is what these tests look at in a decision record.
type explanation struct {
	PromptTokens *int `json:"prompt_tokens"`
	Keys         string
	KeysNote     *string `json:"keys_note"`
	Handoff      bool
	Engine       string
	Reason       string
	Candidates   []struct {
		Engine     string
		Usable     bool
		MatchExact *int `json:"match_exact_tokens"`
		Match      *int `json:"match_tokens"`
	}
	Result *struct {
		PromptTokens *int `json:"prompt_tokens"`
		CachedTokens *int `json:"cached_tokens"`
	}
}

// explain asks for the decision record of a request that has ended.
func (r *ramjet) explain(id string) (v explanation) {
	r.t.Helper()
	eventually(r.t, patience, "the explanation of "+id, func() string {
		status, body := r.get("/api/v1/explain/" + id)
		if status != http.StatusOK {
			return fmt.Sprintf("%d %.300s", status, body)
		}
		v = decode[explanation](r.t, body)
		if v.Result == nil {
			return "no result yet"
		}
		return ""
	})
	return v
}

// accessLine is what these tests look at in a request's line in the log.
type accessLine struct {
	ID           string
	End          string
	Engine       string
	Keys         string
	PromptTokens *int `json:"prompt_tokens"`
	MatchTokens  *int `json:"match_tokens"`
	CachedTokens *int `json:"cached_tokens"`
}

// accessLine finds the line of a request.
func (r *ramjet) accessLine(id string) (found accessLine) {
	r.t.Helper()
	eventually(r.t, patience, "the access line of "+id, func() string {
		for line := range strings.Lines(r.out.String()) {
			if strings.Contains(line, `"`+id+`"`) && json.Unmarshal([]byte(line), &found) == nil && found.ID == id && found.End != "" {
				return ""
			}
		}
		return "not there"
	})
	return found
}

// metric sums the values of a metric's lines that contain all the labels.
func (r *ramjet) metric(name string, labels ...string) (sum float64) {
	r.t.Helper()
	status, body := r.get("/metrics")
	if status != http.StatusOK {
		r.t.Fatalf("/metrics: %d %.300s", status, body)
	}
lines:
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		sum += v
	}
	return sum
}

// orNull shows a number that may be unknown.
func orNull[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}
