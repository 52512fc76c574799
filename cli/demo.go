package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

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

const (
	// onceRequests is the fixed load of --once.
	onceRequests = 200
	// onceSpeed makes it take some seconds, and leaves the engines' times long
	// enough to be compared.
	onceSpeed = 2
)

// Demo runs two simulated engines that publish their cache's events, a proxy
// in front of them that makes their token ids, and a load of conversations
// until ctx ends, or once through. The model's files are written to a folder
// that is gone afterwards.
func Demo(ctx context.Context, o DemoOptions) (err error) {
	speed := 1.0
	if o.Once {
		speed = onceSpeed
	}
	folder, err := os.MkdirTemp("", "ramjet-demo-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the model: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := sim.WriteModel(folder); err != nil {
		return err
	}
	sims, stopSims, err := startSims(speed)
	if err != nil {
		return err
	}
	defer stopSims()
	cfg, err := demoConfig(o, sims, folder)
	if err != nil {
		return err
	}
	run, err := o.Serve(cfg)
	if err != nil {
		return err
	}
	defer run.Stop()
	load := newLoad("http://"+reachable(run.Public), "http://"+reachable(run.Admin), demoModel)
	defer load.client.CloseIdleConnections()
	if err := load.waitReady(ctx, cfg.Handoff.Mode == "auto"); err != nil {
		return err
	}
	greet(o.Out, run, sims)
	if o.Once {
		load.runOnce(ctx, onceRequests)
		load.printTable(o.Out)
		return load.firstError()
	}
	load.runSteady(ctx, o.Out)
	fmt.Fprintln(o.Out, "stopped")
	return nil
}

// killFor is how long an engine is gone that is killed as the greeting shows: long enough to be seen.
const killFor = 10 // seconds

func greet(out io.Writer, run *Running, engines []demoEngine) {
	fmt.Fprintf(out, `Ramjet is in front of two simulated engines: a (mtp) and b (standard).
  page       http://%s/
  health     http://%s/health
  try it     curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"%s","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"Tell me about rivers."}]}'
  kill b     curl -X POST %s/sim/fault -d '{"kind":"die","now":true,"seconds":%d}'   # for %d s: watch it on the page

The load is conversations about long texts. Every second question carries kv_transfer_params of its own, which Ramjet
leaves alone: there the engine tokenizes the whole text again, and elsewhere it is handed the token ids.
  match        share of the prompts' tokens that were cached where they were sent
  exact        share of the decisions that went by the engines' own events
  handed over  requests whose token ids went along
  first token  of long prompts that came back, lower quartile: with ids / without

`, reachable(run.Admin), reachable(run.Public), reachable(run.Public), demoModel, engines[1].control, killFor, killFor)
}

// demoEngine is one of the two engines.
type demoEngine struct{ url, control, profile, events, replay string }

// demoGPU is the index of the first engine's simulated GPU: beyond those of a real machine, so that what nvidia-smi shows
// of one is not taken for an engine's.
const demoGPU = 100

// startSims starts the two engines on free ports.
func startSims(speed float64) (engines []demoEngine, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop = func() { cancel(); wg.Wait() }
	for _, profile := range []string{sim.ProfileMTP, sim.ProfileStandard} {
		s, err := sim.NewServer(sim.ServerOptions{
			Core:  sim.CoreOptions{Profile: profile, Speed: speed, Seed: 1},
			Model: demoModel, Listen: "127.0.0.1:0", Control: "127.0.0.1:0",
			Events: sim.EventOptions{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"},
		})
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("cannot start a simulated engine: %w", err)
		}
		events, replay := s.EventsAddr()
		engines = append(engines, demoEngine{s.URL(), "http://" + s.ControlAddr(), profile, endpointOf(events), endpointOf(replay)})
		wg.Go(func() { _ = s.Serve(ctx) })
	}
	return engines, stop, nil
}

// endpointOf turns an address that was bound into an endpoint to connect to.
func endpointOf(bound string) string {
	return "tcp://" + strings.TrimPrefix(bound, "tcp://")
}

// demoConfig is the user's configuration with the two engines and their
// model's files in it. Ports that are taken are replaced by free ones unless
// the user chose them.
func demoConfig(o DemoOptions, engines []demoEngine, folder string) (*config.Config, error) {
	args := append([]string{}, o.Flags...)
	var gpus []string
	for i, e := range engines {
		args = append(args, fmt.Sprintf("--engine=%c=%s,profile=%s,events=%s,replay=%s,gpus=%d", 'a'+i, e.url, e.profile, e.events, e.replay, demoGPU+i))
		gpus = append(gpus, fmt.Sprintf("%s/sim/dcgm/%d", e.control, demoGPU+i))
	}
	for _, d := range []struct{ flag, variable, setting string }{
		{"--listen", "RAMJET_LISTEN", "--listen=" + free("127.0.0.1:8000")},
		{"--admin", "RAMJET_ADMIN", "--admin=" + free("127.0.0.1:9900")},
		{"--log.level", "RAMJET_LOG_LEVEL", "--log.level=warn"},
		{"--handoff.mode", "RAMJET_HANDOFF_MODE", "--handoff.mode=auto"},
		{"--gpu.", "RAMJET_GPU_", "--gpu.dcgm=" + strings.Join(gpus, ",")},
	} {
		if !given(o, d.flag, d.variable) {
			args = append(args, d.setting)
		}
	}
	if !given(o, "--tokens.source", "RAMJET_TOKENS_SOURCE") && !given(o, "--tokens.path", "RAMJET_TOKENS_PATH") && !given(o, "--tokenizer", "RAMJET_TOKENIZER") {
		args = append(args, "--tokenizer="+folder)
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
