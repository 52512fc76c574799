package benchmarks

import (
	"fmt"
	"maps"
	"slices"
)

// referenceTokens is the cap of outputs of the reference deployment.
const referenceTokens = 256

// referenceScenario is one answer a stream at the engines' calibrated speed. The starts are a step and a half of the
// engine apart, so that each request meets its steps at another phase: together they would all wait for the same one,
// and its length is more than what is measured.
func referenceScenario(streams int) scenario {
	return scenario{name: referenceName(streams), direct: true, spec: LoadSpec{
		Mode: ModeWhole, Streams: streams, Requests: 1, Warm: 1, Tokens: referenceTokens, ApartMicros: 15_000,
	}}
}

func referenceName(streams int) string { return fmt.Sprintf("reference-c%d", streams) }

// owner measures what the way through a proxy takes from the throughput of engines at reference speed. The engines are
// alike: which of them answers then says nothing about the duration. nginx stands beside it as the yardstick.
func (s *side) owner() error {
	alike := simSpec{profile: "standard", speed: 1, events: true}
	engines, stopEngines, err := s.simulated(alike, alike)
	if err != nil {
		return err
	}
	defer stopEngines()
	model, err := s.simulatedModel()
	if err != nil {
		return err
	}
	exact := *s.all[0]
	exact.start = ramjetStarter(s.cfg.Binary, exact.name, append(slices.Clone(s.cfg.Extra), "--tokens.path="+model)...)
	up, stop, err := s.running([]*contender{&exact, s.all[1]}, engines)
	if err != nil {
		return err
	}
	defer stop()
	for _, streams := range slices.Sorted(maps.Keys(s.plan.ownerPairs)) {
		if err := s.inRounds(up, engines, s.plan.ownerPairs[streams], []scenario{referenceScenario(streams)}); err != nil {
			return err
		}
	}
	return nil
}

// Loss is one line of the owner's table.
type Loss struct {
	Streams int
	Target  string
	Direct  float64 // seconds a request, median over the rounds
	// Added is seconds a request more than directly, and Share that over the direct duration of the same round, in per cent.
	Added, Share Spread
	// Raw is what the tokens a second of a whole run lost, in per cent.
	Raw     Spread
	Bound   float64 // per cent
	Verdict Verdict
	Note    string
}

// lossBounds are the original system's published overheads on the same engine, in per cent.
var lossBounds = map[int]float64{1: 0.03, 16: 0.24}

// losses forms the owner's table, ours first.
func losses(r Records) []Loss {
	var out []Loss
	for _, streams := range slices.Sorted(maps.Keys(lossBounds)) {
		by := inRounds(r, referenceName(streams))
		for _, name := range []string{r.Meta.Candidate, Nginx} {
			l := Loss{Streams: streams, Target: name, Bound: lossBounds[streams]}
			var direct, added, share, raw []float64
			for round, x := range by[name] {
				d, ok := by[Direct][round]
				if !ok || d.Result.MeanNanos == 0 || x.Result.MeanNanos == 0 {
					continue
				}
				base := float64(d.Result.MeanNanos) / 1e9
				more := float64(x.Result.MeanNanos)/1e9 - base
				direct, added, share = append(direct, base), append(added, more), append(share, 100*more/base)
				raw = append(raw, 100*(1-perSecond(x)/perSecond(d)))
			}
			if len(direct) == 0 {
				continue
			}
			l.Direct, l.Added, l.Share, l.Raw = spreadOf(direct).Median, spreadOf(added), spreadOf(share), spreadOf(raw)
			l.Verdict = judge(l.Share, l.Bound)
			if n, note := errorsOf(r, referenceName(streams), name); n > 0 {
				l.Verdict, l.Note = NotMet, note
			} else if n, note := errorsOf(r, referenceName(streams), Direct); n > 0 {
				l.Verdict, l.Note = NotSeparable, note
			}
			out = append(out, l)
		}
	}
	return out
}

// perSecond returns tokens a second of a run, from the first start to the last end.
func perSecond(x RunRecord) float64 { return float64(x.Result.Tokens) / max(x.Result.Seconds, 1e-9) }
