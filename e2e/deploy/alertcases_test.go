package deploy

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// alertCase is one fault and the alerts that it must raise.
type alertCase struct {
	name  string
	fires []string
	// start brings the fault about and goes on with whatever load it takes until ctx ends.
	start func(ctx context.Context, l *lab) *proxy
}

// lab is what a case works with.
type lab struct {
	testing.TB
	wg      sync.WaitGroup
	watched chan struct{} // closed once Prometheus has scraped everybody
}

// awaitWatched waits until an increase would be seen.
func (l *lab) awaitWatched(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-l.watched:
	}
}

// every calls f again and again until ctx ends, in a goroutine of its own.
func (l *lab) every(ctx context.Context, pause time.Duration, f func(i int)) {
	l.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			f(i)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// chats sends short chats to p, one after the other, each with a text of its own.
func (l *lab) chats(ctx context.Context, p *proxy, pause time.Duration) {
	l.every(ctx, pause, func(i int) { chat(ctx, p, question(i), 3) })
}

func question(i int) string { return fmt.Sprint("question ", i, strings.Repeat(" and so on", 20)) }

// crowd keeps n chats under way, begun one after the other.
func (l *lab) crowd(ctx context.Context, p *proxy, n int, apart time.Duration) {
	for i := range n {
		l.wg.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(i) * apart):
				l.chats(ctx, p, 20*time.Millisecond)
			}
		})
	}
}

// twoEngines are what most cases start from.
func twoEngines(l *lab, flags ...string) (a, b *engine, p *proxy) {
	return pair(l, nil, "", flags...)
}

func pair(l *lab, sim []string, each string, flags ...string) (a, b *engine, p *proxy) {
	a, b = startEngine(l, sim...), startEngine(l, sim...)
	p = startProxy(l, proxyOptions{engines: []*engine{a, b}, each: each, flags: append([]string{"--health.interval=100ms", "--tokens.source=off"}, flags...)})
	p.ready()
	return a, b, p
}

// Settings under which no failure takes an engine out.
const keepAll = "--eject.after=100000"

