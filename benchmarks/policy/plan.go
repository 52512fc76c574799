package policy

import "slices"

// The loads of the acceptance table and of the comparison with other rules: those of the simulations behind the policy.
var (
	conv38   = &scenario{name: "conversation 0.38x", profiles: pair, make: conversation(0.38)}
	conv44   = &scenario{name: "conversation 0.44x", profiles: pair, make: conversation(0.44)}
	syn32    = &scenario{name: "synthetic 0.32x", profiles: pair, make: synthetic(0.32)}
	coding12 = &scenario{name: "coding 12 users", profiles: pair, make: coding(12, 1000)}
	coding24 = &scenario{name: "coding 24 users", profiles: pair, make: coding(24, 1000)}
	coding36 = &scenario{name: "coding 36 users", profiles: pair, make: coding(36, 1000)}
	chatLow  = &scenario{name: "chat 0.2x", profiles: pair, make: chat(0.2), mixed: true}
	chatMid  = &scenario{name: "chat 0.8x", profiles: pair, make: chat(0.8), mixed: true}
	chatHigh = &scenario{name: "chat 1.6x", profiles: pair, make: chat(1.6), mixed: true}
	hot9     = &scenario{name: "documents 9/s", profiles: pair, make: hot(9, false)}
	herd5    = &scenario{name: "herds 5/s", profiles: pair, make: hot(5, true)}
	herd8    = &scenario{name: "herds 8/s", profiles: pair, make: hot(8, true)}
	single8  = &scenario{name: "one prefix 8/s", profiles: pair, make: single(8)}
)

// scenarios are the rows of the comparison.
func scenarios() []*scenario {
	return []*scenario{conv38, conv44, syn32, coding12, coding24, coding36, chatLow, chatMid, chatHigh, hot9, herd5, herd8, single8}
}

// judged is whose figures count: the defaults, but on the rows about the pair of unlike engines `profile: learned`.
func judged(s *scenario) string {
	if s.mixed {
		return nameLearned
	}
	return nameDefault
}

// row is one line of the table: a figure with its bounds.
type row struct {
	what     string
	scenario *scenario
	who      []string
	figure   func(r ...*result) float64
	low      float64 // 0: none
	high     float64 // 0: none
	// info rows are printed and not judged.
	info bool
}

func ttft(r ...*result) float64   { return r[0].meanTTFT() / r[1].meanTTFT() }
func e2e(r ...*result) float64    { return r[0].meanE2E() / r[1].meanE2E() }
func served(r ...*result) float64 { return float64(len(r[0].e2e)) / float64(len(r[1].e2e)) }
func flow(r ...*result) float64   { return r[0].throughput() / r[1].throughput() }
func again(r ...*result) float64  { return r[0].duplicate / max(r[1].duplicate, 1) }

