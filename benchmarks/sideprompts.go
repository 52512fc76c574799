package benchmarks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Ramjet is measured twice with prompts. The exact one has the engines' tokenizer and takes the time that the longest
// prompt needs; its default is to give up after 20 ms and to route by what it remembers, as the approximate one does,
// which has neither a tokenizer nor the engines' events.
const (
	exactly      = "-exact" // behind our name
	approximates = "-approximate"
	idsTime      = "--tokens.max-time=5s"
)

// promptCells sends prompts to simulated engines, which tokenize, keep a cache and publish what is in it.
func (s *side) promptCells(cells []promptCell, rounds int) error {
	fast := simSpec{profile: "standard", speed: 1000, events: true}
	engines, stopEngines, err := s.simulated(fast, fast)
	if err != nil {
		return err
	}
	defer stopEngines()
	model, err := s.simulatedModel()
	if err != nil {
		return err
	}
	own := s.all[0]
	exact, rough := *own, *own
	exact.name += exactly
	exact.start = ramjetStarter(s.cfg.Binary, exact.name, append(slices.Clone(s.cfg.Extra), "--tokens.path="+model, idsTime)...)
	rough.name += approximates
	rough.start = ramjetBefore([]string{",events=off"}, s.cfg.Binary, rough.name, append(slices.Clone(s.cfg.Extra), "--tokens.source=off")...)
	up, stop, err := s.running(append([]*contender{&exact, &rough}, s.all[1:]...), engines)
	if err != nil {
		return err
	}
	defer stop()
	if err := s.trusted(exact.target.admin); err != nil {
		return err
	}
	scenarios := make([]scenario, 0, len(cells))
	for _, c := range cells {
		sc := scenario{name: c.scenario(), spec: c.spec, direct: true}
		sc.spec.Prompts = &PromptSpec{Corpus: c.corpus, Bytes: c.bytes, HotSeed: s.cfg.Seed + uint64(len(scenarios))}
		scenarios = append(scenarios, sc)
		for _, c := range up {
			if err := s.known(c, sc.spec); err != nil {
				return err
			}
		}
	}
	return s.inRounds(up, engines, rounds, scenarios)
}

// known lets a contender see what is common to all runs of a corpus before any of it is measured.
func (s *side) known(c *contender, spec LoadSpec) error {
	if spec.Prompts.common(spec.Streams) == 0 || c.reason != "" {
		return nil
	}
	warm := *spec.Prompts
	warm.Warm = true
	spec.Prompts, spec.Targets = &warm, c.target.addresses
	if _, err := s.load(spec); err != nil {
		return s.lost(c, err)
	}
	return nil
}

// trusted waits until Ramjet follows the events of every engine.
func (s *side) trusted(admin string) error {
	const limit = 30 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end) && s.ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var topology struct {
			Engines []struct{ Trust string } `json:"engines"`
		}
		if err := getJSON(s.ctx, "http://"+admin+"/api/v1/topology", &topology); err != nil {
			return err
		}
		if !slices.ContainsFunc(topology.Engines, func(e struct{ Trust string }) bool { return e.Trust != "exact" }) {
			return nil
		}
	}
	return fmt.Errorf("cannot measure exact routing: the engines' caches are not known after %s", limit)
}

// decisionsOf reads the newest decision records of a Ramjet; nil when it cannot.
func decisionsOf(ctx context.Context, admin string, n int) *Decisions {
	var list []struct {
		Keys     string `json:"keys"`
		KeysNote string `json:"keys_note"`
		Result   struct {
			RouteS float64 `json:"route_s"`
		} `json:"result"`
	}
	if err := getJSON(ctx, fmt.Sprintf("http://%s/api/v1/requests?limit=%d", admin, n), &list); err != nil {
		return nil
	}
	d := &Decisions{Seen: len(list), Notes: make(map[string]int)}
	times := make([]int64, 0, len(list))
	for _, x := range list {
		if x.Keys == "exact" {
			d.Exact++
		} else {
			d.Notes[x.KeysNote]++
		}
		times = append(times, int64(x.Result.RouteS*1e9))
	}
	d.Route = quantilesOf(times)
	return d
}

func getJSON(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot ask ramjet: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot ask ramjet: %s of %s", resp.Status, url)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("cannot read ramjet's answer: %w", err)
	}
	return nil
}
