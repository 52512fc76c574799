package benchmarks

import (
	"fmt"
	"strings"
)

// bar is what a figure was asked to reach: by the design, or set from rivals that were measured on another machine of
// this kind (2 vCPUs AMD EPYC under Firecracker, 2026-11-30, fake engines, 2 to 4 rounds). Then is what they did there.
type bar struct {
	most    float64 // in the figure's own unit, or times nginx's
	ofNginx bool
	then    string
}

// barSource stands under the tables.
const barSource = "Bars are inputs, not results: the design's where it is named, else set from the same rivals as measured on 2026-11-30 on another machine with 2 vCPUs (AMD EPYC, Firecracker; nginx 1.22.1, HAProxy 2.6.12, " +
	"vllm-router 0.1.17, smg 1.13.0, sglang-router 0.3.2, helixml/ramjet 0.4.0). Ratios carry over from machine to machine; microseconds do so only roughly."

// bars by scenario and figure.
var bars = map[[2]string][]bar{
	{scenarioC1, figureCPUToken}:              {{1.05, true, "best router then 1.95 x"}},
	{scenarioC16, figureCPUToken}:             {{1.05, true, "best router then 1.95 x"}},
	{scenarioC64, figureCPUToken}:             {{1.05, true, "best router then 1.46 x, by clumping tokens 1.35 x"}},
	{scenarioTTFTReused, figureTTFT50}:        {{150, false, "nginx then 61 us, best router 651 us"}},
	{scenarioC16, figureOneWay50}:             {{40, false, "nginx then 22 us, best router 55 us"}},
	{scenarioC16, figureOneWay99}:             {{100, false, "nginx then 36 us, best router 176 us"}},
	{scenarioShort, figureCPURequest}:         {{30, false, "nginx then 20.7 us, best router 83 us"}},
	{CorpusTurns + "-400KB", figureCPUPrompt}: {{600, false, "nginx then 180 us, best router 984 us"}, {3.5, true, "the design, warm"}},
	{CorpusTurns + "-2MB", figureCPUPrompt}:   {{3000, false, "nginx then 643 us, best router 5,024 us"}, {5, true, "the design, warm"}},
	{CorpusCold + "-400KB", figureCPUPrompt}:  {{1400, false, "with tokenizing; best router then 984 us without"}, {8, true, "the design, with tokenizing; the original then 7.7 x without"}},
	{CorpusCold + "-2MB", figureCPUPrompt}:    {{8000, false, "with tokenizing; best router then 5,024 us without"}, {13, true, "the design, with tokenizing; the original then 14 x without"}},
	{memoryName(9_900), figureMemory}:         {{20, false, "at 9,500 streams nginx then 17 KB, best router 36 KB"}},
}

// barsOf are those of a figure. Bars on prompts count for exact ids alone: who does not tokenize does not do that work.
func barsOf(scenario, figure, own string) []bar {
	if figure == figureCPUPrompt && !strings.HasSuffix(own, exactly) {
		return nil
	}
	return bars[[2]string{scenario, figure}]
}

// routeBars are the most microseconds of a decision by engines: the design's bound, and the later goal.
var routeBars = map[int]struct{ bound, goal float64 }{2: {20, 10}, 40: {100, 50}}

// routePublished are helixml/ramjet's published route times in microseconds by replicas, for a prompt of 1.1 MiB warm on
// every replica.
const routePublished = "helixml/ramjet publishes 7 / 17 / 24 / 72 / 146 / 307 us for 1 / 2 / 4 / 10 / 20 / 40 replicas, for a prompt of 1.1 MiB warm on each"

func (b bar) text(unit string) string {
	if b.ofNginx {
		return fmt.Sprintf("<= %g x nginx (%s)", b.most, b.then)
	}
	return fmt.Sprintf("<= %g %s (%s)", b.most, unit, b.then)
}
