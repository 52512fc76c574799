package growth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"ramjet/benchmarks/lab"
)

// promptWords are what conversations are made of, so that tokens are as long as those of prose.
var promptWords = strings.Fields(`the engine holds a block of tokens while somebody asks about the weather in another harbour and
	nobody remembers what was said before so we begin again with seven ships and a question whether winter light is enough for
	reading old letters from people who never answered because their children moved away and took every clock with them`)

// conversation is a chat whose every text is its own.
type conversation struct {
	rng  *rand.Rand
	body []byte // up to the last message, without the list's end
	n    int
}

// newConversation makes a chat of about that many bytes of messages.
func newConversation(rng *rand.Rand, size int) *conversation {
	c := &conversation{rng: rng, body: []byte(`{"model":"m","max_tokens":1,"messages":[`)}
	for len(c.body) < size || c.n%2 == 0 {
		c.add(min(1000, size/2))
	}
	return c
}

// add appends a message of about size bytes.
func (c *conversation) add(size int) {
	if c.n > 0 {
		c.body = append(c.body, ',')
	}
	role := "user"
	if c.n%2 == 1 {
		role = "assistant"
	}
	c.n++
	c.body = fmt.Appendf(c.body, `{"role":"%s","content":"%d`, role, c.rng.Uint32())
	for end := len(c.body) + size - 50; len(c.body) < end; {
		c.body = append(append(c.body, ' '), promptWords[c.rng.IntN(len(promptWords))]...)
	}
	c.body = append(c.body, `"}`...)
}

func (c *conversation) request() []byte { return append(bytes.Clone(c.body), "]}"...) }

// next is the conversation's next turn: the engine's answer and one new message of some 200 tokens.
func (c *conversation) next() []byte {
	c.add(60)
	c.add(800)
	return c.request()
}

// turns is how often a conversation comes back.
const turns = 3

// prompts measures the CPU of the built binary for a request over the length of its prompt.
func (r *runner) prompts() error {
	s, err := r.startSims()
	if err != nil {
		return err
	}
	defer s.stop()
	fresh := Curve{Name: "new"}
	back := Curve{Name: "returning with one new message"}
	for _, n := range r.plan.tokens {
		fresh.Points, back.Points = append(fresh.Points, Point{X: float64(n)}), append(back.Points, Point{X: float64(n)})
	}
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 7))
	bytesPerToken := 5.0
	sample := newConversation(rng, 20_000).request()
	if a, err := s.ask(sample); err != nil {
		return err
	} else if a.tokens > 0 {
		bytesPerToken = float64(len(sample)) / float64(a.tokens)
	}
	first, later := make([][]float64, len(r.plan.tokens)), make([][]float64, len(r.plan.tokens))
	for range r.plan.rounds {
		for _, i := range rng.Perm(len(r.plan.tokens)) {
			n := r.plan.tokens[i]
			f, err := s.measure(r.ctx, rng, int(float64(n)*bytesPerToken), max(1, min(40, r.plan.promptTokens/n)))
			if err != nil {
				return err
			}
			fresh.Points[i].Y, back.Points[i].Y = append(fresh.Points[i].Y, f.fresh), append(back.Points[i].Y, f.back)
			first[i], later[i] = append(first[i], f.freshTokens), append(later[i], f.backTokens)
			r.say("%8.0f tokens: new %s, returning %s of CPU", f.freshTokens, Seconds.format(f.fresh, 3), Seconds.format(f.back, 3))
		}
	}
	for i := range r.plan.tokens { // what the engine counted
		fresh.Points[i].X, back.Points[i].X = lab.SpreadOf(first[i]).Median, lab.SpreadOf(later[i]).Median
	}
	r.add(Chart{
		File: "prompts.svg", Title: "A request, by the length of its prompt", XTitle: "tokens of the prompt, as the engine counts them", YTitle: "CPU of Ramjet per request", YUnit: Seconds,
		Text: "The CPU clock of `ramjet serve` (" + s.command + ") in front of two `ramjet sim` at many times their speed that publish cache events, for a chat answered with one token: reading the body, ids, keys, decision, " +
			"passing the body on, and the events that the prompt causes. The simulator's small vocabulary makes more tokens of a text than a real one. Returning: one answer and one message of some 200 tokens more. " +
			"Less what the process uses while nobody asks it anything. Every prompt was routed by exact ids, and every returning one was found in the cache.",
		Curves: []Curve{fresh, back},
	})
	return nil
}

// sims is a proxy in front of two simulated engines.
type sims struct {
	engines []*lab.Process
	proxy   *lab.Proxy
	command string
	client  *http.Client
	idle    float64 // cores
}

