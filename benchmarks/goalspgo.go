package benchmarks

import (
	"math"
	"strings"
)

// leastGain is the rule for a profile-guided build, in per cent: it has to gain more.
const leastGain = 3.0

// pathBench is a benchmark of a stretch of the way of a request.
type pathBench struct {
	what, pkg, bench string
	procs            int
	vocabulary       bool // it is no measure of anything without a real vocabulary
}

// pathBenches are the way of a request, the relay first.
var pathBenches = []pathBench{
	{what: "a short request through the relay, with its client and engine", pkg: "proxy", bench: "BenchmarkShortAnswer", procs: 2},
	{what: "a stream of 500 events through the relay, likewise", pkg: "proxy", bench: "BenchmarkStream500", procs: 2},
	{what: "reading a request's head", pkg: "wire", bench: "BenchmarkRequestHead", procs: 1},
	{what: "looking through a body of 32 KB", pkg: "wire", bench: "BenchmarkPeek/prose/32KB", procs: 1},
	{what: "ids and keys of a returning session of 10,000 tokens", pkg: "tokens", bench: "BenchmarkSession/prose/10k/returning", procs: 2, vocabulary: true},
	{what: "the decision between 2 engines", pkg: "route", bench: routeBenchmark + "/engines=2", procs: 2},
}

// pathRuns puts those of one package into one process.
func pathRuns(vocabulary bool) (list []goRun) {
	for _, p := range pathBenches {
		if p.vocabulary && !vocabulary {
			continue
		}
		if n := len(list); n > 0 && list[n-1].pkg == p.pkg {
			list[n-1].bench += "|" + alone(p.bench)
			continue
		}
		list = append(list, goRun{pkg: p.pkg, bench: alone(p.bench), procs: p.procs})
	}
	return list
}

// pairs runs everything with and without the profile, one right after the other and in random order.
func (g *goalsBench) pairs() error {
	runs := pathRuns(g.have(vocabularyFile(sessionVocabulary)))
	for round := 1; round <= g.plan.pairs && !g.late(round, g.plan.pairs); round++ {
		g.rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		for _, r := range runs {
			builds := [2]string{pgoOff, pgoFile}
			if g.rng.IntN(2) == 1 {
				builds[0], builds[1] = builds[1], builds[0]
			}
			for _, build := range builds {
				if err := g.visit(r, partPGO, build, round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// gain is what the profile does for one benchmark, or for all.
type gain struct {
	what          string
	bench         string
	without, with Spread // microseconds
	saved         Spread // per cent of the time without, of the pairs of the rounds
	verdict       Verdict
}

// gains are one a benchmark, and the last for all of them: the geometric mean of a round's ratios. Only rounds in which
// every benchmark has its pair are in the last.
func gains(r goalRecords) (list []gain) {
	logs := make(map[int][]float64)
	for _, p := range pathBenches {
		without := byRound(r.of(partPGO, pgoOff, p.pkg, p.bench))
		with := byRound(r.of(partPGO, pgoFile, p.pkg, p.bench))
		var a, b, saved []float64
		for round := 1; round <= r.Meta.Rounds; round++ {
			x, y := without[round], with[round]
			if x <= 0 || y <= 0 {
				continue
			}
			a, b, saved = append(a, x/1e3), append(b, y/1e3), append(saved, 100*(1-y/x))
			logs[round] = append(logs[round], math.Log(y/x))
		}
		if len(saved) > 0 {
			list = append(list, newGain(p.what, p.bench, a, b, saved))
		}
	}
	var all []float64
	for round := 1; round <= r.Meta.Rounds; round++ {
		if len(logs[round]) == len(list) && len(list) > 0 {
			all = append(all, 100*(1-math.Exp(sum(logs[round])/float64(len(list)))))
		}
	}
	if len(list) > 1 {
		list = append(list, newGain("all of them, geometric mean", "", nil, nil, all))
	}
	return list
}

func newGain(what, bench string, without, with, saved []float64) gain {
	rule := goal{bound: leastGain, least: true}
	s := spreadOf(saved)
	return gain{what: what, bench: strings.TrimPrefix(bench, "Benchmark"), without: spreadOf(without), with: spreadOf(with), saved: s, verdict: rule.verdict(s)}
}

// byRound is the time of an operation by round.
func byRound(list []BenchRecord) map[int]float64 {
	out := make(map[int]float64)
	for _, x := range list {
		out[x.Round] = x.Metrics["ns/op"]
	}
	return out
}

func sum(v []float64) (all float64) {
	for _, x := range v {
		all += x
	}
	return all
}