var alertCases = []alertCase{
	{"nothing wrong", nil, func(ctx context.Context, l *lab) *proxy {
		_, _, p := pair(l, withEvents, "")
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"killed", []string{"RamjetDown"}, func(_ context.Context, l *lab) *proxy {
		_, _, p := twoEngines(l)
		_ = p.cmd.Process.Kill()
		<-p.gone
		return p
	}},
	{"all engines refuse", []string{"RamjetNoEngine", "RamjetErrors", "RamjetEngineOut"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := twoEngines(l)
		a.fault(`"kind":"refuse","seconds":600`)
		b.fault(`"kind":"refuse","seconds":600`)
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"all engines are warming up", []string{"RamjetFailOpen", "RamjetNoEngine"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := twoEngines(l, "--health.stable=1h")
		a.sim("restart", `{"seconds":0.5}`)
		b.sim("restart", `{"seconds":0.5}`)
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"an engine answers 500", []string{"RamjetEngineEjected"}, func(ctx context.Context, l *lab) *proxy {
		a, _, p := twoEngines(l, "--route.policy=round-robin", "--eject.base=2s")
		a.fault(`"kind":"status","status":500,"after_tokens":-1,"count":0`)
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"streams die", []string{"RamjetErrors"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := twoEngines(l, keepAll)
		a.fault(`"kind":"reset","after_tokens":1,"count":0`)
		b.fault(`"kind":"reset","after_tokens":1,"count":0`)
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"an engine resets before it answers", []string{"RamjetRetries"}, func(ctx context.Context, l *lab) *proxy {
		a, _, p := twoEngines(l, "--route.policy=round-robin", keepAll)
		a.fault(`"kind":"reset","after_tokens":-1,"count":0`)
		l.chats(ctx, p, 50*time.Millisecond)
		return p
	}},
	{"a handler panics", []string{"RamjetInternalError"}, func(ctx context.Context, l *lab) *proxy {
		a := startEngine(l)
		p := startProxy(l, proxyOptions{engines: []*engine{a}, tags: "panicpoints", flags: []string{"--tokens.source=off"}})
		p.ready()
		l.every(ctx, time.Second, func(int) { chat(ctx, p, "panic", 3, "X-Ramjet-Panic", "handler") })
		return p
	}},
	{"more than the engines may hold", []string{"RamjetShedding"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := pair(l, nil, ",in_flight=1")
		a.fault(`"kind":"slow-head","seconds":1,"after_tokens":-1,"count":0`)
		b.fault(`"kind":"slow-head","seconds":1,"after_tokens":-1,"count":0`)
		l.crowd(ctx, p, 6, 10*time.Millisecond)
		return p
	}},
	{"a long queue", []string{"RamjetQueueing"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := pair(l, nil, ",in_flight=3", "--limits.queue=100")
		a.fault(`"kind":"stall","seconds":6,"count":0`)
		b.fault(`"kind":"stall","seconds":6,"count":0`)
		l.crowd(ctx, p, 16, 500*time.Millisecond)
		return p
	}},
	{"a limit of time", []string{"RamjetTimeouts"}, func(ctx context.Context, l *lab) *proxy {
		a, b, p := twoEngines(l, "--timeouts.head=100ms", keepAll)
		a.fault(`"kind":"slow-head","seconds":5,"after_tokens":-1,"count":0`)
		b.fault(`"kind":"slow-head","seconds":5,"after_tokens":-1,"count":0`)
		l.crowd(ctx, p, 3, 10*time.Millisecond)
		return p
	}},
	{"long prefill", []string{"RamjetSlowFirstToken"}, func(ctx context.Context, l *lab) *proxy {
		a := startEngine(l) // alone: beside a quick one it would soon get nothing
		p := startProxy(l, proxyOptions{engines: []*engine{a}, flags: []string{"--tokens.source=off"}})
		p.ready()
		a.fault(`"kind":"stall","seconds":11,"count":0`)
		l.crowd(ctx, p, 24, 450*time.Millisecond)
		return p
	}},
	{"an engine comes and goes", []string{"RamjetEngineFlapping"}, func(ctx context.Context, l *lab) *proxy {
		a, _, p := twoEngines(l, "--health.stable=100ms", "--health.successes=1", "--health.slow-start=100ms")
		l.every(ctx, 2200*time.Millisecond, func(int) { a.fault(`"kind":"refuse","seconds":1`) })
		return p
	}},
	{"a drain is forgotten", []string{"RamjetEngineLeftDraining"}, func(ctx context.Context, l *lab) *proxy {
		_, _, p := twoEngines(l)
		if status, body := post("http://"+p.admin+"/api/v1/engines/a/drain", ""); status != 200 {
			l.Errorf("drain: %d %s", status, body)
		}
		l.chats(ctx, p, 100*time.Millisecond)
		return p
	}},
	{"the configuration breaks", []string{"RamjetReloadFailed"}, func(_ context.Context, l *lab) *proxy {
		a := startEngine(l)
		file := filepath.Join(l.TempDir(), "ramjet.yaml")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				l.Error(err)
			}
		}
		write("engines: [{name: a, url: \"" + a.url + "\"}]\n")
		p := startProxy(l, proxyOptions{flags: []string{"--config=" + file}})
		p.ready()
		write("engines: [{name: a, url: \"" + a.url + "\", profil: mtp}]\n")
		if status, body := post("http://"+p.admin+"/-/reload", ""); status < 400 || status > 499 {
			l.Errorf("a reload of a broken file: %d %s", status, body)
		}
		return p
	}},
	{"nobody reads the log", []string{"RamjetLogDropped"}, func(ctx context.Context, l *lab) *proxy {
		reader, writer, err := os.Pipe()
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
		p := startProxy(l, proxyOptions{engines: []*engine{startEngine(l)}, stderr: writer})
		p.ready()
		l.crowd(ctx, p, 1, 0)
		for range 4 {
			l.every(ctx, 5*time.Millisecond, func(int) { _, _ = post("http://"+p.public+"/nowhere/"+strings.Repeat("x", 2000), "{}") })
		}
		return p
	}},
	{"clients that stay", []string{"RamjetDescriptors"}, func(_ context.Context, l *lab) *proxy {
		p := startProxy(l, proxyOptions{engines: []*engine{startEngine(l)}, files: 256, flags: []string{"--timeouts.client-header=10m"}})
		p.ready()
		for range 215 {
			c, err := net.Dial("tcp", p.public)
			if err != nil {
				l.Fatal(err)
			}
			l.Cleanup(func() { _ = c.Close() })
		}
		return p
	}},
}

// modelFolder returns a folder with the simulated model's files.
func modelFolder(l *lab) string {
	l.Helper()
	dir := l.TempDir()
	if out, err := exec.Command(binary(l, ""), "sim", "--write-model="+dir).CombinedOutput(); err != nil {
		l.Fatalf("cannot write the model: %v\n%s", err, out)
	}
	return dir
}
