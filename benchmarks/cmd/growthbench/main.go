// Command growthbench measures how Ramjet's costs grow with prompts, engines, index, streams and events, and writes
// benchmarks/GROWTH.md with its curves. It starts its own engines and load generators (itself, in other modes).
//
//	go run ./benchmarks/cmd/growthbench -binary ./ramjet -out benchmarks/GROWTH.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"ramjet/benchmarks"
	"ramjet/benchmarks/growth"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "growthbench:", err)
		}
		os.Exit(1)
	}
}

var errBounds = errors.New("at least one bound is not met")

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case benchmarks.ModeEngine, benchmarks.ModeLoad, benchmarks.ModeHold:
			return benchmarks.Child(args[0], args[1:], os.Stdin, os.Stdout)
		}
	}
	fs := flag.NewFlagSet("growthbench", flag.ContinueOnError)
	cfg := growth.Config{Log: os.Stdout}
	fs.StringVar(&cfg.Binary, "binary", "./ramjet", "built ramjet to measure")
	fs.BoolVar(&cfg.Quick, "quick", false, "fewer and smaller sizes, in less than three minutes, and save nothing")
	fs.IntVar(&cfg.Rounds, "rounds", 0, "rounds (default 5, of streams 3; with -quick 3 and 1)")
	only := fs.String("only", "", "measure only prompts,engines,index,streams,events, and save nothing")
	fs.StringVar(&cfg.Out, "out", "", "Markdown file to write; curves go to growth/ and raw figures to results/ beside it")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "seed of prompts, index and order")
	strict := fs.Bool("strict", false, "exit 1 if a bound is not met")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if *only != "" {
		cfg.Only = strings.Split(*only, ",")
	}
	cfg.Command = benchmarks.CommandLine("go run ./benchmarks/cmd/growthbench", args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := growth.Run(ctx, cfg)
	if err == nil && !ok && *strict {
		return errBounds
	}
	return err
}
