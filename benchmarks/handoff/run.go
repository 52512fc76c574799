package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ramjet/benchmarks/lab"
)

// Config is one call.
type Config struct {
	// Binary is the built ramjet, VLLM the folder that scripts/vllm-install.sh made, Serve scripts/vllm-serve.py.
	Binary, VLLM, Serve string
	// Tokens are the lengths of the conversation, ascending; AtOnce how many requests are under way.
	Tokens, AtOnce []int
	// Rounds is how often each way is visited with each length and number.
	Rounds int
	// Out is the Markdown file to write (empty: none); raw figures go to results/ beside it.
	Out     string
	Seed    uint64
	Command string
	Log     io.Writer
}

// The ways to the engine.
const (
	Direct = "direct"
	Asking = "asking"
	Ramjet = "ramjet"
)

// Visit is what one way did in one round.
type Visit struct {
	Round    int       `json:"round"`
	Way      string    `json:"way"`
	AtOnce   int       `json:"at_once"`
	Wanted   int       `json:"wanted_tokens"`
	Prompt   float64   `json:"prompt_tokens"` // mean, as the engine counted them
	First    []float64 `json:"first_token_s"`
	Seconds  float64   `json:"seconds"`
	API      float64   `json:"api_cpu_s"`    // of the engine's API process, per request
	Router   float64   `json:"router_cpu_s"` // of Ramjet or of the router that asks, per request
	Requests int       `json:"requests"`
}

// runner is one call in progress, owned by one goroutine.
type runner struct {
	cfg    Config
	ctx    context.Context
	dir    string
	rng    *rand.Rand
	talk   *conversation
	vllm   *lab.Process
	engine string // URL
	api    int    // process id of the API server
	asking *lab.Process
	proxy  *lab.Proxy
	visits []Visit
	meta   Meta
}

// Run starts vLLM, the asking router and Ramjet, visits them in turn and writes the report. It says whether the bounds of
// the design are met or not separable; an error means that the measurement itself failed.
func Run(ctx context.Context, cfg Config) (ok bool, err error) {
	r := &runner{cfg: cfg, ctx: ctx, rng: rand.New(rand.NewPCG(cfg.Seed, 2)), talk: newConversation(cfg.Seed)}
	if r.dir, err = os.MkdirTemp("", "handoffbench-"); err != nil {
		return false, fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	if r.cfg.Binary, err = filepath.Abs(cfg.Binary); err != nil {
		return false, err
	}
	r.meta = Meta{Command: cfg.Command, Rounds: cfg.Rounds, Seed: cfg.Seed, Machine: lab.Describe(ctx, r.cfg.Binary)}
	defer r.stop()
	if err := r.start(); err != nil {
		return false, err
	}
	bytesPerToken, err := r.scale()
	if err != nil {
		return false, err
	}
	for _, n := range cfg.Tokens {
		r.talk.grow(int(float64(n) * bytesPerToken))
		if err := r.prime(); err != nil {
			return false, fmt.Errorf("cannot prepare %d tokens: %w", n, err)
		}
		if err := r.rounds(n); err != nil {
			return false, fmt.Errorf("cannot measure %d tokens: %w", n, err)
		}
	}
	r.meta.Finish()
	return r.publish()
}

func (r *runner) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.cfg.Log, format+"\n", args...)
}

// client has connections of its own for each visit, so that no way finds another's.
func client() (c *http.Client, end func()) {
	t := &http.Transport{MaxIdleConnsPerHost: 64}
	return &http.Client{Transport: t, Timeout: 10 * time.Minute}, t.CloseIdleConnections
}

// scale finds out how many bytes of such a body a token has.
func (r *runner) scale() (float64, error) {
	c, end := client()
	defer end()
	r.talk.grow(8000)
	body := r.talk.turn()
	s, err := send(c, r.engine, body)
	if err != nil {
		return 0, err
	}
	return float64(len(body)) / float64(s.prompt), nil
}

// primeLimit is time for a prompt of 100,000 tokens on a busy machine, and for Ramjet to prove its ids.
const primeLimit = 10 * time.Minute

// prime puts the conversation into the engine's cache and waits until Ramjet hands its ids over.
func (r *runner) prime() error {
	c, end := client()
	defer end()
	began := time.Now()
	s, err := send(c, r.engine, r.talk.turn())
	if err != nil {
		return err
	}
	r.say("%d tokens, the first time and direct: %.1f s", s.prompt, time.Since(began).Seconds())
	for time.Since(began) < primeLimit {
		before, err := r.handed()
		if err != nil {
			return err
		}
		if _, err := send(c, "http://"+r.proxy.Public, r.talk.turn()); err != nil {
			return err
		}
		if after, err := r.handed(); err != nil || after > before {
			return err
		}
		select {
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return errNotHanded
}

var errNotHanded = errors.New("ramjet does not hand ids over")

// handed reads how many requests Ramjet sent with ids.
func (r *runner) handed() (n int, err error) {
	resp, err := http.Get("http://" + r.proxy.Admin + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("cannot read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("cannot read metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "ramjet_handoff_total{") && strings.Contains(line, `outcome="sent"`) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
				return 0, fmt.Errorf("cannot read metrics: %w", err)
			}
			n += int(v)
		}
	}
	return n, nil
}

// rounds visits every way with every number at once, in random order.
func (r *runner) rounds(tokens int) error {
	ways := []string{Direct, Asking, Ramjet}
	for round := 1; round <= r.cfg.Rounds; round++ {
		for _, atOnce := range r.cfg.AtOnce {
			r.rng.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
			for _, way := range ways {
				v, err := r.visit(way, atOnce)
				if err != nil {
					return fmt.Errorf("%s: %w", way, err)
				}
				v.Round, v.Wanted = round, tokens
				r.visits = append(r.visits, v)
				r.say("round %d, %.0f tokens, %d at once, %-7s first token %6.1f ms, %6.2f requests/s, API process %6.1f ms of CPU a request, router %5.1f ms",
					round, v.Prompt, atOnce, way, 1e3*lab.SpreadOf(v.First).Median, v.rate(), 1e3*v.API, 1e3*v.Router)
			}
		}
	}
	return nil
}
