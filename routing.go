package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/zeebo/xxh3"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/probe"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/web"
)

// fixedCohort is the key of cohorts when none is set, so that the sessions of
// 1 % are the same on every Ramjet and after every start.
const fixedCohort = 0x72616d6a6574

// routeSettings turns the configuration into what decisions go by.
func routeSettings(cfg *config.Config) (route.Settings, error) {
	s := route.Settings{
		Policy: route.Policy(cfg.Route.Policy), Profile: route.Profile(cfg.Route.Profile), Threshold: int64(cfg.Route.ProfileThreshold),
		Percent: cfg.Route.Exact.Percent, CohortKey: fixedCohort, Tie: cfg.Route.Tie.Seconds(), DelayWeight: cfg.Route.DelayWeight,
	}
	switch cfg.Route.Exact.Mode {
	case config.ExactOff:
		s.Exact = route.ExactOff
	case config.ExactShadow:
		s.Exact = route.ExactShadow
	case config.ExactPercent:
		s.Exact = route.ExactPercent
	}
	key, err := secret(cfg.Route.CohortKeyFile)
	if err != nil {
		return s, fmt.Errorf("route.cohort_key_file: %w", err)
	}
	if key != "" {
		s.CohortKey = xxh3.HashString(key)
	}
	return s, nil
}

// routing tells the operator how decisions are made.
func (a *app) routing() web.Routing {
	s := a.router.Settings()
	r := web.Routing{Policy: string(s.Policy), Exact: config.ExactPercent, Percent: s.Percent}
	switch s.Exact {
	case route.ExactOff:
		r.Exact, r.Percent = config.ExactOff, 0
	case route.ExactShadow:
		r.Exact, r.Percent = config.ExactShadow, 0
	case route.ExactPercent:
	}
	return r
}

// work tells the operator what an engine has to do and how fast it does it.
func (a *app) work(name string) web.Work {
	m := a.roster.Load().named(name)
	if m == nil {
		return web.Work{}
	}
	now := a.proxy.Now()
	a.book.Lock()
	queue, uncached, rates := m.account.QueueLocked(now), m.account.LoadLocked().Uncached, *m.account.RatesLocked()
	a.book.Unlock()
	w := web.Work{QueueTokens: int64(queue), UncachedTokens: uncached, PrefillRate: rates.Prefill(), SecondsPerToken: map[string]float64{}}
	rates.Learnt(func(batch int, seconds float64) { w.SecondsPerToken[strconv.Itoa(batch)] = seconds })
	return w
}

// residency tells the operator what is known of an engine's cache.
func (a *app) residency(name string) web.Residency {
	var r web.Residency
	m := a.roster.Load().named(name)
	if m == nil {
		return r
	}
	held := a.index.Engine(m.slot)
	r.BlockTokens, r.IndexBlocks = held.BlockTokens(), held.Blocks()
	if got := a.monitor.Reported(m.engine); got != nil && got.KVBlocks > 0 {
		r.Blocks = int(got.KVBlocks)
		r.CapacityTokens = r.Blocks * int(max(float64(r.BlockTokens), got.KVBlockTokens))
	}
	return r
}

// recorded is what an engine's record holds, for metrics.
func (a *app) recorded(name string) (blocks int, lag float64) {
	m := a.roster.Load().named(name)
	if m == nil {
		return 0, telemetry.Unknown
	}
	lag = telemetry.Unknown
	if f := a.feeds.of(m.slot); f != nil {
		if n := f.lag.Load(); n >= 0 {
			lag = time.Duration(n).Seconds()
		}
	}
	return a.index.Engine(m.slot).Blocks(), lag
}

// reported takes from an engine's own figures how much its cache holds, what it
// hit in total, and what it generated.
func (a *app) reported(e *engine.Engine, r *probe.Reported) {
	m := a.roster.Load().of(e)
	if m == nil {
		return
	}
	if r.KVBlocks > 0 {
		a.feeds.setCapacity(m.slot, int(r.KVBlocks))
	}
	if feed := a.feeds.feed(m.slot); feed != nil && r.PrefixQueries >= 0 {
		feed.Totals(r.PrefixHits, r.PrefixQueries)
	}
	a.memory.SetCapacity(m.slot, a.horizon(e.Name))
	a.router.Counted(e, r.GenerationTokens, r.Running, a.proxy.Now())
}

// horizon is how many tokens the approximate memory of an engine reaches back,
// 0 if nothing is known of its cache.
func (a *app) horizon(name string) int64 {
	if n := a.current.Load().Route.MemoryTokens; n > 0 {
		return int64(n)
	}
	return int64(a.residency(name).CapacityTokens)
}

// setHorizons sets how far each engine's memory reaches, which nobody else does
// for an engine that tells nothing of its cache.
func (a *app) setHorizons(r *roster) {
	for _, m := range r.present {
		a.memory.SetCapacity(m.slot, a.horizon(m.engine.Name))
	}
}

// lost drops what is known of an engine's cache: its process is another one, or
// gone.
func (a *app) lost(e *engine.Engine, why string) {
	m := a.roster.Load().of(e)
	if m == nil {
		return // it left, and with it all that was known of it
	}
	a.log.Info("what was known of the engine's cache is dropped", "engine", e.Name, "reason", why)
	a.proxy.Forget(e.Name)
	a.router.Forget(&route.Member{Engine: e, Account: m.account, Slot: m.slot})
	a.feeds.restarted(m.slot)
	a.prompts.lost(m.slot)
}
