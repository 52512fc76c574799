package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/gpu"
	"ramjet/journal"
	"ramjet/lease"
	"ramjet/probe"
	"ramjet/proxy"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/web"
)

// app is the whole graph of one Ramjet.
type app struct {
	cfg     *config.Config                // as it was at the start, for what stays so
	current atomic.Pointer[config.Config] // in force
	out     *telemetry.LogWriter
	log     *telemetry.Log
	metrics *telemetry.Metrics
	watch   *engine.Watch
	roster  atomic.Pointer[roster]
	monitor *probe.Monitor
	book    *lease.Book
	router  *route.Router
	index   *radix.Index
	memory  *radix.Memory
	prompts *prompts
	feeds   *feeds
	beside  *beside
	gpus    *gpu.Sampler
	journal *journal.Journal // nil without one
	reloads
	servers
}

// build makes the graph from the inside out: what is told about things, the
// engines, their judge, the book, the choice, the way of requests, the
// operator's view. Nothing runs yet.
func build(cfg *config.Config, logTo io.Writer, access bool) (*app, error) {
	level, err := telemetry.ParseLevel(cfg.Log.Level)
	if err != nil {
		return nil, err
	}
	a := &app{cfg: cfg, out: telemetry.NewLogWriter(logTo), servers: servers{failed: make(chan error, 1)}}
	a.current.Store(cfg)
	a.log = telemetry.NewLog(a.out, level, cfg.Log.Format)
	metrics := telemetry.NewMetrics(version, runtime.Version())
	a.metrics = metrics
	metrics.SetLogDropped(a.out.Dropped)

	if a.watch, err = engine.NewWatch(); err != nil {
		return nil, fmt.Errorf("cannot watch connections: %w", err)
	}
	first := &roster{}
	if first.present, err = members(cfg, metrics, a.watch); err != nil {
		return nil, err
	}
	a.roster.Store(first)
	a.lastSlot = len(first.present) - 1
	checks := probe.Defaults()
	checks.Tuning, checks.Log, checks.Metrics = probeTuning(cfg), a.log, metrics
	checks.Lost, checks.Read = a.lost, a.reported
	a.monitor = probe.New(checks, first.engines())
	a.index, a.memory = radix.NewIndex(), radix.NewMemory()
	a.prompts = newPrompts(cfg, a.log, metrics, a.index)
	a.prompts.setEngines(first.present)
	a.beside = newBeside(a.log)
	a.book = lease.NewBook(func() { a.proxy.Released() })
	metrics.SetLeaseSource(a.leases)

	o, err := a.proxyOptions(cfg)
	if err != nil {
		return nil, err
	}
	settings, err := routeSettings(cfg)
	if err != nil {
		return nil, err
	}
	a.feeds = newFeeds(a.log, metrics, a.index, a.memory, a.monitor.Restarted)
	for _, m := range first.present {
		a.feeds.add(m)
	}
	a.setHorizons(first)
	metrics.SetResidencySource(a.recorded, a.index.Bytes)
	a.router = route.New(a.book, a.index, a.memory, settings, first.set())
	decisions := route.NewRing(keptDecisions)
	decisions.Reserve(len(first.present))
	o.Router, o.Decisions = a.router, decisions
	o.Prompts, o.Settings.Handoff, o.Beside = a.prompts.model, a.prompts.handoff.Load(), a.beside.do
	o.BesideRoom = a.beside.room
	o.Residency = a.feeds
	o.Outcomes, o.Metrics, o.Log = failures{a.monitor}, metrics, a.log
	o.Tick = a.ticker()
	if access && level <= telemetry.LevelInfo {
		o.Access = telemetry.NewAccessLog(a.out, cfg.Log.Format)
	}
	o.Health = func(dst []byte) ([]byte, bool) {
		ok, _ := a.monitor.AnyEngine()
		return a.monitor.AppendHealthJSON(dst), ok
	}
	if err := a.keepJournal(&o); err != nil {
		return nil, err
	}
	if a.proxy, err = proxy.New(o); err != nil {
		return nil, err
	}
	if err := a.newGPUs(cfg); err != nil {
		return nil, err
	}
	return a, a.newWeb(cfg, decisions)
}

