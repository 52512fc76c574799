package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"ramjet/config"
)

// QualifyOptions say what is sent, and where.
type QualifyOptions struct {
	Requests int    // how many are counted
	URL      string // the public port; "" = as the configuration says
	Model    string // "" = the first that is served
	// From names a file with a request body a line, to be sent instead of
	// sessions of its own; "" = none.
	From    string
	Timeout time.Duration // longest wait for one answer
	JSON    bool
	Out     io.Writer
}

// Qualify sends requests through a running Ramjet, one after another, and asks
// for each what was decided and why: were all tokenized, does exact routing
// agree with approximate, do the engines report what is said of their caches.
// It is an error when a bound fails.
func Qualify(ctx context.Context, args, env []string, o QualifyOptions) error {
	if o.Requests < 1 {
		return errors.New("cannot qualify by no request: --requests must be at least 1")
	}
	q, err := newQualifier(args, env, o)
	if err != nil {
		return err
	}
	before, err := q.topology(ctx)
	if err != nil {
		return err
	}
	if o.From != "" {
		err = q.sendFile(ctx, o.From)
	} else {
		err = q.sendOwn(ctx, before.block())
	}
	if err != nil {
		return err
	}
	after, err := q.topology(ctx)
	if err != nil {
		return err
	}
	v := q.tally.judge(after.Engines)
	v.URL = q.url
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		err = e.Encode(&v)
	} else {
		v.print(o.Out)
	}
	if err == nil && !v.OK {
		err = fmt.Errorf("not qualified: %s", v.failed())
	}
	return err
}

// qualifier is one run.
type qualifier struct {
	o     QualifyOptions
	admin *admin
	*publicPort
	seed  uint64 // of the texts, which no other run sends
	run   string // of the ids
	sent  int    // requests, for their ids
	tally qualifyTally
}

func newQualifier(args, env []string, o QualifyOptions) (*qualifier, error) {
	a, err := findAdmin(args, env)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.LoadOptions{Args: args, Env: env, KnownVariables: []string{"RAMJET_PORT_FILE"}, AllowNoEngines: true})
	if err != nil {
		return nil, err
	}
	p, err := findPublic(cfg, o.URL, o.Timeout)
	if err != nil {
		return nil, err
	}
	seed := rand.Uint64()                                                                                                        //nolint:gosec // no secret
	return &qualifier{o: o, admin: a, publicPort: p, seed: seed, run: fmt.Sprintf("%08x", uint32(seed)), tally: newTally()}, nil //nolint:gosec // a part of it is enough
}

// topologyOf is what of the topology counts here.
type topologyOf struct {
	Engines []engineOf `json:"engines"`
}

type engineOf struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Trust       string `json:"trust"`
	TrustReason string `json:"trust_reason"`
	BlockTokens *int   `json:"block_tokens"`
}

// block is the size of the largest block, in tokens: what is shorter is never
// hit.
func (t *topologyOf) block() int {
	const usual = 16 // vLLM's default, where nothing is known
	block := usual
	for _, e := range t.Engines {
		if e.BlockTokens != nil {
			block = max(block, *e.BlockTokens)
		}
	}
	return block
}

func (q *qualifier) topology(ctx context.Context) (t topologyOf, err error) {
	text, err := q.admin.ask(ctx, "GET", "/api/v1/topology", nil)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("cannot read the topology: %w", err)
	}
	if len(t.Engines) == 0 {
		return t, errors.New("cannot qualify: Ramjet has no engines")
	}
	return t, nil
}

// hopeless is after how many failures without one success the run ends.
const hopeless = 5

// ask sends one request and takes in what was decided. Only a run that cannot
// go on is an error.
func (q *qualifier) ask(ctx context.Context, path, session, body string, counted bool) (text string, x *qualified, err error) {
	q.sent++
	id := fmt.Sprintf("qualify-%s-%d", q.run, q.sent)
	text, err = q.post(ctx, path, id, session, body)
	if err == nil {
		x, err = q.explained(ctx, id)
	}
	if ctx.Err() != nil {
		return "", nil, fmt.Errorf("cannot go on: %w", ctx.Err())
	}
	if err != nil {
		q.tally.failed(id, err)
		if q.tally.Errors >= hopeless && q.tally.Requests == 0 {
			return "", nil, fmt.Errorf("cannot qualify, no request succeeds: %w", err)
		}
		return "", nil, nil
	}
	if counted {
		q.tally.add(x)
	}
	return text, x, nil
}

// explained asks what was decided for a request: it is told once it ended,
// which may be a moment after the client has its answer.
func (q *qualifier) explained(ctx context.Context, id string) (*qualified, error) {
	const limit, pause = 3 * time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(limit); ; {
		text, err := q.admin.ask(ctx, "GET", "/api/v1/explain/"+id, nil)
		if err == nil {
			x := &qualified{}
			if err := json.Unmarshal(text, x); err != nil {
				return nil, fmt.Errorf("cannot read the explanation: %w", err)
			}
			return x, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, err
		}
		sleep(ctx, pause)
	}
}

// maxBody bounds a line of a file of bodies.
const maxBody = 64 << 20

// sendFile sends the bodies of a file in their order.
func (q *qualifier) sendFile(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot read the requests: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxBody)
	number := 0
	for q.sent < q.o.Requests && lines.Scan() {
		number++
		body := strings.TrimSpace(lines.Text())
		if body == "" {
			continue
		}
		path, err := pathOf(body)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if _, _, err := q.ask(ctx, path, "", body, true); err != nil {
			return err
		}
		sleep(ctx, settle)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot read the requests: %w", err)
	}
	if q.sent == 0 {
		return fmt.Errorf("cannot qualify by %s: it holds no request", name)
	}
	return nil
}

// pathOf is where a body belongs.
func pathOf(body string) (string, error) {
	var b map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		return "", fmt.Errorf("it is no JSON object: %w", err)
	}
	for _, of := range []struct{ member, path string }{
		{"messages", chatPath}, {"prompt", "/v1/completions"}, {"input", "/v1/responses"},
	} {
		if _, ok := b[of.member]; ok {
			return of.path, nil
		}
	}
	return "", errors.New("it has none of messages, prompt and input")
}
