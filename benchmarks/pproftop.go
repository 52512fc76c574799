package benchmarks

import (
	"regexp"
	"strconv"
	"strings"
)

// ProfileRecord is where the time of a benchmark went that missed its goal.
type ProfileRecord struct {
	Kind      string          `json:"kind"` // "profile"
	Package   string          `json:"package"`
	Bench     string          `json:"bench"`
	Total     string          `json:"total"` // of the samples, as pprof prints it
	Functions []FunctionShare `json:"functions"`
	Error     string          `json:"error,omitempty"` // why there is none
}

// FunctionShare is one line of it.
type FunctionShare struct {
	Name  string  `json:"name"`
	Flat  string  `json:"flat"`
	Share float64 `json:"share"` // of the whole, in per cent
}

var topTotal = regexp.MustCompile(`(?m)^Showing nodes accounting for .* of (\S+) total`)

// parseTop reads what `go tool pprof -top` prints.
func parseTop(out string) (total string, list []FunctionShare) {
	if m := topTotal.FindStringSubmatch(out); m != nil {
		total = m[1]
	}
	inside := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if !inside {
			inside = len(f) == 5 && f[0] == "flat" && f[1] == "flat%"
			continue
		}
		if len(f) < 6 || !strings.HasSuffix(f[1], "%") {
			continue
		}
		share, err := strconv.ParseFloat(strings.TrimSuffix(f[1], "%"), 64)
		if err != nil {
			continue
		}
		list = append(list, FunctionShare{Name: strings.TrimSuffix(strings.Join(f[5:], " "), " (inline)"), Flat: f[0], Share: share})
	}
	return total, list
}
