package benchmarks

import "time"

// Scenario names; the figures refer to them.
const (
	scenarioC1         = "stream-c1"
	scenarioC16        = "stream-c16"
	scenarioC64        = "stream-c64"
	scenarioTTFTReused = "ttft-reused-c16"
	scenarioTTFTNew    = "ttft-new-c16"
	scenarioShort      = "short-c32"
)

// scenario is one kind of load; in every round each target is visited once a turn, in random order.
type scenario struct {
	name   string
	spec   LoadSpec
	direct bool // visit the engines without a proxy, too
	turns  int  // 0 is one
}

// How often a round compares what lies next to its bound and spreads most. With one stream the middle half of the ratios
// lies between 0.96 and 1.44, whether visits last for two seconds or for four; 28 of them left their median between 1.10
// and 1.36, 84 between 1.12 and 1.22 (results/stream-ramjet.jsonl, the runs of commits b756847 and 3b84fb4).
const (
	turnsC1    = 12
	turnsShort = 4
)

// inTurns splits a round of s into several short ones, each a pair of its own. What disturbs a small machine lasts for
// seconds: the closer two visits lie, the more of it they share, and one stream is disturbed most, because each of its
// tokens finds caches that everybody else has used since the last.
func (s scenario) inTurns(n int) scenario {
	s.turns = n
	return s
}

// directly makes s visit the engines without a proxy, too.
func (s scenario) directly() scenario {
	s.direct = true
	return s
}

// pair numbers the visits that are compared with one another: by round, or by turn where there are several.
func (s scenario) pair(round, turn int) int { return (round-1)*max(1, s.turns) + turn + 1 }

// plan is everything that one call measures.
type plan struct {
	rounds          int
	scenarios       []scenario
	idleWindows     int
	idleFor         time.Duration // several checks of each engine
	syscallWindows  int
	tracedFor       time.Duration
	memorySteps     []int
	memoryRounds    int
	memoryPerSecond int
	memorySettle    time.Duration
}

// pace is the time between two tokens of a stream: 10 ms, the order of one decode step of the reference engines, and the
// pace of every published figure that this compares with.
const pace = 10_000 // microseconds

// tokensPerStream makes one request's own cost a two-hundredth of what is booked on a token.
const tokensPerStream = 200

func streamScenario(name string, streams, requests int) scenario {
	return scenario{name: name, direct: true, spec: LoadSpec{
		Mode: ModeStream, Streams: streams, Requests: requests, Tokens: tokensPerStream, PaceMicros: pace, FirstMicros: pace,
	}}
}

// ttftScenario has short streams, so that a run of two seconds gives a thousand first tokens. The engine waits 2 ms
// before the first one: head and first token then arrive apart, as with any real engine.
func ttftScenario(name string, requests int, fresh bool) scenario {
	s := LoadSpec{
		Mode: ModeStream, Streams: 16, Requests: requests, Warm: 1, Tokens: 3, PaceMicros: pace, FirstMicros: 2_000, NewConnections: fresh,
	}
	if fresh {
		s.Warm = 0
	}
	return scenario{name: name, direct: true, spec: s}
}

func shortScenario(seconds float64) scenario {
	return scenario{name: scenarioShort, spec: LoadSpec{Mode: ModeShort, Streams: 32, Tokens: 2, Seconds: seconds}}
}

// MaxStreams is the number of streams that fit into a limit of open files when a proxy needs two for each and some for
// itself: 9,900 at the usual hard limit of 20,000.
func MaxStreams(descriptors uint64) int {
	const own = 200
	const most = 9_900 // the bound is stated for this number
	if descriptors <= own {
		return 0
	}
	return int(min((descriptors-own)/2, most))
}

func fullPlan(rounds, maxStreams int) plan {
	p := plan{
		rounds: rounds,
		scenarios: []scenario{
			streamScenario(scenarioC1, 1, 1).inTurns(turnsC1), streamScenario(scenarioC16, 16, 3), streamScenario(scenarioC64, 64, 2),
			ttftScenario(scenarioTTFTReused, 60, false), ttftScenario(scenarioTTFTNew, 60, true),
			shortScenario(1).inTurns(turnsShort),
		},
		idleWindows: 3, idleFor: 8 * time.Second,
		syscallWindows: 3, tracedFor: 8 * time.Second,
		memoryRounds: fewest, memoryPerSecond: 1000, memorySettle: 3 * time.Second,
	}
	for _, n := range []int{1000, maxStreams} {
		if n <= maxStreams && n > 0 {
			p.memorySteps = append(p.memorySteps, n)
		}
	}
	return p
}

// quickPlan is a smoke test of the whole kit in less than two minutes; its figures only tell orders of magnitude.
func quickPlan(rounds, maxStreams int) plan {
	return plan{
		rounds: rounds,
		scenarios: []scenario{
			streamScenario(scenarioC1, 1, 1).inTurns(turnsC1 / 3), streamScenario(scenarioC16, 16, 1),
			ttftScenario(scenarioTTFTReused, 25, false), ttftScenario(scenarioTTFTNew, 25, true),
			shortScenario(1).inTurns(turnsShort),
		},
		idleWindows: 1, idleFor: 8 * time.Second,
		syscallWindows: 1, tracedFor: 3 * time.Second,
		memorySteps: []int{min(500, maxStreams)}, memoryRounds: 1, memoryPerSecond: 1000, memorySettle: 2 * time.Second,
	}
}
