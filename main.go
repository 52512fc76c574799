// Ramjet is a streaming reverse proxy in front of vLLM replicas of one model.
// It decides for every request which replica serves it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"ramjet/cli"
	"ramjet/config"
	"ramjet/sim"
)

// version is set by the linker.
var version = "dev"

// Exit codes (DESIGN section 2.1).
const (
	exitOK      = 0
	exitProblem = 1
	exitUsage   = 2
)

// commands is the command line. Settings of config are not listed here: every
// one of them is a flag of the commands that read the configuration.
type commands struct {
	Serve   serveFlags   `cmd:"" default:"withargs" help:"Run the proxy (the default command)."`
	Sim     simFlags     `cmd:"" help:"Run one simulated vLLM engine."`
	Demo    demoFlags    `cmd:"" help:"Run two simulated engines, the proxy and a steady load; needs no GPU."`
	Check   checkFlags   `cmd:"" help:"Validate the configuration and print the effective settings with their sources."`
	Explain explainFlags `cmd:"" help:"Ask a running Ramjet what it would choose for a request, and why."`
	Top     topFlags     `cmd:"" help:"Show the engines of a running Ramjet, live in the terminal; q ends it."`
	Qualify qualifyFlags `cmd:"" help:"Send requests through a running Ramjet and tell whether exact routing can be believed there."`
	Replay  replayFlags  `cmd:"" help:"Decide a recorded journal again, with other settings, and tell what would have moved."`
	Health  healthFlags  `cmd:"" help:"Ask a running Ramjet whether it serves; for containers."`
	Version struct{}     `cmd:"" help:"Print the version."`
}

type serveFlags struct {
	PortFile string `help:"Write public=HOST:PORT and admin=HOST:PORT to this file once bound." env:"RAMJET_PORT_FILE"`
}

type checkFlags struct {
	Probe bool `help:"Also ask each engine for what Ramjet relies on."`
}

type explainFlags struct {
	File string `arg:"" optional:"" help:"File with a request body, - for standard input."`
	ID   string `name:"id" help:"Instead of a body: the X-Request-Id of a request that was served."`
	Path string `default:"/v1/chat/completions" help:"Path that the body would be sent to."`
	JSON bool   `name:"json" help:"Print the record as JSON."`
}

type demoFlags struct {
	Once bool `help:"Run a fixed load of 200 requests, print a table and exit."`
}

type healthFlags struct {
	Timeout time.Duration `default:"3s" help:"Longest wait for the answer."`
}

