package main

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mayImport says which packages of ours each package may import outside its
// tests, and why no others. It is the whole plan of the house: a package that
// is not here has no place yet.
var mayImport = map[string]struct {
	ours []string
	why  string
}{
	".":                           {[]string{"cli", "config", "engine", "gpu", "journal", "kvevents", "lease", "probe", "proxy", "radix", "route", "sim", "telemetry", "tokens", "web", "wire"}, "main builds the graph"},
	"benchmarks":                  {[]string{"benchmarks/lab"}, "Ramjet is a black box to its measurements: a defect in a shared parser would hide itself"},
	"benchmarks/cmd/growthbench":  {[]string{"benchmarks", "benchmarks/growth"}, "a command is its package's flags and nothing else"},
	"benchmarks/cmd/handoffbench": {[]string{"benchmarks", "benchmarks/handoff"}, "a command is its package's flags and nothing else"},
	"benchmarks/cmd/policybench":  {[]string{"benchmarks", "benchmarks/lab", "benchmarks/policy"}, "a command is its package's flags and nothing else"},
	"benchmarks/cmd/streambench":  {[]string{"benchmarks"}, "a command is its package's flags and nothing else"},
	"benchmarks/growth":           {[]string{"benchmarks", "benchmarks/lab", "engine", "lease", "radix", "route", "telemetry"}, "it times the objects that decide; the binary it sees from outside"},
	"benchmarks/handoff":          {[]string{"benchmarks/lab"}, "Ramjet is a black box to it, as vLLM is"},
	"benchmarks/lab":              {nil, "what measures must not share code with what is measured"},
	"benchmarks/policy":           {[]string{"engine", "kvevents", "lease", "probe", "radix", "route", "telemetry"}, "it drives the objects that decide, in virtual time"},
	"cli":                         {[]string{"config", "wire", "journal", "sim"}, "its commands are clients: they see a Ramjet from outside"},
	"config":                      {nil, "settings are plain values; main carries them to whom they concern"},
	"e2e":                         {[]string{"e2e/ports", "e2e/rig"}, "a test that could look inside would stop being a witness"},
	"e2e/faults":                  {[]string{"e2e/ports", "e2e/rig"}, "a test that could look inside would stop being a witness"},
	"e2e/ports":                   {nil, "it knows ports, and nothing of who listens there"},
	"e2e/rig":                     {[]string{"e2e/ports"}, "a harness that could look inside would stop being a witness"},
	"e2e/vllm":                    {[]string{"e2e/ports", "tokens", "wire"}, "ids are compared with the engine's directly, before a whole process stands in between"},
	"e2e/sdk":                     {nil, "a test that could look inside would stop being a witness"},
	"e2e/chaos":                   {[]string{"e2e/ports"}, "a ledger that shared code with what it judges would share its faults"},
	"e2e/page":                    {[]string{"e2e/ports"}, "the page is looked at as an operator does: through the binary and a browser"},
	"e2e/deploy":                  {[]string{"e2e/ports"}, "what is shipped is held against the binary from outside"},
	"engine":                      {[]string{"telemetry"}, "an upstream does not know who judges, picks or uses it"},
	"fuzz":                        {[]string{"wire", "engine", "route", "lease", "telemetry", "tokens", "config", "proxy", "radix", "kvevents", "gpu"}, "targets cross packages"},
	"gpu":                         {[]string{"telemetry"}, "it samples devices and knows neither engines nor who looks"},
	"journal":                     {[]string{"route"}, "it keeps what was decided, and reads it back for who decides again"},
	"kvevents":                    {[]string{"radix", "engine", "telemetry"}, "it feeds the index from an engine's events and judges how far that can be believed"},
	"lease":                       {nil, "the book counts and knows nobody, so that it can be proven by itself"},
	"probe":                       {[]string{"engine", "telemetry"}, "the judge of engines must not depend on who uses them"},
	"proxy":                       {[]string{"wire", "tokens", "route", "lease", "engine", "telemetry"}, "what it needs beyond these it declares as interfaces, and main fills them"},
	"radix":                       {nil, "keys and residency are provable by themselves: ids in, keys out"},
	"route":                       {[]string{"radix", "lease", "engine", "telemetry"}, "the decision is pure: it asks what it is given and does no I/O"},
	"sim":                         {[]string{"wire", "tokens"}, "a simulator that shared code with what it tests would share its faults"},
	"sim/model":                   {nil, "the model's files are data"},
	"telemetry":                   {nil, "everybody reports to it, so it can import nobody"},
	"tokens":                      {[]string{"wire", "radix"}, "ids come from bytes, not from engines or routes"},
	"web":                         {[]string{"route", "lease", "engine", "radix", "telemetry", "wire", "tokens", "probe", "config", "journal", "gpu"}, "it shows others and is shown to nobody"},
	"wire":                        {nil, "bytes in, facts out: everything else builds on it"},
}

