package benchmarks

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// routeBenchmark is the whole decision about a prompt of 100,000 tokens that every engine holds, index and memory
// included. No other router says how long its decision takes, so it stands beside published figures only.
const routeBenchmark = "BenchmarkPick"

// routeLine is one result of it; the number behind the last - is GOMAXPROCS.
var routeLine = regexp.MustCompile(`^` + routeBenchmark + `/engines=(\d+)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// routeTime runs the benchmark of the decision, which is part of the product's own tests.
func (s *side) routeTime() error {
	args := []string{"test", "-run", "^$", "-bench", "^" + routeBenchmark + "$", "-benchtime", "300ms", "-count", strconv.Itoa(s.plan.routeRounds), "ramjet/route"}
	cmd := exec.CommandContext(s.ctx, "go", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run go %s: %w: %.400s", strings.Join(args, " "), err, out)
	}
	if s.records.Routes = parseRoutes(string(out)); len(s.records.Routes) == 0 {
		return fmt.Errorf("cannot read what go %s printed: no result of %s: %.400s", strings.Join(args, " "), routeBenchmark, out)
	}
	for _, r := range s.records.Routes {
		s.say("route %d engines, run %d: %.1f us", r.Engines, r.Round, r.Nanos/1e3)
	}
	return nil
}

// parseRoutes reads the benchmark's lines.
func parseRoutes(out string) (list []RouteRecord) {
	rounds := make(map[int]int)
	for line := range strings.Lines(out) {
		m := routeLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		engines, err1 := strconv.Atoi(m[1])
		nanos, err2 := strconv.ParseFloat(m[2], 64)
		if err1 != nil || err2 != nil {
			continue
		}
		rounds[engines]++
		list = append(list, RouteRecord{Kind: "route", Engines: engines, Round: rounds[engines], Nanos: nanos})
	}
	return list
}
