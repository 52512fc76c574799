package benchmarks

import (
	"fmt"
	"time"
)

// Parts of the side-by-side that Config.Skip may name; token streams have the first two and those below, too.
const (
	partStreams = "streams"
	partMemory  = "memory"
	partPrompts = "prompts"
	partCorpora = "corpora"
	partOwner   = "owner"
	partMixed   = "mixed"
	partRoute   = "route"

	partSyscalls = "syscalls"
	partIdle     = "idle"
)

// promptCell is one prompt subject: a corpus at a length.
type promptCell struct {
	corpus string
	bytes  int
	spec   LoadSpec
}

func (c promptCell) scenario() string { return fmt.Sprintf("%s-%s", c.corpus, sizeName(c.bytes)) }

// sizeName is 200B, 10KB, 1MB: thousands, as the lengths of the plan are.
func sizeName(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dMB", n/1_000_000)
	case n >= 1000:
		return fmt.Sprintf("%dKB", n/1000)
	}
	return fmt.Sprintf("%dB", n)
}

// newCell sends four prompts at once, or two of the longest: enough of them that a proxy's own checks do not show, few
// enough that engines which tokenize each of them keep up.
func newCell(corpus string, bytes int, share float64) promptCell {
	streams, requests := 4, 100.0
	switch {
	case bytes >= 1_000_000:
		streams, requests = 2, 4
	case bytes >= 200_000:
		requests = 8
	case bytes >= 50_000:
		requests = 20
	case bytes >= 5_000:
		requests = 60
	}
	return promptCell{corpus: corpus, bytes: bytes, spec: LoadSpec{Mode: ModePrompt, Streams: streams, Requests: max(2, int(requests*share))}}
}

// sidePlan is everything that one side-by-side measures.
type sidePlan struct {
	rounds  int
	streams []scenario
	prompts []promptCell
	corpora []promptCell
	// corporaRounds may be fewer: the grid is the longest part.
	corporaRounds   int
	memorySteps     []int
	memoryRounds    int
	memoryPerSecond int
	memorySettle    time.Duration
	ownerPairs      map[int]int // rounds by number of streams
	mixed           []mixedCell
	mixedRounds     int
	routeRounds     int
	// due is how long after the beginning a part may begin a round; without an entry it makes all of them.
	due map[string]time.Duration
}

// Prompt lengths of the two prompt subjects, in bytes of text.
var (
	lengths     = []int{10_000, 400_000, 2_000_000}
	corpusSizes = []int{200, 4_000, 64_000, 1_000_000}
	corpora     = []string{CorpusHot, CorpusCold, CorpusMixed, CorpusShort, CorpusLong, CorpusCJK}
)

func fullSide(rounds, maxStreams int) sidePlan {
	p := sidePlan{
		rounds: rounds,
		streams: []scenario{
			streamScenario(scenarioC1, 1, 2).inTurns(2), streamScenario(scenarioC16, 16, 3), streamScenario(scenarioC64, 64, 2),
			ttftScenario(scenarioTTFTReused, 60, false), ttftScenario(scenarioTTFTNew, 60, true), shortScenario(2).directly(),
		},
		corporaRounds: rounds, memoryRounds: min(rounds, 3), memoryPerSecond: 1000, memorySettle: 3 * time.Second,
		ownerPairs: map[int]int{1: 6 * rounds, 16: 4 * rounds}, routeRounds: rounds,
		mixed: mixedCells, mixedRounds: max(fewest, rounds-2),
	}
	p.cells(1, corpusSizes)
	p.steps(maxStreams, 1000, maxStreams)
	return p
}

// quickSide keeps every subject and takes less of each: with the goals, under 15 minutes on 2 cores.
func quickSide(rounds, maxStreams int) sidePlan {
	p := sidePlan{
		rounds: rounds,
		streams: []scenario{
			streamScenario(scenarioC1, 1, 1).inTurns(2), streamScenario(scenarioC16, 16, 1), streamScenario(scenarioC64, 64, 1),
			ttftScenario(scenarioTTFTReused, 40, false), shortScenario(1).directly(),
		},
		corporaRounds: rounds, memoryRounds: min(rounds, 3), memoryPerSecond: 1000, memorySettle: time.Second,
		ownerPairs: map[int]int{1: 2 * rounds, 16: 2 * rounds}, routeRounds: rounds,
		mixed: mixedCells[2:3], mixedRounds: rounds,
		due: map[string]time.Duration{
			partStreams: 4 * time.Minute, partMemory: 5 * time.Minute, partPrompts: 7 * time.Minute, partCorpora: 9 * time.Minute,
			partOwner: 11 * time.Minute, partMixed: 12 * time.Minute,
		},
	}
	p.cells(0.5, corpusSizes[1:3])
	p.steps(maxStreams, 1000)
	return p
}

func (p *sidePlan) cells(share float64, sizes []int) {
	for _, n := range lengths {
		for _, corpus := range []string{CorpusCold, CorpusTurns} {
			p.prompts = append(p.prompts, newCell(corpus, n, share))
		}
	}
	for _, corpus := range corpora {
		for _, n := range sizes {
			p.corpora = append(p.corpora, newCell(corpus, n, share))
		}
	}
}

func (p *sidePlan) steps(most int, steps ...int) {
	for _, n := range steps {
		if n > 0 && n <= most {
			p.memorySteps = append(p.memorySteps, n)
		}
	}
}