func (r *runner) startSims() (s *sims, err error) {
	s = &sims{client: &http.Client{Timeout: 5 * time.Minute}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	dir, err := os.MkdirTemp(r.dir, "prompts-")
	if err != nil {
		return s, err
	}
	ports, err := lab.FreePorts(6)
	if err != nil {
		return s, err
	}
	// More than the default of 20 ms and 8 MiB, so that the curve of new prompts ends with the machine and not with a limit.
	limits := []string{"--tokens.max-time=60s", "--tokens.max-bytes=64MiB"}
	s.command = strings.Join(limits, " ")
	flags := append([]string{"--tokenizer", dir}, limits...)
	if p, err := lab.Start(dir, "model", r.cfg.Binary, "sim", "--write-model="+dir); err != nil {
		return s, err
	} else if err := p.Wait(); err != nil {
		return s, fmt.Errorf("cannot write the simulator's model: %w", err)
	}
	for i := range 2 {
		api, events, replay := ports[3*i], ports[3*i+1], ports[3*i+2]
		p, err := lab.Start(dir, fmt.Sprintf("sim%d", i), r.cfg.Binary, "sim", fmt.Sprintf("--listen=127.0.0.1:%d", api), fmt.Sprintf("--events=tcp://*:%d", events),
			fmt.Sprintf("--replay=tcp://*:%d", replay), "--model=m", "--speed=100000", "--max-model-len=4000000", "--kv-blocks=1000000")
		if err != nil {
			return s, err
		}
		s.engines = append(s.engines, p)
		url := fmt.Sprintf("http://127.0.0.1:%d", api)
		if err := p.Await("ramjet sim", lab.StartLimit, func() bool { return lab.Answers(url + "/health") }); err != nil {
			return s, err
		}
		flags = append(flags, "--engine", fmt.Sprintf("%c=%s,events=tcp://127.0.0.1:%d,replay=tcp://127.0.0.1:%d", 'a'+i, url, events, replay))
	}
	if s.proxy, err = lab.StartProxy(r.cfg.Binary, dir, flags...); err != nil {
		return s, err
	}
	if err = s.awaitExact(); err == nil {
		s.idle, err = s.proxy.Window(r.ctx, r.plan.window)
	}
	return s, err
}

// awaitExact sends short chats until their ids are proven.
func (s *sims) awaitExact() error {
	rng := rand.New(rand.NewPCG(1, 8))
	for end := time.Now().Add(lab.StartLimit); ; time.Sleep(100 * time.Millisecond) {
		a, err := s.ask(newConversation(rng, 3000).request())
		if err == nil {
			err = s.exact(a)
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (s *sims) stop() {
	if s.proxy != nil {
		s.proxy.Stop()
	}
	for _, e := range s.engines {
		e.Stop()
	}
}

// answer is what is read of one answer.
type answer struct {
	id            string
	tokens, match int // of the prompt, by the engine's count; believed cached
}

func (s *sims) ask(body []byte) (a answer, err error) {
	resp, err := s.client.Post("http://"+s.proxy.Public+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("status %d: %.300s", resp.StatusCode, text)
	}
	var v struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return a, fmt.Errorf("cannot read the answer: %w", err)
	}
	a.id, a.tokens = resp.Header.Get("X-Request-Id"), v.Usage.Prompt
	a.match, err = strconv.Atoi(resp.Header.Get("X-Ramjet-Match"))
	return a, err
}

// exact says why a request was not routed by exact ids.
func (s *sims) exact(a answer) error {
	resp, err := s.client.Get("http://" + s.proxy.Admin + "/api/v1/explain/" + a.id)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var d struct {
		Keys string  `json:"keys"`
		Note *string `json:"keys_note"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		return fmt.Errorf("cannot read a decision: %w", err)
	}
	if d.Keys != "exact" {
		note := "no note"
		if d.Note != nil {
			note = *d.Note
		}
		return fmt.Errorf("a prompt of %d tokens was routed by %s keys (%s)", a.tokens, d.Keys, note)
	}
	return nil
}

type promptFigures struct{ fresh, back, freshTokens, backTokens float64 }

// measure sends so many conversations of size bytes, then some turns of each, and returns CPU seconds of a request.
func (s *sims) measure(ctx context.Context, rng *rand.Rand, size, conversations int) (f promptFigures, err error) {
	list := make([]*conversation, conversations)
	bodies := make([][]byte, conversations)
	for i := range list {
		list[i] = newConversation(rng, size)
		bodies[i] = list[i].request()
	}
	if f.fresh, f.freshTokens, err = s.cost(ctx, bodies, 0); err != nil {
		return f, err
	}
	again := make([][]byte, 0, turns*conversations)
	for range turns {
		for _, c := range list {
			again = append(again, c.next())
		}
	}
	f.back, f.backTokens, err = s.cost(ctx, again, 0.3)
	return f, err
}

// cost sends bodies one after the other and returns the CPU that one takes, the events that follow it included, and the
// mean length of their prompts. At least the share known of each must have been found in the cache.
func (s *sims) cost(ctx context.Context, bodies [][]byte, known float64) (cpu, tokens float64, err error) {
	list := make([]answer, len(bodies))
	before, err := s.proxy.CPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for i, b := range bodies {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if list[i], err = s.ask(b); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(50 * time.Millisecond) // the last events are on their way
	after, err := s.proxy.CPU()
	if err != nil {
		return 0, 0, err
	}
	used := after - before - s.idle*time.Since(began).Seconds()
	for _, a := range list {
		if err := s.exact(a); err != nil {
			return 0, 0, err
		}
		if float64(a.match) < known*float64(a.tokens) {
			return 0, 0, fmt.Errorf("a prompt of %d tokens came back and only %d of them were known", a.tokens, a.match)
		}
		tokens += float64(a.tokens)
	}
	n := float64(len(bodies))
	return used / n, tokens / n, nil
}
