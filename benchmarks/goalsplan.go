package benchmarks

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Parts of a call that looks at the goals; Config.Skip may name them and the subjects.
const (
	partBuild    = "build"
	partGoals    = "goals"
	partPGO      = "pgo"
	partProfiles = "profiles"
)

// What the compiler is told: nothing, or the profile that the product is built with.
const (
	pgoOff  = "off"
	pgoFile = "default.pgo"
)

// goalsPlan is how much of everything a call makes.
type goalsPlan struct {
	rounds   int
	pairs    int           // rounds with and without the compiler's profile
	each     time.Duration // of a benchmark in a round
	profiled time.Duration // of a benchmark that is profiled
	// limits are after how long a part begins nothing more; without an entry it does all.
	limits map[string]time.Duration
}

// newGoalsPlan leaves the profile-guided build to the full call: it needs every test binary twice, minutes of compiling.
func newGoalsPlan(quick bool, rounds int) goalsPlan {
	if quick {
		return goalsPlan{
			rounds: rounds, each: 100 * time.Millisecond, profiled: 700 * time.Millisecond,
			limits: map[string]time.Duration{partGoals: 50 * time.Second, partProfiles: 15 * time.Second},
		}
	}
	return goalsPlan{rounds: rounds, pairs: rounds, each: time.Second, profiled: 3 * time.Second}
}

// Files below .tools that the benchmarks of tokens read.
func vocabularyFile(name string) string { return path.Join("vocab", name, "tokenizer.json") }

const (
	sessionVocabulary = "qwen3"
	sessionTemplate   = "templates/Qwen3-8B-Q8_0.jinja"
)

// tokenizerVocabularies are those of the benchmark.
var tokenizerVocabularies = []string{"qwen3", "llama3", "gptoss", "deepseek3"}

// goalInputs are the names of all of them.
func goalInputs() (list []string) {
	for _, v := range tokenizerVocabularies {
		list = append(list, vocabularyFile(v))
	}
	return append(list, sessionTemplate)
}

// goalSubjects are all tables; have says which inputs there are.
func goalSubjects(have func(input string) bool) []goalSubject {
	return []goalSubject{indexSubject(), tokenizerSubject(have), sessionSubject(have), decisionSubject()}
}

// notSlowed is the most that reads beside writes may take over reads beside none: two equal runs differ by some of it.
const notSlowed = 1.1

func indexSubject() goalSubject {
	const two, full, beside = "BenchmarkIndexWriteTwo", "BenchmarkIndexFull", "BenchmarkIndexMatchBesideWrites"
	return goalSubject{
		name: "index", title: "Index",
		about: "A block operation stores a block of 16 tokens in the index, or removes it. Two engines: two writers at once, the same 500,000 blocks each, stored 128 an event and removed one an event. " +
			"A full cache: one writer, each new block takes an old one's place in an engine that holds a million. Beside writes: reads of 100,000 tokens while a third engine's events come as fast as they can, " +
			"over the same reads while those events go to another index; the design's \"not slowed\" is taken as a tenth at most, and of other prompts, as writes to the very prompt change the words that are read. Memory: the greatest of three figures, by count, by the heap and at worst, just after a table has grown.",
		runs: []goRun{
			{pkg: "radix", bench: "^" + two + "$|^" + full + "$|^" + beside + "$", procs: 2},
			{pkg: "radix", test: "^" + indexTest + "$", procs: 2},
		},
		goals: []goal{
			{what: "block operations, two engines on 2 cores", bench: two, metric: "Mops/s", unit: "M/s", per: 1, bound: 10, design: 5, least: true, beside: []string{"Mops/cpu-s"}},
			{what: "block operations, a full cache, one writer", bench: full, metric: "Mops/s", unit: "M/s", per: 1, beside: []string{"Mops/cpu-s"}},
			{what: "reads beside writes of other prompts", bench: beside + "/of=other-prompts", metric: "ratio", unit: "x", per: 1, design: notSlowed},
			{what: "reads beside writes of the same prompt", bench: beside + "/of=the-same-prompt", metric: "ratio", unit: "x", per: 1},
			{what: "memory of a block and engine", bench: indexTest, metric: bytesAtMost, unit: "B", per: 1, bound: 40, design: 64, beside: []string{bytesCounted, bytesOnHeap, bytesAtWorst}},
		},
		ignore: "randomPrompts|calibration",
	}
}

