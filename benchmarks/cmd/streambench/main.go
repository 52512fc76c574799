// Command streambench measures what Ramjet costs a token stream, against nginx and against no proxy at all, or with
// -side every subject beside every rival that can be had. It starts its own engines and load generators (itself, in
// other modes), the reference and the candidate, and writes a section of benchmarks/RESULTS.md and the raw records
// beside it. With -goals it runs the product's own Go benchmarks instead and compares them with what was asked for. It
// measures; what the figures mean for a change is left to people.
//
//	go run ./benchmarks/cmd/streambench -binary ./ramjet -out benchmarks/RESULTS.md
//	go run ./benchmarks/cmd/streambench -side -quick -binary ./ramjet -out benchmarks/RESULTS.md
//	go run ./benchmarks/cmd/streambench -goals -out benchmarks/RESULTS.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ramjet/benchmarks"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "streambench:", err)
		}
		os.Exit(1)
	}
}

var errBounds = errors.New("at least one bound is not met")

// child runs what the measurement starts as processes of its own, and reports whether args ask for one.
func child(args []string) (ran bool, err error) {
	if len(args) == 0 {
		return false, nil
	}
	switch args[0] {
	case benchmarks.ModeEngine, benchmarks.ModeLoad, benchmarks.ModeHold:
		return true, benchmarks.Child(args[0], args[1:], os.Stdin, os.Stdout)
	case benchmarks.ModeReverseProxy:
		if len(args) < 3 {
			return true, errors.New("reverseproxy needs the address to listen on and the engines")
		}
		return true, benchmarks.ReverseProxy(args[1], args[2:])
	}
	return false, nil
}

func run(args []string) error {
	if ran, err := child(args); ran {
		return err
	}
	fs := flag.NewFlagSet("streambench", flag.ContinueOnError)
	cfg := benchmarks.Config{Log: os.Stdout}
	fs.StringVar(&cfg.Binary, "binary", "./ramjet", "built ramjet to measure")
	relay := fs.String("relay", "", "relay of ramjet: verbatim or stream (default: ramjet's own)")
	fs.StringVar(&cfg.CandidateCommand, "candidate-cmd", "", "measure this proxy instead of ramjet; {listen} {port} {a} {b} {dir} are filled in")
	candidate := fs.String("candidate", "ramjet", "ramjet, or nginx: a second nginx, which shows the noise of the method")
	fs.BoolVar(&cfg.HAProxy, "haproxy", false, "measure HAProxy as well if it is installed")
	fs.BoolVar(&cfg.Quick, "quick", false, "smoke test in less than two minutes")
	fs.IntVar(&cfg.Rounds, "rounds", 0, "rounds (default 7, with -quick 3, with -goals -quick 5)")
	side := fs.Bool("side", false, "measure every subject beside every rival")
	goals := fs.Bool("goals", false, "run the Go benchmarks of index, tokenizer, sessions and decision, and what a profile-guided build gains")
	fs.StringVar(&cfg.Python, "python", "python3", "with -side: makes the environments of rivals that are Python packages")
	fs.StringVar(&cfg.Tools, "tools", ".tools", "with -side: the folder of those environments")
	skip := fs.String("skip", "", "parts to leave out: streams,syscalls,memory; with -side also prompts,corpora,owner,mixed,route; with -goals index,tokenizer,session,decision,pgo,profiles")
	fs.StringVar(&cfg.Out, "out", "", "Markdown file whose section is replaced; raw records go to results/ beside it")
	fs.Uint64Var(&cfg.Seed, "seed", uint64(time.Now().UnixNano()), "seed of the random order")
	profile := fs.String("profile", "", "measure nothing; write a CPU profile of the loads to this file, for the compiler")
	strict := fs.Bool("strict", false, "exit 1 if a bound is not met")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if *skip != "" {
		cfg.Skip = strings.Split(*skip, ",")
	}
	cfg.Name = "ramjet"
	switch *relay {
	case "":
	case "verbatim", "stream":
		cfg.Extra = []string{"--relay=" + *relay}
		cfg.Name = "ramjet-" + *relay
	default:
		return fmt.Errorf("unknown relay %q: verbatim or stream", *relay)
	}
	switch {
	case *candidate == "nginx":
		cfg.CandidateNginx, cfg.Name = true, "nginx-again"
	case cfg.CandidateCommand != "":
		cfg.Name = filepath.Base(strings.Fields(cfg.CandidateCommand + " candidate")[0])
	case *candidate != "ramjet":
		return fmt.Errorf("unknown candidate %q: ramjet or nginx", *candidate)
	}
	if cfg.Out != "" {
		cfg.Results = filepath.Join(filepath.Dir(cfg.Out), "results")
	}
	cfg.Command = benchmarks.CommandLine("go run ./benchmarks/cmd/streambench", args)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *profile != "" {
		return benchmarks.Profile(ctx, cfg, *profile)
	}
	if *side {
		return benchmarks.Side(ctx, cfg)
	}
	measure := benchmarks.Run
	if *goals {
		measure = benchmarks.Goals
	}
	ok, err := measure(ctx, cfg)
	if err == nil && !ok && *strict {
		return errBounds
	}
	return err
}
