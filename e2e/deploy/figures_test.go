package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's figures stand between these two lines.
const (
	figuresBegin = "<!-- begin figures: go test ./e2e/deploy -run TestReadmeFigures -update -->\n"
	figuresEnd   = "<!-- end figures -->\n"
)

// streamFigures are the rows of benchmarks/RESULTS.md that the README shows, good and bad alike.
var streamFigures = []string{
	"CPU per streamed token, c1", "CPU per streamed token, c16", "CPU per streamed token, c64",
	"added TTFT p50, c16, reused connections", "added one-way token delay p50, c16", "added one-way token delay p99, c64",
	"CPU per short request, c32", "resident memory per open stream, 9900 streams",
}

// policyFigures are those of benchmarks/POLICY.md: load and figure, as they stand there.
var policyFigures = [][2]string{
	{"conversation 0.38x", "mean TTFT / round robin"},
	{"synthetic 0.32x", "mean TTFT / round robin"},
	{"coding 36 users", "answers / round robin"},
	{"chat 1.6x", "mean E2E / round robin"},
	{"one prefix 8/s", "mean E2E / least requests"},
}

// handoffFigures are those of benchmarks/HANDOFF.md: section, and how many requests at once.
var handoffFigures = [][2]string{{"First token", "1"}, {"First token", "4"}, {"CPU of the engine's API process, a request", "1"}, {"Requests a second", "4"}}

// handoffRows makes the README's rows of the longest conversation.
func handoffRows(t testing.TB) (rows, command, date string) {
	t.Helper()
	page := read(t, "benchmarks/HANDOFF.md")
	for _, f := range handoffFigures {
		_, section, _ := strings.Cut(page, "\n## "+f[0]+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var cells []string
		for line := range strings.Lines(section) {
			c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			if len(c) > 5 && strings.TrimSpace(c[1]) == f[1] {
				cells = c // the longest comes last
			}
		}
		if cells == nil {
			t.Fatalf("benchmarks/HANDOFF.md has no figure %q with %s at once", f[0], f[1])
		}
		rows += fmt.Sprintf("| %s, %s returning tokens handed over, %s at once | no proxy | %s | %s | %s |\n",
			f[0], strings.TrimSpace(cells[0]), f[1], cells[2], cells[4], strings.Replace(cells[5], " (", " x (", 1))
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("benchmarks/HANDOFF.md does not say its %s", pattern)
		}
		return m[1]
	}
	return rows, find("(?m)^\\| command \\| (`[^`]*`)"), find(`(?m)^\| date \| ([^|]*) \|`)
}

// readmeFigures makes the README's table from the files that the measurements wrote.
func readmeFigures(t testing.TB) string {
	t.Helper()
	_, section, ok := strings.Cut(read(t, "benchmarks/RESULTS.md"), "<!-- begin stream-ramjet -->")
	section, _, ends := strings.Cut(section, "<!-- end stream-ramjet -->")
	if !ok || !ends {
		t.Fatal("benchmarks/RESULTS.md has no section stream-ramjet")
	}
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) > 1 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[cells[0]] = cells
		}
	}
	fact := func(name string) string {
		if len(rows[name]) < 2 {
			t.Fatalf("benchmarks/RESULTS.md does not say its %s", name)
		}
		return rows[name][1]
	}
	var b strings.Builder
	b.WriteString(figuresBegin)
	b.WriteString("\n| figure | against | there | Ramjet | ratio (least .. greatest) |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range streamFigures {
		cells := rows[name]
		if len(cells) < 4 {
			t.Fatalf("benchmarks/RESULTS.md has no row %q", name)
		}
		fmt.Fprintf(&b, "| %s | nginx | %s | %s | %s |\n", cells[0], cells[1], cells[2], cells[3])
	}
	policy := read(t, "benchmarks/POLICY.md")
	command := regexp.MustCompile("(?m)^(`go run [^`]*`)").FindString(policy)
	if command == "" {
		t.Fatal("benchmarks/POLICY.md does not say its command")
	}
	for _, f := range policyFigures {
		m := regexp.MustCompile(`(?m)^ +` + regexp.QuoteMeta(f[0]) + ` +` + regexp.QuoteMeta(f[1]) + ` +([0-9.]+) `).FindStringSubmatch(policy)
		if m == nil {
			t.Fatalf("benchmarks/POLICY.md has no line %q %q", f[0], f[1])
		}
		figure, against, _ := strings.Cut(f[1], " / ")
		fmt.Fprintf(&b, "| %s, trace %s | %s | | | %s x |\n", figure, f[0], against, m[1])
	}
	handed, handoff, when := handoffRows(t)
	b.WriteString(handed)
	fmt.Fprintf(&b, "\nNothing here is typed by hand; the files have more, also what is missed.\n\n"+
		"* nginx: [benchmarks/RESULTS.md](benchmarks/RESULTS.md), %s, %s, %s.\n"+
		"* traces: [benchmarks/POLICY.md](benchmarks/POLICY.md), %s, model engines in virtual time.\n"+
		"* no proxy: [benchmarks/HANDOFF.md](benchmarks/HANDOFF.md), %s, %s; real vLLM with a model of one layer: the engine's API process and the way to it, without a large model's own time.\n\n",
		fact("command"), fact("machine"), fact("date"), command, handoff, when)
	return b.String() + figuresEnd
}

// TestReadmeFigures: no figure of the README is typed by hand, and none is older than the files that it comes from.
func TestReadmeFigures(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	before, rest, ok := strings.Cut(readme, figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !ok || !ends {
		t.Fatal("README.md has no place for its figures")
	}
	want := before + readmeFigures(t) + after
	if *update && want != readme {
		if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		readme = want
	}
	if readme != want {
		t.Error("README.md shows other figures than benchmarks/; run go test ./e2e/deploy -run TestReadmeFigures -update")
	}
}