// blackBoxes are the packages whose tests, too, may import only what the plan says.
var blackBoxes = []string{"e2e", "e2e/faults", "e2e/rig", "e2e/sdk", "e2e/chaos", "e2e/page"}

// onlyIdentifiers limits what one package may use of another.
var onlyIdentifiers = map[[2]string]struct {
	names []string
	why   string
}{
	{"sim", "tokens"}: {[]string{"BPE", "LoadBPE"},
		"sim shares the plain BPE and nothing else: hashing, cache and chat rendering are its own"},
}

// Libraries that one package alone may use.
var reserved = map[string]struct {
	users []string
	why   string
}{
	"github.com/klauspost/compress/zstd": {[]string{"journal"}, "only the journal is compressed: bodies pass as they come"},
	"github.com/valyala/fasthttp":        {[]string{"proxy"}, "the safe twin reads through it; the relay's own loop does not"},
	"github.com/alecthomas/kong":         {[]string{"."}, "only main has a command line"},
	"github.com/rs/zerolog":              {[]string{"telemetry"}, "everybody logs through telemetry"},
	"github.com/VictoriaMetrics/metrics": {[]string{"telemetry"}, "everybody counts through handles of telemetry"},
	"go.yaml.in/yaml/v3":                 {[]string{"config"}, "only the configuration is YAML"},
}

// Imports that would break a promise of a package's comment.
var forbidden = map[string]struct {
	imports []string
	why     string
}{
	"wire":  {[]string{"net", "net/http", "os", "time", "log"}, "wire has no I/O, clock or log"},
	"radix": {[]string{"net", "net/http", "os", "time", "log"}, "radix has no I/O, clock or log"},
	"lease": {[]string{"net", "net/http", "os", "time", "log"}, "the book has no I/O and no clock"},
	"route": {[]string{"net", "net/http", "os", "time", "log", "math/rand", "math/rand/v2"}, "the decision must be repeatable: no I/O, clock or chance"},
}

// sources are all packages of the module with their parsed files.
type source struct {
	path string // from the root, with /
	file *ast.File
	test bool
	pkg  string
}

func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d Go files found; the walk is broken", len(all))
	}
	return all
}

// parsed reads every Go file of the module, once.
var parsed = sync.OnceValues(func() (all []source, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && (ignoredFolder(d.Name()) || hasModule(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{path: filepath.ToSlash(path), file: file, test: strings.HasSuffix(path, "_test.go"), pkg: filepath.ToSlash(filepath.Dir(path))})
		return nil
	})
	return all, err
})

func ignoredFolder(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "node_modules" || name == "testdata" || name == "shared"
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// generator reports whether a file is a program of its own, run by hand and
// part of no package.
func generator(s source) bool {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if c.Pos() < s.file.Package && c.Text == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

func TestImportsFollowThePlan(t *testing.T) {
	for _, s := range sources(t) {
		if generator(s) {
			continue
		}
		plan, known := mayImport[s.pkg]
		if !known {
			t.Errorf("%s: package %s is not in the plan; give it a line in mayImport with its reason", s.path, s.pkg)
			continue
		}
		for _, spec := range s.file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if r, ok := reserved[path]; ok && !s.test && !slices.Contains(r.users, s.pkg) {
				t.Errorf("%s imports %s, which only %v may: %s", s.path, path, r.users, r.why)
			}
			if f, ok := forbidden[s.pkg]; ok && !s.test && slices.Contains(f.imports, path) {
				t.Errorf("%s imports %s: %s", s.path, path, f.why)
			}
			ours, ok := strings.CutPrefix(path, "ramjet/")
			if !ok || s.test && !slices.Contains(blackBoxes, s.pkg) {
				continue
			}
			if !slices.Contains(plan.ours, ours) {
				t.Errorf("%s imports %s, but %s may import only %v: %s", s.path, ours, s.pkg, plan.ours, plan.why)
			}
		}
	}
}

// Nobody may import what stands at the end of the house, not even a test of
// another package: such a test belongs to the package that it imports.
func TestNobodyImportsTheEnds(t *testing.T) {
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			switch path := strings.Trim(spec.Path.Value, `"`); path {
			case "ramjet/proxy", "ramjet/web", "ramjet/cli", "ramjet":
				if s.pkg != "." && s.pkg != "fuzz" && "ramjet/"+s.pkg != path {
					t.Errorf("%s imports %s: nobody but main may, so that each end can be changed alone", s.path, path)
				}
			}
		}
	}
}

