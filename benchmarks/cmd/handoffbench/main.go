// Command handoffbench measures on real vLLM what handing token ids over is worth, and writes benchmarks/HANDOFF.md. It
// starts the server, Ramjet, and a router that asks /tokenize before every request (itself, in another mode).
//
//	go run ./benchmarks/cmd/handoffbench -binary ./ramjet -out benchmarks/HANDOFF.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"ramjet/benchmarks"
	"ramjet/benchmarks/handoff"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "handoffbench:", err)
		}
		os.Exit(1)
	}
}

var errBounds = errors.New("at least one bound is not met")

func run(args []string) error {
	if len(args) == 3 && args[0] == handoff.ModeAsk {
		return handoff.Ask(args[1], args[2])
	}
	fs := flag.NewFlagSet("handoffbench", flag.ContinueOnError)
	cfg := handoff.Config{Log: os.Stdout}
	fs.StringVar(&cfg.Binary, "binary", "./ramjet", "built ramjet to measure")
	fs.StringVar(&cfg.VLLM, "vllm", ".tools/vllm", "folder that scripts/vllm-install.sh made")
	fs.StringVar(&cfg.Serve, "serve", "scripts/vllm-serve.py", "script that starts a server")
	tokens := fs.String("tokens", "4000,16000,64000,93000", "lengths of the conversation, ascending")
	atOnce := fs.String("at", "1,4", "requests at once")
	fs.IntVar(&cfg.Rounds, "rounds", 5, "visits of each way")
	fs.StringVar(&cfg.Out, "out", "", "Markdown file to write; raw figures go to results/ beside it")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "seed of the conversation and the order")
	strict := fs.Bool("strict", false, "exit 1 if a bound is not met")
	err := fs.Parse(args)
	if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if cfg.Tokens, err = numbers(*tokens); err != nil {
		return err
	}
	if cfg.AtOnce, err = numbers(*atOnce); err != nil {
		return err
	}
	cfg.Command = benchmarks.CommandLine("go run ./benchmarks/cmd/handoffbench", args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := handoff.Run(ctx, cfg)
	if err == nil && !ok && *strict {
		return errBounds
	}
	return err
}

func numbers(list string) (out []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("cannot read %q: whole numbers from 1 on, separated by commas", list)
		}
		out = append(out, n)
	}
	return out, nil
}
