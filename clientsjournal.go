package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"ramjet/cli"
	"ramjet/config"
	"ramjet/journal"
	"ramjet/proxy"
)

// keepJournal lets the proxy record its decisions, where the configuration
// names a folder for them.
func (a *app) keepJournal(o *proxy.Options) (err error) {
	if a.cfg.Journal.Path == "" {
		return nil
	}
	a.journal, err = journal.Open(journal.Options{
		Dir: a.cfg.Journal.Path, MaxBytes: a.cfg.Journal.MaxBytes, Files: a.cfg.Journal.Files,
		Trouble: func(lost uint64, err error) {
			reason := "they came faster than they could be written"
			if err != nil {
				reason = err.Error()
			}
			a.log.Warn("records of decisions are lost", "records", lost, "reason", reason)
		},
	})
	if err != nil {
		return err
	}
	o.Journal = a.journal
	return nil
}

type replayFlags struct {
	Journal string   `arg:"" help:"Folder or file of a decision journal (journal.path)."`
	Set     []string `placeholder:"KEY=VALUE" sep:"none" help:"Decide with another setting, like route.delay_weight=0.1; --route.delay-weight=0.1 does the same. Repeatable."`
	JSON    bool     `name:"json" help:"Print the outcome as JSON, with every request that would move."`
}

// replay decides a journal again with the settings that the command line names,
// and else with those that were recorded.
func replay(flags []string, f *replayFlags) int {
	changes, change, err := replaySettings(flags, f.Set)
	if err != nil {
		return report(err)
	}
	return report(cli.Replay(cli.ReplayOptions{Path: f.Journal, Changes: changes, Change: change, JSON: f.JSON, Out: os.Stdout}))
}

// replaySettings reads what is to be changed. Nothing else of the configuration
// counts: the rest is as it was recorded.
func replaySettings(flags, set []string) (changes []string, change func(*journal.Settings), err error) {
	args := append([]string{}, flags...)
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, nil, config.Problems{{Message: "--set " + s + " is not of the form KEY=VALUE", Usage: true}}
		}
		args = append(args, "--"+strings.ReplaceAll(key, "_", "-")+"="+value)
	}
	cfg, err := config.Load(config.LoadOptions{Args: args, AllowNoEngines: true})
	if err != nil {
		return nil, nil, err
	}
	with, err := routeSettings(cfg)
	if err != nil {
		return nil, nil, err
	}
	apply := map[string]func(*journal.Settings){
		"route.policy":            func(s *journal.Settings) { s.Policy = with.Policy },
		"route.profile":           func(s *journal.Settings) { s.Profile = with.Profile },
		"route.profile_threshold": func(s *journal.Settings) { s.Threshold = with.Threshold },
		"route.exact":             func(s *journal.Settings) { s.Exact, s.Percent = with.Exact, with.Percent },
		"route.tie":               func(s *journal.Settings) { s.Tie = with.Tie },
		"route.delay_weight":      func(s *journal.Settings) { s.DelayWeight = with.DelayWeight },
	}
	var given []func(*journal.Settings)
	for _, e := range cfg.Entries() {
		if e.Source == "default" {
			continue
		}
		f := apply[e.Key]
		if f == nil {
			return nil, nil, config.Problems{{
				Message: fmt.Sprintf("%s cannot be replayed: decisions are made again by route.policy, profile, profile_threshold, exact, tie and delay_weight", e.Key), Usage: true,
			}}
		}
		given = append(given, f)
		changes = append(changes, fmt.Sprintf("%s=%v", e.Key, e.Value))
	}
	if cfg.File() != "" {
		return nil, nil, config.Problems{{Message: "replay reads no configuration file: it goes by what was recorded; name what is to change with --set", Usage: true}}
	}
	return changes, func(s *journal.Settings) {
		for _, f := range given {
			f(s)
		}
	}, nil
}

type qualifyFlags struct {
	Requests int           `default:"100" help:"How many requests are counted."`
	URL      string        `name:"url" help:"Ramjet's public port; else as the configuration says."`
	Model    string        `help:"Model to ask for; else the first that is served."`
	From     string        `placeholder:"FILE.jsonl" help:"Send these bodies, one a line, instead of sessions of its own."`
	Timeout  time.Duration `default:"2m" help:"Longest wait for one answer."`
	JSON     bool          `name:"json" help:"Print the outcome as JSON."`
}

// qualify asks whether exact routing can be believed here.
func qualify(ctx context.Context, flags []string, f *qualifyFlags) int {
	return report(cli.Qualify(ctx, flags, os.Environ(), cli.QualifyOptions{
		Requests: f.Requests, URL: f.URL, Model: f.Model, From: f.From, Timeout: f.Timeout, JSON: f.JSON, Out: os.Stdout,
	}))
}
