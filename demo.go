package main

import (
	"context"
	"os"

	"ramjet/cli"
	"ramjet/config"
)

// demo runs two simulated engines, this proxy in front of them, and a load.
func demo(ctx context.Context, flags []string, once bool) int {
	return report(untilTold(cli.Demo(ctx, cli.DemoOptions{
		Out: os.Stdout, Flags: flags, Env: os.Environ(), Once: once,
		Serve: func(cfg *config.Config) (*cli.Running, error) {
			a, err := build(cfg, os.Stderr, false)
			if err != nil {
				return nil, err
			}
			if err := a.listen(); err != nil {
				a.close()
				return nil, err
			}
			if err := a.start(""); err != nil {
				a.close()
				return nil, err
			}
			return &cli.Running{Public: a.public[0].Addr().String(), Admin: a.admin.Addr().String(), Stop: a.close}, nil
		},
	})))
}