func TestSimSharesOnlyTheTokenizer(t *testing.T) {
	for _, s := range sources(t) {
		for pair, limit := range onlyIdentifiers {
			if s.pkg != pair[0] || s.test {
				continue
			}
			for _, name := range selectors(s.file, pair[1]) {
				if !slices.Contains(limit.names, name) {
					t.Errorf("%s uses %s.%s: %s", s.path, pair[1], name, limit.why)
				}
			}
		}
	}
}

// selectors lists what a file uses of the package with that name.
func selectors(file *ast.File, pkg string) []string {
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg && x.Obj == nil {
				names = append(names, sel.Sel.Name)
			}
		}
		return true
	})
	return names
}

// A package comment says what the package is, who may use it concurrently,
// and what it refuses to do; nobody says that in two lines.
func TestEveryPackageHasAComment(t *testing.T) {
	words, tested := map[string]int{}, map[string]bool{}
	for _, s := range sources(t) {
		switch {
		case generator(s):
		case s.test:
			tested[s.pkg] = true
		default:
			words[s.pkg] += len(strings.Fields(s.file.Doc.Text()))
		}
	}
	for pkg := range tested {
		if _, ok := words[pkg]; !ok {
			t.Errorf("package %s has nothing but tests; add a doc.go that says what they show", pkg)
		}
	}
	const least = 15
	for pkg, n := range words {
		if n < least {
			t.Errorf("package %s has a comment of %d words; say what it is, who may use it concurrently and what it refuses to do", pkg, n)
		}
	}
}

// A file holds one concept; beyond this length it holds two.
func TestNoFileIsTooLong(t *testing.T) {
	const most = 600
	for _, s := range sources(t) {
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > most {
			t.Errorf("%s has %d lines, more than %d: split it by concept", s.path, lines, most)
		}
		if s.path == "main.go" && strings.Count(string(text), "\n") > 250 {
			t.Errorf("main.go is a table of contents; it has more than 250 lines")
		}
	}
}

func TestEveryFileIsFormatted(t *testing.T) {
	for _, s := range sources(t) {
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		formatted, err := format.Source(text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if string(formatted) != string(text) {
			t.Errorf("%s is not formatted: gofmt -w %s", s.path, s.path)
		}
	}
}

// packageRow is a line of the table of packages in docs/ARCHITECTURE.md.
var packageRow = regexp.MustCompile("(?m)^\\| `([a-z/0-9]+)/` \\|")

// The map in the documentation is the map of the code.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range packageRow.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1])
	}
	for pkg := range mayImport {
		if !strings.Contains(pkg, "/") && pkg != "." && !slices.Contains(documented, pkg) {
			t.Errorf("docs/ARCHITECTURE.md does not list package %s", pkg)
		}
	}
	for _, pkg := range documented {
		if _, ok := mayImport[pkg]; !ok {
			t.Errorf("docs/ARCHITECTURE.md lists package %s, which does not exist", pkg)
		}
	}
}

// The README's set-up is what a newcomer types first; a target that is not
// there, or a file that moved, is the first thing that they would meet.
func TestDocumentsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test {
				tests[f.Name.Name] = true
			}
		}
	}
	target := regexp.MustCompile("make ([a-z][a-z-]+)")
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/ERRORS.md", "docs/EXPERIMENTS.md", "docs/METRICS.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range target.FindAllStringSubmatch(codeOf(string(text)), -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s names `make %s`, which is no target", doc, m[1])
			}
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(codeOf(string(text)), -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which is no test", doc, name)
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

// codeOf returns what of a Markdown text is set as code.
func codeOf(text string) string {
	return strings.Join(regexp.MustCompile("(?s)```.*?```|`[^`\n]+`").FindAllString(text, -1), "\n")
}

func TestReadmeHasTwoSetUpCommands(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, b := range block {
		var commands []string
		for line := range strings.Lines(b[1]) {
			command, _, _ := strings.Cut(line, "#")
			if command = strings.TrimSpace(command); command != "" {
				commands = append(commands, command)
			}
		}
		if slices.Equal(commands, []string{"make demo", "make test"}) {
			return
		}
	}
	t.Error("README.md has no block with exactly the two commands `make demo` and `make test`")
}
