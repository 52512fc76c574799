package benchmarks

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mixedCell is one load on a pair of engines.
type mixedCell struct {
	each  int // streams for each of the two
	limit int // tokens of an output
	// published is what the engine that predicts three tokens gains over plain decoding at that load, in per cent. The
	// simulated engines are calibrated to it: it is an input.
	published float64
}

// mixedCells are the published ones; at 512 tokens it was 1,759.2 against 1,844.1 tokens a second.
var mixedCells = []mixedCell{{1, 256, 79.1}, {8, 256, 35.0}, {16, 256, 27.0}, {32, 256, 7.5}, {32, 512, -4.6}}

func (c mixedCell) name() string { return fmt.Sprintf("pair-c%d-%d", 2*c.each, c.limit) }

func (c mixedCell) scenario(requests int) scenario {
	return scenario{name: c.name(), spec: LoadSpec{
		Mode: ModeWhole, Streams: 2 * c.each, Requests: requests, Warm: 1, Tokens: c.limit, ApartMicros: 5_000,
	}}
}

// KV caches of the reference deployment: 784 tokens a block for plain decoding, 800 with the predictor. The numbers of
// blocks make the published difference, a mixed pair's 6.9 % more than two engines with the predictor have.
const (
	plainBlock, plainBlocks = 784, 1913
	mtpBlock, mtpBlocks     = 800, 1647
	publishedCapacity       = 6.9 // per cent
)

// Profiles of the engines, and the names of the pairs that are asked without a proxy.
const (
	profileMTP   = "mtp"
	profilePlain = "standard"
	twoPlain     = "two standard"
	twoMTP       = "two mtp"
	inTurns      = "mixed, in turns"
)

// The two rules about profiles stand behind our name.
const (
	mixedRule    = "-rule"
	mixedLearned = "-learned"
)

// mixed compares pairs of engines at reference speed: two of a kind and one of each taken in turns, all without a proxy,
// and the mixed pair through Ramjet with either rule about profiles.
func (s *side) mixed() error {
	plain := simSpec{profile: profilePlain, speed: 1, events: true, block: plainBlock, blocks: plainBlocks}
	mtp := simSpec{profile: profileMTP, speed: 1, events: true, block: mtpBlock, blocks: mtpBlocks}
	engines, stopEngines, err := s.simulated(mtp, plain, mtp, plain)
	if err != nil {
		return err
	}
	defer stopEngines()
	keys := []string{",profile=" + profileMTP, ",profile=" + profilePlain}
	var ours []*contender
	for _, rule := range []string{mixedRule, mixedLearned} {
		c := *s.all[0]
		c.name += rule
		c.start = ramjetBefore(keys, s.cfg.Binary, c.name, append(slices.Clone(s.cfg.Extra), "--route.profile="+rule[1:])...)
		ours = append(ours, &c)
	}
	up, stop, err := s.running(ours, engines[:2])
	if err != nil {
		return err
	}
	defer stop()
	for name, pair := range map[string][]string{twoPlain: {engines[1], engines[3]}, twoMTP: {engines[0], engines[2]}, inTurns: {engines[0], engines[1]}} {
		up = append(up, &contender{name: name, target: &target{name: name, addresses: pair}})
	}
	requests := 2
	if s.cfg.Quick {
		requests = 1
	}
	var scenarios []scenario
	for _, c := range s.plan.mixed {
		scenarios = append(scenarios, c.scenario(requests))
	}
	if err := s.inRounds(up, nil, s.plan.mixedRounds, scenarios); err != nil {
		return err
	}
	return s.capacities(ours[0].target)
}

// capacities reads what Ramjet has learnt about the caches: an engine tells its number of blocks, its events the length
// of one. Prompts that fill a block on both engines come first, for short ones make no event.
func (s *side) capacities(t *target) error {
	long := PromptSpec{Corpus: CorpusCold, Bytes: 8_000}
	if _, err := s.load(LoadSpec{Mode: ModePrompt, Targets: t.addresses, Streams: 8, Requests: 1, Prompts: &long}); err != nil {
		return err
	}
	var topology struct {
		Engines []CapacityRecord `json:"engines"`
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := getJSON(s.ctx, "http://"+t.admin+"/api/v1/topology", &topology); err != nil {
			return err
		}
		unknown := slices.ContainsFunc(topology.Engines, func(c CapacityRecord) bool { return c.BlockTokens == 0 })
		if !unknown || time.Now().After(end) {
			break
		}
	}
	for _, e := range topology.Engines {
		e.Kind = "capacity"
		s.records.Capacities = append(s.records.Capacities, e)
	}
	return nil
}

// mixedTable shows tokens a second of every pair, and what the caches hold.
func mixedTable(r Records) string {
	own := r.Meta.Candidate
	systems := []string{twoPlain, twoMTP, inTurns, own + mixedRule, own + mixedLearned}
	m := measureOf{unit: "tok/s", value: perSecond, more: true}
	var rows []string
	for _, c := range mixedCells {
		by := inRounds(r, c.name())
		base := m.values(by, twoPlain)
		if len(base) == 0 {
			continue
		}
		row := []string{fmt.Sprintf("%d, %d", 2*c.each, c.limit), fmt.Sprintf("%.0f", spreadOf(inOrder(base)).Median)}
		for _, name := range systems[1:] {
			text := m.beside(m.values(by, name), base)
			if n, _ := errorsOf(r, c.name(), name); n > 0 {
				text += fmt.Sprintf(" (%d of its requests failed)", n)
			}
			row = append(row, text)
		}
		rows = append(rows, "| "+strings.Join(append(row, fmt.Sprintf("%+.1f %%", c.published)), " | ")+" |\n")
	}
	if len(rows) == 0 {
		return ""
	}
	var w strings.Builder
	_, _ = fmt.Fprintf(&w, "\n### Pairs of engines at reference speed\n\nTokens a second in all, and over two standard engines in the same round (least .. greatest); a run ends with its last stream. Two of a kind and the mixed pair in turns are asked directly; "+
		"%s routes by what each engine has to do. The last column is what published measurements say of one mtp engine against one standard engine: an input of the simulator.\n\n"+
		"| streams, cap | %s | published |\n%s|\n%s", own, strings.Join(systems, " | "), strings.Repeat("| --- ", len(systems)+2), strings.Join(rows, ""))
	_, _ = w.WriteString(capacityLines(r))
	return w.String()
}

// beside shows a median with the paired ratio to base.
func (m measureOf) beside(values, base map[int]float64) string {
	if len(values) == 0 {
		return string(NotMeasured)
	}
	s := spreadOf(ratios(values, base))
	return fmt.Sprintf("%.0f: %.3f x (%.3f .. %.3f)", spreadOf(inOrder(values)).Median, s.Median, s.Min, s.Max)
}

func capacityLines(r Records) string {
	if len(r.Capacities) == 0 {
		return ""
	}
	var w strings.Builder
	sum, predicting := 0, 0
	for _, c := range r.Capacities {
		_, _ = fmt.Fprintf(&w, "\nKV cache of %s (%s) as learnt: %d blocks x %d tokens = %d tokens.", c.Engine, c.Profile, c.Blocks, c.BlockTokens, c.Tokens)
		sum += c.Tokens
		if c.Profile == profileMTP {
			predicting = c.Tokens
		}
	}
	if predicting > 0 {
		_, _ = fmt.Fprintf(&w, " Together %+.1f %% of two mtp engines; the published %+.1f %% is an input of the simulator.", 100*(float64(sum)/float64(2*predicting)-1), publishedCapacity)
	}
	return w.String() + "\n"
}
