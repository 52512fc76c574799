package benchmarks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// functionsShown of a profile; what takes less than the eighth explains nothing.
const functionsShown = "8"

// missed is a goal that the median does not reach.
type missed struct {
	subject goalSubject
	goal    goal
	run     goRun
}

// missedGoals are those of benchmarks: a test has nothing to profile.
func missedGoals(r goalRecords, subjects []goalSubject) (list []missed) {
	for _, s := range subjects {
		for _, x := range s.goals {
			run, ok := s.runOf(x)
			if ok && run.test == "" && x.short(r.figure(s, x)) > 1 {
				list = append(list, missed{subject: s, goal: x, run: run})
			}
		}
	}
	return list
}

// worstFirst has the one of each subject that misses by most in front of the second of each, and so on.
func worstFirst(r goalRecords, list []missed) []missed {
	short := func(m missed) float64 { return m.goal.short(r.figure(m.subject, m.goal)) }
	place := make(map[string]int, len(list))
	for _, m := range list {
		for _, other := range list {
			if other.subject.name == m.subject.name && short(other) > short(m) {
				place[m.goal.bench]++
			}
		}
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b missed) int { return place[a.goal.bench] - place[b.goal.bench] })
	return out
}

// profiles runs the benchmark of every missed goal once more and notes where its time goes, beginning with the worst of
// every table: time may not last for all.
func (g *goalsBench) profiles() error {
	list := worstFirst(g.records, missedGoals(g.records, g.subjects))
	for i, m := range list {
		if g.late(i+1, len(list)) {
			return nil
		}
		rec, err := g.profile(m)
		if g.ctx.Err() != nil {
			return g.ctx.Err()
		}
		if err != nil {
			rec.Error = err.Error()
		}
		g.records.Profiles = append(g.records.Profiles, rec)
	}
	return nil
}

func (g *goalsBench) profile(m missed) (ProfileRecord, error) {
	rec := ProfileRecord{Kind: "profile", Package: m.run.pkg, Bench: m.goal.bench}
	file := filepath.Join(g.dir, "cpu")
	defer func() { _ = os.Remove(file) }()
	run := m.run
	run.bench = alone(m.goal.bench)
	if _, err := g.run(run, pgoFile, g.plan.profiled.String(), "-test.cpuprofile="+file); err != nil {
		return rec, err
	}
	path, err := g.binary(run.pkg, pgoFile)
	if err != nil {
		return rec, err
	}
	args := []string{"tool", "pprof", "-top", "-nodecount=" + functionsShown, "-relative_percentages"}
	if m.subject.focus != "" {
		args = append(args, "-focus="+m.subject.focus)
	}
	if m.subject.ignore != "" {
		args = append(args, "-ignore="+m.subject.ignore)
	}
	cmd := exec.CommandContext(g.ctx, "go", append(args, path, file)...)
	cmd.Dir = g.root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = exit.Stderr
		}
		return rec, fmt.Errorf("cannot read a profile: %w: %.300s", err, strings.TrimSpace(string(out)))
	}
	if rec.Total, rec.Functions = parseTop(string(out)); len(rec.Functions) == 0 {
		return rec, errors.New("cannot read a profile: it has no samples")
	}
	return rec, nil
}