// table is the acceptance table.
func table() []row {
	versus := func(s *scenario, rival string) []string { return []string{judged(s), rival} }
	rows := []row{
		{what: "mean TTFT / round robin", scenario: conv38, who: versus(conv38, "round-robin"), figure: ttft, high: 0.60},
		{what: "mean E2E / round robin", scenario: conv38, who: versus(conv38, "round-robin"), figure: e2e, high: 0.65},
		{what: "mean TTFT / least requests", scenario: conv38, who: versus(conv38, "least-requests"), figure: ttft, high: 0.75},
		{what: "answers a second / strict", scenario: conv38, who: versus(conv38, "strict"), figure: flow, low: 1.6},
		{what: "busiest engine / mean", scenario: conv38, who: []string{nameDefault}, figure: imbalance, high: 1.2},
		{what: "mean TTFT / round robin", scenario: syn32, who: versus(syn32, "round-robin"), figure: ttft, high: 0.30},
		{what: "tokens computed again / round robin", scenario: syn32, who: versus(syn32, "round-robin"), figure: again, high: 0.15},
		{what: "mean TTFT / dynamo", scenario: syn32, who: versus(syn32, "dynamo"), figure: ttft, high: 0.80},
		{what: "answers / round robin", scenario: coding36, who: versus(coding36, "round-robin"), figure: served, low: 2.0},
		{what: "answers / least requests", scenario: coding36, who: versus(coding36, "least-requests"), figure: served, low: 1.4},
		{what: "answers / dynamo", scenario: coding36, who: versus(coding36, "dynamo"), figure: served, low: 1.2},
		{what: "share of prompt tokens hit", scenario: coding36, who: []string{nameDefault}, figure: func(r ...*result) float64 { return r[0].hitRate() }, low: 0.90},
		{what: "mean E2E / least requests", scenario: single8, who: versus(single8, "least-requests"), figure: e2e, high: 1.1},
		{what: "busiest engine / mean", scenario: single8, who: []string{nameDefault}, figure: imbalance, high: 1.1},
		{what: "strict: answers a second / least requests", scenario: single8, who: []string{"strict", "least-requests"}, figure: flow, info: true},
		{what: "most times a new prefix was computed", scenario: herd8, who: []string{nameDefault}, figure: func(r ...*result) float64 { return r[0].prefills }, high: 2},
		{what: "mean TTFT / without single flight", scenario: herd8, who: []string{nameDefault, nameAlone}, figure: ttft, high: 0.9},
		{what: "mean E2E / round robin", scenario: chatLow, who: versus(chatLow, "round-robin"), figure: e2e, high: 0.95},
		{what: "mean E2E / round robin", scenario: chatHigh, who: versus(chatHigh, "round-robin"), figure: e2e, high: 0.75},
		{what: "share on the mtp engine", scenario: chatLow, who: []string{nameLearned}, figure: shareOfFirst, low: 0.8},
		{what: "share on the mtp engine", scenario: chatHigh, who: []string{nameLearned}, figure: shareOfFirst, low: 0.4, high: 0.6},
	}
	for _, s := range []*scenario{conv38, syn32, coding36, single8, herd8, chatLow, chatHigh} {
		rows = append(rows,
			row{what: "mean TTFT / llm-d", scenario: s, who: versus(s, "llm-d 2:1:1"), figure: ttft, high: 1.10},
			row{what: "mean E2E / llm-d", scenario: s, who: versus(s, "llm-d 2:1:1"), figure: e2e, high: 1.05})
	}
	return rows
}

func imbalance(r ...*result) float64    { return r[0].imbalance() }
func shareOfFirst(r ...*result) float64 { return r[0].shareOf(0) }

// nothing are loads where no choice gains anything: against the better of turns and least tokens, seed by seed.
func nothing() []row {
	four := slices.Concat(pair, pair)
	same := []string{profileStandard, profileStandard}
	best := func(value func(*result) float64) func(r ...*result) float64 {
		return func(r ...*result) float64 { return value(r[0]) / min(value(r[1]), value(r[2])) }
	}
	var rows []row
	for _, l := range []struct {
		scenario *scenario
		who      string
		info     bool
	}{
		{&scenario{name: "unique prompts", profiles: pair, make: unique(5, 4000)}, nameDefault, false},
		{&scenario{name: "idle", profiles: same, make: unique(0.2, 800)}, nameDefault, false},
		{&scenario{name: "idle, unlike pair", profiles: pair, make: unique(0.2, 800)}, nameLearned, false},
		// The owner's rule sends long and uncapped answers to plain decoding, which an idle pair would do faster with MTP.
		{&scenario{name: "idle, unlike pair", profiles: pair, make: unique(0.2, 800)}, nameDefault, true},
		{&scenario{name: "one engine", profiles: same[:1], make: unique(2.5, 2000)}, nameDefault, false},
		{&scenario{name: "four engines", profiles: four, make: unique(10, 6000)}, nameDefault, false},
		{&scenario{name: "eight engines", profiles: slices.Concat(four, four), make: unique(20, 8000)}, nameDefault, false},
		{&scenario{name: "equal profiles", profiles: same, make: unique(5, 4000)}, nameDefault, false},
	} {
		who := []string{l.who, nameOwnTurns, nameOwnTokens}
		rows = append(rows,
			row{what: l.who + ": mean TTFT / best baseline", scenario: l.scenario, who: who, figure: best((*result).meanTTFT), high: 1.03, info: l.info},
			row{what: l.who + ": mean E2E / best baseline", scenario: l.scenario, who: who, figure: best((*result).meanE2E), high: 1.03, info: l.info})
	}
	return rows
}
