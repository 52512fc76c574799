package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
)

// contender is one proxy of the side-by-side. Reason says why it is not measured, or not any more; then the others go on
// without it. Owned by the orchestrator's goroutine.
type contender struct {
	name    string
	version string
	set     string // how it is set up, in words
	ours    bool
	router  bool // a router for language models out of a package
	start   starter
	target  *target
	reason  string
}

// Names of the rivals.
const (
	HAProxy    = "haproxy"
	GoProxy    = "reverseproxy" // Go's httputil.ReverseProxy
	VLLMRouter = "vllm-router"
	SMG        = "smg"
)

// routerArguments start a packaged router on PORT in front of the workers that follow.
var routerArguments = map[string]string{
	// Both would answer 429 beyond a number of streams, or to one client's bursts, unless that limit is raised.
	VLLMRouter: "--host 127.0.0.1 --port {port} --policy cache_aware --log-level warning --prometheus-host 127.0.0.1 --prometheus-port {spare} " +
		"--max-concurrent-requests 20000 --worker-urls {workers}",
	SMG: "launch --host 127.0.0.1 --port {port} --policy cache_aware --backend vllm --disable-tokenizer-autoload --history-backend none --log-level warn " +
		"--prometheus-host 127.0.0.1 --prometheus-port {spare} --max-concurrent-requests 20000 --worker-urls {workers}",
}

// routerStarter runs a packaged router. It is ready when a model is answered for: such routers listen before they know
// their workers.
func routerStarter(program, name, arguments string) starter {
	return func(dir string, engines []string) (*target, error) {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		spare, err := freePort()
		if err != nil {
			return nil, err
		}
		argv := []string{program}
		for word := range strings.FieldsSeq(arguments) {
			if word == "{workers}" {
				for _, e := range engines {
					argv = append(argv, "http://"+e)
				}
				continue
			}
			argv = append(argv, strings.NewReplacer("{port}", portOf(address), "{spare}", portOf(spare)).Replace(word))
		}
		p, err := startProcess(dir, name, argv...)
		if err != nil {
			return nil, err
		}
		t := &target{name: name, addresses: []string{address}, process: p}
		return t.settle(func() bool { return answers200("http://"+address+"/health") && answersChat(address) })
	}
}

func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		panic("BUG: an address without a port: " + address)
	}
	return port
}

// answersChat says whether one short request is answered as the fake and the simulated engine answer it.
func answersChat(address string) bool {
	clk, err := newClock()
	if err != nil {
		return false
	}
	c := newClient(clk, address)
	defer c.close()
	_, err = c.post(appendPrompt(nil, conversation{messages: []string{"Hello."}}, 2, false), readyLimit)
	return err == nil
}

// contenders prepares every proxy of the side-by-side, ours first. One that cannot be had is in the list with its reason.
func (b *bench) contenders() []*contender {
	own := firstLine(b.ctx, []string{b.cfg.Binary, "version"})
	out := []*contender{
		{name: b.cfg.Name, version: own, set: "its defaults: log, metrics, leases", ours: true, start: ramjetStarter(b.cfg.Binary, b.cfg.Name, b.cfg.Extra...)},
		{name: Nginx, version: nginxVersion(b.ctx, b.nginx), set: "2 workers, buffering off, 512 connections kept for 4 s", start: nginxStarter(b.nginx, Nginx, b.files)},
		{name: HAProxy, set: "2 threads, no delay, connections reused", start: nil},
		{name: GoProxy, version: "httputil of " + b.records.Meta.Go, set: "flushed at once, connections kept for 4 s", start: reverseProxyStarter(b.self, GoProxy)},
	}
	h := out[2]
	if path, err := EnsureTool("haproxy", b.cfg.Log); err != nil {
		h.reason = err.Error()
	} else {
		h.version, h.start = firstLine(b.ctx, []string{path, "-v"}), haproxyStarter(path, b.files)
	}
	for _, name := range []string{VLLMRouter, SMG} {
		c := &contender{name: name, router: true, set: "cache-aware, log of warnings, limit of concurrent requests raised"}
		program, version, err := EnsurePackage(b.ctx, b.cfg.Python, b.cfg.Tools, name, b.cfg.Log)
		if err != nil {
			c.reason = err.Error()
		} else {
			c.version, c.start = name+" "+version+" (PyPI)", routerStarter(program, name, routerArguments[name])
		}
		out = append(out, c)
	}
	for _, c := range out {
		if c.reason != "" {
			b.say("%s is not measured: %s", c.name, c.reason)
		}
	}
	return out
}

var errNoRouter = errors.New("no router for language models ran: a side-by-side without one says nothing, and the results are not written")

// firstLine runs a program and returns the first line of what it says.
func firstLine(ctx context.Context, argv []string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("unknown version (%v)", err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