// newWeb makes the operator's view, which sees all the rest.
func (a *app) newWeb(cfg *config.Config, decisions *route.Ring) error {
	token, err := secret(cfg.Admin.TokenFile)
	if err != nil {
		return err
	}
	a.web = web.New(web.Options{
		Version: version, Policy: cfg.Route.Policy,
		Present: func() []*engine.Engine { return a.roster.Load().engines() }, Monitor: a.monitor, Metrics: a.metrics, Leases: a.leases,
		Decisions: decisions, Explain: a.proxy.Explain,
		Routing: a.routing, Work: a.work, Residency: a.residency, GPUs: a.gpus,
		Config: func() any { return a.current.Load().Values() }, Reload: func() web.Reloaded { return a.reload("POST /-/reload") },
		Ready: a.ready, Token: token, Loopback: onLoopback(cfg.Admin.Listen), Log: a.log,
	})
	return nil
}

// keptDecisions is how many explanations can be asked for afterwards.
const keptDecisions = 1000

// members makes the engines of the start, in slots from 0 on.
func members(cfg *config.Config, metrics *telemetry.Metrics, watch *engine.Watch) ([]*member, error) {
	var list []*member
	for i := range cfg.Engines {
		c := &cfg.Engines[i]
		key, err := secret(c.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf("engine %s: %w", c.Name, err)
		}
		list = append(list, newMember(c, engineSettings(cfg, c, key), i, metrics, watch))
	}
	return list, nil
}

func probeTuning(cfg *config.Config) probe.Tuning {
	return probe.Tuning{
		Rules: probe.Rules{
			Successes: cfg.Health.Successes, Stable: cfg.Health.Stable, SlowStart: cfg.Health.SlowStart,
			Failures: cfg.Health.Failures, Stall: cfg.Health.Stall,
			EjectAfter: cfg.Eject.After, EjectBase: cfg.Eject.Base, EjectMax: cfg.Eject.Max,
		},
		Interval: cfg.Health.Interval, Timeout: cfg.Health.Timeout,
	}
}

// ticker returns what is called when a request begins, ends or streams on.
func (a *app) ticker() func(now time.Time) {
	g := newGovernor()
	return func(now time.Time) {
		g.tick(now)
		a.web.Stir(now)
		a.monitor.Tick(now)
	}
}

func (a *app) proxyOptions(cfg *config.Config) (proxy.Options, error) {
	o := proxy.Options{Version: version, Upstream: func() int { return a.roster.Load().open() }}
	var err error
	if o.Settings, err = proxySettings(cfg); err != nil {
		return o, err
	}
	inner, err := tlsConfig(cfg)
	if a.tls.Store(inner); inner != nil {
		o.TLS = &tls.Config{
			MinVersion:         inner.MinVersion,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.tls.Load(), nil },
		}
	}
	return o, err
}

func proxySettings(cfg *config.Config) (proxy.Settings, error) {
	s := proxy.Settings{
		Timeouts: proxy.Timeouts{
			Head: cfg.Timeouts.Head, FirstEvent: cfg.Timeouts.FirstEvent, EventGap: cfg.Timeouts.EventGap,
			Total: cfg.Timeouts.Total, ClientHeader: cfg.Timeouts.ClientHeader,
			ClientBodyRate: cfg.Timeouts.ClientBodyRate, ClientWrite: cfg.Timeouts.ClientWrite,
		},
		Limits: proxy.Limits{
			Body: cfg.Limits.Body, BodyMemory: cfg.Limits.BodyMemory, Header: int(cfg.Limits.Header),
			Connections: cfg.Limits.Connections, Queue: cfg.Limits.Queue, QueueWait: cfg.Limits.QueueWait,
		},
		Aliases: cfg.Model.Aliases, InjectUsage: cfg.Usage == "inject",
		StreamRelay: cfg.Relay == "stream" || runtime.GOOS != "linux",
		XRamjet:     cfg.Headers.XRamjet, ServerTiming: cfg.Headers.ServerTiming,
		Allow: cfg.Paths.Allow,
	}
	var err error
	if cfg.Auth.KeysFile != "" {
		s.Keys, err = proxy.LoadKeys(cfg.Auth.KeysFile)
	}
	return s, err
}

// ready is what /readyz answers.
func (a *app) ready() (bool, []string) {
	if a.proxy.Draining() {
		return false, []string{"draining"}
	}
	return a.monitor.AnyEngine()
}

// secret reads a file that holds one, "" without a file.
func secret(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("cannot read a secret: %w", err)
	}
	s := strings.TrimSpace(string(text))
	if s == "" || strings.ContainsAny(s, "\r\n") {
		return "", fmt.Errorf("cannot use %s: it must hold one line", name)
	}
	return s, nil
}

// onLoopback reports whether only this machine reaches an address.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