type simFlags struct {
	Listen        string        `default:"127.0.0.1:8001" help:"Address of the API."`
	Control       string        `help:"Second address for the /sim/ paths, which stays up while faults close the first."`
	Profile       string        `default:"standard" enum:"mtp,standard" help:"How it decodes: mtp or standard."`
	Events        string        `help:"Endpoint for KV-cache events, tcp://*:PORT."`
	Replay        string        `help:"Endpoint for the replay of events, tcp://*:PORT."`
	Topic         string        `help:"Topic of the events."`
	Hash          string        `default:"int" enum:"int,bytes" help:"Block hashes in events: int or bytes."`
	HashSeed      string        `default:"process" enum:"process,fixed" help:"Seed of block hashes: one for each process, or fixed."`
	EventForm     string        `default:"map" enum:"map,array,array5" help:"Form of events: map, array or array5."`
	EventFrames   int           `default:"4" help:"Frames of a replay answer: 4 or 3."`
	EventBuffer   int           `default:"10000" help:"Batches kept for replay."`
	BlockTokens   int           `default:"16" help:"Tokens per KV block."`
	KVBlocks      int           `name:"kv-blocks" default:"8192" help:"Blocks of KV cache."`
	Hybrid        string        `help:"Cache groups, a letter each, like mmma: m mamba, a attention."`
	OffloadBlocks int           `help:"Blocks of a CPU tier."`
	Lookahead     int           `help:"Tokens behind a block that its hash covers too."`
	MaxModelLen   int           `default:"0" help:"Longest context in tokens; 0 = as the model says."`
	Speed         float64       `default:"1" help:"Times the calibrated speed."`
	Seed          uint64        `default:"1" help:"Seed of text and acceptance."`
	Model         string        `help:"Served model names, separated by commas."`
	Lora          string        `help:"Names of adapters, separated by commas."`
	Handoff       string        `default:"both" enum:"both,params,field,ignore,refuse,connector" help:"Handed-over token ids: both forms are read, params, field, ignore, refuse, or a KV connector takes them."`
	HideCached    bool          `help:"Report no cached tokens in usage."`
	DropReasoning bool          `help:"Leave out reasoning before the last user message, as some templates do."`
	DevMode       bool          `help:"Serve POST /reset_prefix_cache."`
	APIKey        string        `name:"api-key" help:"Key that clients must send."`
	StartDelay    time.Duration `help:"Refuse connections for so long, as while a model loads."`
	Drain         time.Duration `help:"Let requests run on for so long at SIGTERM; 0 = abort them at once."`
	WriteModel    string        `placeholder:"DIR" help:"Write tokenizer, template and configuration of the model into DIR and exit."`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	flags, rest := split(args)
	var c commands
	parser := kong.Must(&c, kong.Name("ramjet"), kong.UsageOnError(), kong.Exit(func(int) {}),
		kong.Description("A streaming reverse proxy in front of vLLM replicas."), kong.Help(help))
	if wantsHelp(rest) {
		_, _ = parser.Parse(rest)
		return exitOK
	}
	k, err := parser.Parse(rest)
	if err != nil {
		return usage(rest, err)
	}
	load := func() (*config.Config, error) {
		return config.Load(config.LoadOptions{Args: flags, Env: os.Environ(), KnownVariables: []string{"RAMJET_PORT_FILE"}})
	}
	command := strings.Fields(k.Command())[0]
	if command == "serve" {
		return serve(load, c.Serve.PortFile) // which takes the signals itself
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch command {
	case "sim":
		return report(untilTold(sim.Run(ctx, sim.Flags(c.Sim), os.Stdout)))
	case "demo":
		return demo(ctx, flags, c.Demo.Once)
	case "check":
		return check(ctx, load, c.Check.Probe)
	case "explain":
		return explain(ctx, flags, &c.Explain)
	case "top":
		return top(ctx, flags, &c.Top)
	case "qualify":
		return qualify(ctx, flags, &c.Qualify)
	case "replay":
		return replay(flags, &c.Replay)
	case "health":
		return report(cli.Health(ctx, os.Stdout, flags, os.Environ(), c.Health.Timeout))
	case "version":
		fmt.Printf("ramjet %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	}
	return exitOK
}

// split takes the settings out of the arguments. The simulator has none, and
// flags of the same names.
func split(args []string) (flags, rest []string) {
	if isSim(args) {
		return nil, args
	}
	return config.ParseArgs(args)
}

func isSim(args []string) bool {
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	return i >= 0 && args[i] == "sim"
}

func wantsHelp(args []string) bool {
	for _, a := range args {
		if a == "--help" || a == "-h" {
			return true
		}
	}
	return false
}

// help prints the command's help and, where it reads the configuration, every
// setting with its default.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return fmt.Errorf("cannot print help: %w", err)
	}
	if n := ctx.Selected(); n == nil || n.Name != "sim" && n.Name != "version" {
		fmt.Fprintf(ctx.Stdout, "\nSettings (each also a key of the file and a variable):\n%s", config.HelpText())
	}
	return nil
}

// usage explains a command line that cannot be read, naming the nearest flag.
// Flags of the simulator are known to the parser alone.
func usage(rest []string, err error) int {
	if isSim(rest) {
		rest = nil
	}
	if problems := config.UnknownFlags(rest, "port-file", "once", "set", "json", "requests", "url", "model", "from", "timeout", "interval", "probe", "id", "path", "help"); len(problems) > 0 {
		fmt.Fprintln(os.Stderr, problems.Error())
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "ramjet:", err)
	return exitUsage
}

// untilTold forgives the end that a signal makes of what runs until one comes.
func untilTold(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// report prints an error and returns its exit code.
func report(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "ramjet:", err)
	var problems config.Problems
	if errors.As(err, &problems) && problems.Usage() {
		return exitUsage
	}
	return exitProblem
}
