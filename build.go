package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/lease"
	"ramjet/probe"
	"ramjet/proxy"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/web"
)

// app is the whole graph of one Ramjet.
type app struct {
	cfg     *config.Config
	out     *telemetry.LogWriter
	log     *telemetry.Log
	watch   *engine.Watch
	engines []*engine.Engine
	monitor *probe.Monitor
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
	a := &app{cfg: cfg, out: telemetry.NewLogWriter(logTo)}
	a.failed = make(chan error, 1)
	a.log = telemetry.NewLog(a.out, level, cfg.Log.Format)
	metrics := telemetry.NewMetrics(version, runtime.Version())
	metrics.SetLogDropped(a.out.Dropped)

	if a.watch, err = engine.NewWatch(); err != nil {
		return nil, fmt.Errorf("cannot watch connections: %w", err)
	}
	if a.engines, err = engines(cfg, metrics, a.watch); err != nil {
		return nil, err
	}
	a.monitor = probe.New(probeOptions(cfg, a.log, metrics), a.engines)
	book := lease.NewBook(func() { a.proxy.Released() })
	set := &route.Set{}
	for _, e := range a.engines {
		set.Members = append(set.Members, route.Member{Engine: e, Account: &lease.Account{}})
	}
	leases := leaseSource(book, set)
	metrics.SetLeaseSource(leases)

	o, err := proxyOptions(cfg)
	if err != nil {
		return nil, err
	}
	o.Router = route.New(book, route.Policy(cfg.Route.Policy), set)
	o.Outcomes, o.Metrics, o.Log = a.monitor, metrics, a.log
	o.Tick = newGovernor().tick
	if access && level <= telemetry.LevelInfo {
		o.Access = telemetry.NewAccessLog(a.out, cfg.Log.Format)
	}
	o.Health = func(dst []byte) ([]byte, bool) {
		ok, _ := a.monitor.AnyEngine()
		return a.monitor.AppendHealthJSON(dst), ok
	}
	if a.proxy, err = proxy.New(o); err != nil {
		return nil, err
	}
	token, err := secret(cfg.Admin.TokenFile)
	if err != nil {
		return nil, err
	}
	a.web = web.New(web.Options{
		Version: version, Policy: cfg.Route.Policy,
		Engines: a.engines, Monitor: a.monitor, Metrics: metrics, Leases: leases,
		Config: func() any { return cfg.Values() },
		Ready:  a.ready, Token: token, Loopback: onLoopback(cfg.Admin.Listen),
	})
	return a, nil
}

func engines(cfg *config.Config, metrics *telemetry.Metrics, watch *engine.Watch) ([]*engine.Engine, error) {
	var list []*engine.Engine
	for i := range cfg.Engines {
		c := &cfg.Engines[i]
		key, err := secret(c.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf("engine %s: %w", c.Name, err)
		}
		dial := cfg.Timeouts.Dial
		if dial == 0 {
			dial = -1
		}
		list = append(list, engine.New(engine.Options{
			Name: c.Name, URL: c.Target, Profile: c.Profile, APIKey: key, InFlight: c.InFlight,
			Dial: dial, GPUs: c.GPUs, Watch: watch, Metrics: metrics.Engine(c.Name), Forbidden: config.ForbiddenAddr,
		}))
	}
	return list, nil
}

func probeOptions(cfg *config.Config, log *telemetry.Log, metrics *telemetry.Metrics) probe.Options {
	o := probe.Defaults()
	o.Rules = probe.Rules{
		Successes: cfg.Health.Successes, Stable: cfg.Health.Stable, SlowStart: cfg.Health.SlowStart,
		Failures: cfg.Health.Failures, Stall: cfg.Health.Stall,
		EjectAfter: cfg.Eject.After, EjectBase: cfg.Eject.Base, EjectMax: cfg.Eject.Max,
	}
	o.Interval, o.Timeout = cfg.Health.Interval, cfg.Health.Timeout
	o.Log, o.Metrics = log, metrics
	return o
}

func proxyOptions(cfg *config.Config) (proxy.Options, error) {
	o := proxy.Options{
		Version: version,
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
		if o.Keys, err = proxy.LoadKeys(cfg.Auth.KeysFile); err != nil {
			return o, err
		}
	}
	o.TLS, err = tlsConfig(cfg)
	return o, err
}

// ready is what /readyz answers.
func (a *app) ready() (bool, []string) {
	if a.proxy.Draining() {
		return false, []string{"draining"}
	}
	return a.monitor.AnyEngine()
}

// leaseSource reads an engine's load at scrape time.
func leaseSource(book *lease.Book, set *route.Set) telemetry.LeaseSource {
	return func(name string) (prefill, decode int, tokens int64) {
		m := set.Find(name)
		if m == nil {
			return 0, 0, 0
		}
		load := book.Load(m.Account)
		return load.Prefill, load.Decode, load.Tokens
	}
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
