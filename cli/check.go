package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"ramjet/config"
)

// Check validates the configuration and prints the effective settings with
// their sources. use reads what the files hold that it names, as serve does.
// Check returns the exit code: 0 valid, 1 problems found, 2 a command line that
// cannot be read.
func Check(out, errs io.Writer, load func() (*config.Config, error), use func(*config.Config) config.Problems) int {
	cfg, err := load()
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(errs, problems.Error())
		if problems.Usage() {
			return 2
		}
		return 1
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(errs, "warning:", w.String())
	}
	fmt.Fprint(out, cfg.Dump())
	problems = cfg.CheckFiles(readable)
	if len(problems) == 0 {
		problems = use(cfg)
	}
	if len(problems) > 0 {
		fmt.Fprintln(errs, problems.Error())
		return 1
	}
	fmt.Fprintf(out, "valid, digest %s\n", cfg.Digest())
	return 0
}

func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