// equalOutput is what shows that speed was not bought with other ids; a test of ours holds the names against the sources.
const equalOutput = "Equal output: `TestHuggingFaceIDs` compares ids, on these vocabularies, and `TestHuggingFacePieces` pieces, for every rule, with those of Hugging Face's own library " +
	"(`go test ./tokens -run HuggingFace`, a part of `make test`)."

func tokenizerSubject(have func(string) bool) goalSubject {
	s := goalSubject{
		name: "tokenizer", title: "Tokenizer",
		about: "Cold, on one core: nothing of the text is known. Code: the sources of Go's net/http, tests included; English: the comments in them. " + equalOutput,
		focus: "AppendEncode",
	}
	var there []string
	for _, v := range tokenizerVocabularies {
		missing := missingInput(have, vocabularyFile(v))
		if missing == "" {
			there = append(there, v)
		}
		for _, kind := range []string{"english", "code"} {
			s.goals = append(s.goals, goal{
				what: kind + ", " + v, bench: "BenchmarkEncode/" + v + "/" + kind, metric: "MB/s", unit: "MB/s", per: 1, bound: 20, least: true,
				beside: []string{"ns/token"}, missing: missing,
			})
		}
	}
	if len(there) > 0 {
		s.runs = []goRun{{pkg: "tokens", bench: "^BenchmarkEncode$/^(" + strings.Join(there, "|") + ")$/^(english|code)$", procs: 1}}
	}
	return s
}

func sessionSubject(have func(string) bool) goalSubject {
	template := "Qwen3's chat template"
	if !have(sessionTemplate) {
		template = "the simulator's chat template, as Qwen3's is missing (`make templates` fetches it)"
	}
	s := goalSubject{
		name: "session", title: "Returning session",
		about: "A conversation of about 100,000 tokens comes back with two new messages, some 200 tokens: body read, ids and keys, all that is done before it is routed. Vocabulary " + sessionVocabulary + ", " + template +
			". Equal output: `TestSessionsAreExact` compares a session's ids and keys with those made without a memory.",
		focus: `returning\)\.next$`, ignore: "renderWhole",
	}
	missing := missingInput(have, vocabularyFile(sessionVocabulary))
	if missing == "" {
		s.runs = []goRun{{pkg: "tokens", bench: "^BenchmarkSession$/^(prose|code)$/^100k$/^returning$", procs: 2}}
	}
	designs := map[string]float64{"prose": 500, "code": 1000}
	for _, kind := range []string{"prose", "code"} {
		s.goals = append(s.goals, goal{
			what: "returning, " + kind, bench: "BenchmarkSession/" + kind + "/100k/returning", metric: "ns/op", unit: "us", per: 1e3, bound: 300, design: designs[kind],
			beside: []string{"tokens", "allocs/op"}, missing: missing,
		})
	}
	return s
}

func decisionSubject() goalSubject {
	s := goalSubject{
		name: "decision", title: "Decision", about: "The whole decision about a prompt of 100,000 tokens that every engine holds, index and memory included.",
		runs: []goRun{{pkg: "route", bench: "^" + routeBenchmark + "$", procs: 2}}, focus: `\)\.Pick$`,
	}
	for _, n := range []int{2, 8, 40} {
		s.goals = append(s.goals, goal{
			what: fmt.Sprintf("among %d engines", n), bench: fmt.Sprintf("%s/engines=%d", routeBenchmark, n), metric: "ns/op", unit: "us", per: 1e3, bound: routeBars[n].goal, design: routeBars[n].bound,
			beside: []string{"allocs/op"},
		})
	}
	return s
}

// missingInput says what to do where an input is not there.
func missingInput(have func(string) bool, input string) string {
	if have(input) {
		return ""
	}
	return fmt.Sprintf("%s is missing (`make vocab` fetches it)", input)
}
