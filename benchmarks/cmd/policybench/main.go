// Command policybench plays request traces against model engines in virtual time, placed by the objects that serve
// builds and by other routers' rules, and compares them.
//
//	go run ./benchmarks/cmd/policybench -traces ../shared/traces -out benchmarks/POLICY.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"ramjet/benchmarks"
	"ramjet/benchmarks/lab"
	"ramjet/benchmarks/policy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "policybench:", err)
		}
		os.Exit(1)
	}
}

var errBounds = errors.New("at least one bound is not met")

func run(args []string) error {
	fs := flag.NewFlagSet("policybench", flag.ContinueOnError)
	cfg := policy.Config{Log: io.Discard}
	fs.StringVar(&cfg.Traces, "traces", "../shared/traces", "folder of the traces")
	fs.IntVar(&cfg.Seeds, "seeds", 3, "runs of each line; the median counts")
	fs.IntVar(&cfg.First, "first", 1, "the first seed")
	fs.BoolVar(&cfg.Short, "quick", false, "smoke test: one seed, shortened traces")
	out := fs.String("out", "", "file for the report, beside standard output; not with -quick, or fewer than three seeds")
	strict := fs.Bool("strict", false, "exit 1 if a bound is not met")
	verbose := fs.Bool("v", false, "tell of each run on standard error")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if cfg.Short {
		cfg.Seeds = 1
	}
	if *verbose {
		cfg.Log = os.Stderr
	}
	// One run is one goroutine and its feeds; a second processor would only hand them to and fro.
	runtime.GOMAXPROCS(1)
	cfg.Command = benchmarks.CommandLine("go run ./benchmarks/cmd/policybench", args)
	m := lab.Describe(context.Background(), "")
	var text strings.Builder
	cfg.Out = io.MultiWriter(os.Stdout, &text)
	ok, err := policy.Run(cfg)
	if err != nil {
		return err
	}
	if *out != "" && cfg.Judged() {
		m.Finish()
		head := "# The decision, on traces\n\nWritten by the command below. What is real in it and what is modelled: package benchmarks/policy.\n\n" +
			"| | |\n| --- | --- |\n" + m.Rows() + "\n"
		if err := lab.Save(*out, head+text.String()); err != nil {
			return err
		}
	}
	if !ok && *strict {
		return errBounds
	}
	return nil
}
