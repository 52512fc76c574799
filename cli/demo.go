package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"ramjet/config"
	"ramjet/sim"
)

// DemoOptions configures Demo.
type DemoOptions struct {
	Out   io.Writer
	Flags []string // settings from the command line
	Env   []string
	Once  bool // a fixed load and a table instead of a steady load
	// Serve starts a proxy with a configuration.
	Serve func(*config.Config) (*Running, error)
}

// Running is a proxy that Demo started.
type Running struct {
	Public string // HOST:PORT
	Admin  string
	Stop   func()
}

// demoModel is the name that the demo's engines serve.
const demoModel = "demo"

// onceRequests is the fixed load of --once.
const onceRequests = 200

// Demo runs two simulated engines, a proxy in front of them and a mixed load
// until ctx ends, or once through.
func Demo(ctx context.Context, o DemoOptions) error {
	speed := 1.0
	if o.Once {
		speed = 8
	}
	sims, stopSims, err := startSims(speed)
	if err != nil {
		return err
	}
	defer stopSims()
	cfg, err := demoConfig(o, sims)
	if err != nil {
		return err
	}
	run, err := o.Serve(cfg)
	if err != nil {
		return err
	}
	defer run.Stop()
	load := newLoad("http://"+reachable(run.Public), demoModel)
	if err := load.waitReady(ctx, "http://"+reachable(run.Admin)+"/readyz"); err != nil {
		return err
	}
	greet(o.Out, run)
	if o.Once {
		load.runOnce(ctx, onceRequests)
		load.printTable(o.Out)
		return load.firstError()
	}
	load.runSteady(ctx, o.Out)
	fmt.Fprintln(o.Out, "stopped")
	return nil
}

func greet(out io.Writer, run *Running) {
	fmt.Fprintf(out, `Ramjet is in front of two simulated engines: a (mtp) and b (standard).
  operator   http://%s/
  health     http://%s/health
  try it     curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"%s","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"Tell me about rivers."}]}'

`, reachable(run.Admin), reachable(run.Public), reachable(run.Public), demoModel)
}

// startSims starts the two engines on free ports.
func startSims(speed float64) (urls [2]string, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop = func() { cancel(); wg.Wait() }
	for i, profile := range []string{sim.ProfileMTP, sim.ProfileStandard} {
		s, err := sim.NewServer(sim.ServerOptions{
			Core:  sim.CoreOptions{Profile: profile, Speed: speed, Seed: 1},
			Model: demoModel, Listen: "127.0.0.1:0",
		})
		if err != nil {
			stop()
			return urls, nil, fmt.Errorf("cannot start a simulated engine: %w", err)
		}
		urls[i] = s.URL()
		wg.Go(func() { _ = s.Serve(ctx) })
	}
	return urls, stop, nil
}

// demoConfig is the user's configuration with the two engines in it. Ports
// that are taken are replaced by free ones unless the user chose them.
func demoConfig(o DemoOptions, sims [2]string) (*config.Config, error) {
	args := append([]string{}, o.Flags...)
	args = append(args, "--engine=a="+sims[0]+",profile=mtp,events=off", "--engine=b="+sims[1]+",profile=standard,events=off")
	if !given(o, "--listen", "RAMJET_LISTEN") {
		args = append(args, "--listen="+free("127.0.0.1:8000"))
	}
	if !given(o, "--admin", "RAMJET_ADMIN") {
		args = append(args, "--admin="+free("127.0.0.1:9900"))
	}
	if !given(o, "--log.level", "RAMJET_LOG_LEVEL") {
		args = append(args, "--log.level=warn")
	}
	return config.Load(config.LoadOptions{Args: args, Env: o.Env, KnownVariables: []string{"RAMJET_PORT_FILE"}})
}

func given(o DemoOptions, flag, variable string) bool {
	for _, a := range o.Flags {
		if strings.HasPrefix(a, flag) {
			return true
		}
	}
	for _, v := range o.Env {
		if strings.HasPrefix(v, variable) {
			return true
		}
	}
	return false
}

// free returns address, or one with a free port if that one is taken.
func free(address string) string {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		host, _, _ := net.SplitHostPort(address)
		return net.JoinHostPort(host, "0")
	}
	_ = ln.Close()
	return address
}

// runSteady keeps a mixed load running and prints one line a second.
func (l *load) runSteady(ctx context.Context, out io.Writer) {
	var wg sync.WaitGroup
	for worker := range steadyClients {
		wg.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				l.request(ctx, worker, turn)
			}
		})
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := l.totals()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			now := l.totals()
			fmt.Fprintln(out, now.line(before))
			before = now
		}
	}
	wg.Wait()
}

// steadyClients is how many requests the demo keeps under way.
const steadyClients = 6

// runOnce runs n requests, a few at a time.
func (l *load) runOnce(ctx context.Context, n int) {
	var wg sync.WaitGroup
	jobs := make(chan int)
	for worker := range onceClients {
		wg.Go(func() {
			for i := range jobs {
				l.request(ctx, worker, i)
			}
		})
	}
	for i := range n {
		select {
		case jobs <- i:
		case <-ctx.Done():
		}
	}
	close(jobs)
	wg.Wait()
}

const onceClients = 16
