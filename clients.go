package main

import (
	"context"
	"errors"
	"os"
	"time"

	"ramjet/cli"
	"ramjet/config"
)

// check validates the configuration and, if wanted, asks the engines.
func check(ctx context.Context, load func() (*config.Config, error), probe bool) int {
	code := cli.Check(os.Stdout, os.Stderr, load, usable)
	if code != exitOK || !probe {
		return code
	}
	cfg, err := load()
	if err != nil {
		return report(err)
	}
	if !probeEngines(ctx, cfg, os.Stdout) || ctx.Err() != nil {
		return exitProblem
	}
	return exitOK
}

var errNothingToExplain = errors.New("give a file with a request body, or --id with a request's X-Request-Id")

// explain asks a running Ramjet about a request.
func explain(ctx context.Context, flags []string, f *explainFlags) int {
	if (f.File == "") == (f.ID == "") {
		return usage(nil, errNothingToExplain)
	}
	return report(cli.Explain(ctx, flags, os.Environ(), cli.ExplainOptions{
		File: f.File, ID: f.ID, Path: f.Path, JSON: f.JSON, In: os.Stdin, Out: os.Stdout,
	}))
}

type topFlags struct {
	Once     bool          `help:"Print one picture and exit; for scripts."`
	Interval time.Duration `default:"1s" help:"Time between two looks."`
}

// top shows a running Ramjet until it is told to stop.
func top(ctx context.Context, flags []string, f *topFlags) int {
	err := cli.Top(ctx, flags, os.Environ(), cli.TopOptions{Once: f.Once, Interval: f.Interval, In: os.Stdin, Out: os.Stdout})
	if !f.Once {
		err = untilTold(err)
	}
	return report(err)
}
