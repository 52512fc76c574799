package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// documents are all that a reader is sent to.
func documents(t testing.TB) []string {
	t.Helper()
	return shipped(t, "*.md", "docs/*.md")
}

var (
	fence    = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	inline   = regexp.MustCompile("`[^`\n]+`")
	heading  = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	linkText = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// anchors lists what the headings of a document can be linked by, as GitHub makes it: lower case, spaces to hyphens,
// everything but letters, digits, hyphens and underscores taken out.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		out = append(out, anchor)
	}
	return out
}

// TestLinks: every relative link leads to a file, and every fragment to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, m := range linkText.FindAllStringSubmatch(inline.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(filepath.Dir(doc), target)
			if target == "" {
				path = doc
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
				continue
			}
			if fragment != "" && !slices.Contains(anchors(read(t, path)), fragment) {
				t.Errorf("%s links to %s, where no heading is called so: %v", doc, m[1], anchors(read(t, path)))
			}
		}
	}
}

// helpTexts are the helps of all commands of the binary, asked for once.
var helpTexts struct {
	once sync.Once
	all  map[string]string
	err  error
}

// helps returns the help of each command.
func helps(t testing.TB) map[string]string {
	t.Helper()
	path := binary(t, "")
	h := &helpTexts
	h.once.Do(func() {
		h.all = map[string]string{}
		var text []byte
		if text, h.err = exec.Command(path, "--help").CombinedOutput(); h.err != nil {
			return
		}
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+)\b`).FindAllStringSubmatch(string(text), -1) {
			help, err := exec.Command(path, m[1], "--help").CombinedOutput()
			if err != nil {
				h.err = fmt.Errorf("ramjet %s --help: %w\n%s", m[1], err, help)
				return
			}
			h.all[m[1]] = string(help)
		}
	})
	if h.err != nil || len(h.all) < 8 {
		t.Fatalf("ramjet --help: %d commands, %v", len(h.all), h.err)
	}
	return h.all
}

// TestCommands: every `ramjet COMMAND` in a document exists and has the flags that it is shown with.
func TestCommands(t *testing.T) {
	t.Parallel()
	all := helps(t)
	command := regexp.MustCompile(`(?m)(?:^|[\s(/;&|\x60])ramjet((?: +[^\n\x60#|;&]*)?)`)
	for _, doc := range documents(t) {
		if doc == "CHANGELOG.md" { // tells of former versions
			continue
		}
		text := read(t, doc)
		var code []string
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			code = append(code, strings.NewReplacer("\\\n", " ", "--name ramjet", "", "ramjet:dev ", "ramjet ").Replace(m[2]))
		}
		code = append(code, inline.FindAllString(fence.ReplaceAllString(text, ""), -1)...)
		for _, m := range command.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			checkCommand(t, doc, strings.Fields(m[1]), all)
		}
	}
}

// checkCommand holds the words after `ramjet` against the help of the command that they name.
func checkCommand(t *testing.T, doc string, words []string, all map[string]string) {
	t.Helper()
	name := "serve"
	if len(words) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) {
		name = words[0]
	}
	help, known := all[name]
	if !known {
		t.Errorf("%s: ramjet has no command %s (%s)", doc, name, strings.Join(words, " "))
		return
	}
	for _, w := range words {
		if flagName, _, _ := strings.Cut(w, "="); strings.HasPrefix(w, "--") && w != "--help" && !hasFlag(help, flagName) {
			t.Errorf("%s: ramjet %s has no flag %s", doc, name, flagName)
		}
	}
}

func hasFlag(help, name string) bool {
	return regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(name) + `($|[\s=,\[])`).MatchString(help)
}

// settings lists the keys of the configuration file, dotted, as deploy/ramjet.example.yaml has them all.
func settings(t testing.TB) map[string]bool {
	t.Helper()
	var root yaml.Node
	unmarshal(t, "deploy/ramjet.example.yaml", &root)
	out := map[string]bool{}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			key := prefix + n.Content[i].Value
			out[key] = true
			if value := n.Content[i+1]; value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
				walk("", value.Content[0]) // an engine's keys are named by themselves
			} else {
				walk(key+".", value)
			}
		}
	}
	walk("", root.Content[0])
	return out
}

// TestSettings: every dotted key, flag of a setting and variable that a document sets as code exists.
func TestSettings(t *testing.T) {
	t.Parallel()
	known := settings(t)
	if len(known) < 80 {
		t.Fatalf("only %d settings were found", len(known))
	}
	help := helps(t)["serve"]
	groups := map[string]bool{}
	for key := range known {
		if group, _, dotted := strings.Cut(key, "."); dotted {
			groups[group] = true
		}
	}
	key := regexp.MustCompile(`(^|[^\w./-])([a-z_]+)\.([a-z_]+)\b([^\w/(]|$)`)
	variable := regexp.MustCompile(`\bRAMJET_[A-Z_]+\b`)
	ours := []string{"RAMJET_BINARY", "RAMJET_VERSION", "RAMJET_VLLM", "RAMJET_PORT_FILE", "RAMJET_CHAOS_SEED"} // of tests and compose files
	for _, doc := range documents(t) {
		if doc == "CHANGELOG.md" || doc == "docs/ARCHITECTURE.md" { // former versions; names of Go files and packages
			continue
		}
		text := read(t, doc)
		for _, code := range inline.FindAllString(fence.ReplaceAllString(text, ""), -1) {
			for _, m := range key.FindAllStringSubmatch(code, -1) {
				if name := m[2] + "." + m[3]; groups[m[2]] && !known[name] && m[3] != "go" && m[3] != "yaml" {
					t.Errorf("%s names the setting %s, which does not exist", doc, name)
				}
			}
		}
		for _, name := range variable.FindAllString(text, -1) {
			if !slices.Contains(ours, name) && !strings.HasPrefix(name, "RAMJET_E2E") && !strings.Contains(help, "["+name+"]") {
				t.Errorf("%s names the variable %s, which does not exist", doc, name)
			}
		}
		for _, m := range regexp.MustCompile("(?m)^```yaml\n((?s:.*?))^```$").FindAllStringSubmatch(text, -1) {
			var node yaml.Node
			if err := yaml.Unmarshal([]byte(m[1]), &node); err != nil {
				t.Errorf("%s has YAML that cannot be read: %v\n%s", doc, err, m[1])
			}
		}
	}
}

// TestErrorCodes: docs/ERRORS.md explains exactly the codes that are named here, the closed list.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	want := strings.Fields(`invalid_request malformed_http invalid_api_key model_not_found path_not_found method_not_allowed request_timeout
		body_too_large unsupported_media_type unsupported_encoding websocket_unsupported queue_full header_too_large internal_error not_implemented
		engine_unreachable engine_bad_response no_engine overloaded draining engine_timeout engine_died engine_stalled`)
	var got []string
	for _, m := range regexp.MustCompile("(?m)^### `([a-z_]+)`").FindAllStringSubmatch(read(t, "docs/ERRORS.md"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/ERRORS.md explains %v\nwant %v", got, want)
	}
}

// testNames lists every test of the repository.
func testNames(t testing.TB) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var failureRow = regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \| (.*) \|$`)

// TestFailureTable: docs/OPERATIONS.md tells of each of the fifty faults, names tests that exist, and says "none yet"
// only where that is so. With -update the rows get the tests that are named after them.
func TestFailureTable(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	const doc = "docs/OPERATIONS.md"
	text := read(t, doc)
	if *update {
		text = failureRow.ReplaceAllStringFunc(text, func(row string) string {
			m := failureRow.FindStringSubmatch(row)
			if named := rowTests(t, m[1], tests); len(named) > 0 {
				return fmt.Sprintf("| %s | %s | %s | `%s` |", m[1], m[2], m[3], strings.Join(named, "` `"))
			}
			return row
		})
		if err := os.WriteFile(filepath.Join(root, doc), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string]string{}
	for _, m := range failureRow.FindAllStringSubmatch(text, -1) {
		rows[m[1]] = m[4]
	}
	for n := 1; n <= 50; n++ {
		cell, ok := rows[fmt.Sprint(n)]
		if !ok {
			t.Errorf("%s has no row %d", doc, n)
		}
		if named := rowTests(t, fmt.Sprint(n), tests); cell == "none yet" && len(named) > 0 {
			t.Errorf("row %d has tests, %v: run go test ./e2e/deploy -run TestFailureTable -update", n, named)
		}
	}
	for _, doc := range documents(t) {
		for _, code := range inline.FindAllString(read(t, doc), -1) {
			for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(code, -1) {
				if !tests[name] && doc != "CHANGELOG.md" {
					t.Errorf("%s names %s, which is no test", doc, name)
				}
			}
		}
	}
}

// rowTests lists the tests that are named after a row of the table.
func rowTests(t testing.TB, row string, tests map[string]bool) []string {
	t.Helper()
	var out []string
	for name := range tests {
		if m := regexp.MustCompile(`^TestB7Row(\d\d)`).FindStringSubmatch(name); m != nil && strings.TrimLeft(m[1], "0") == row {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestExamples runs every block that is marked `sh run` as a reader would, with the built binary on the path.
func TestExamples(t *testing.T) {
	t.Parallel()
	path := binary(t, "")
	bin := t.TempDir()
	if err := os.Symlink(path, filepath.Join(bin, "ramjet")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, doc := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(read(t, doc), -1) {
			if m[1] != "sh run" {
				continue
			}
			ran++
			cmd := exec.Command("sh", "-eu", "-c", m[2])
			cmd.Dir, cmd.Env = root, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", doc, err, m[2], out)
			}
		}
	}
	if ran < 2 {
		t.Errorf("only %d examples were run", ran)
	}
}

// TestReadmeRequest: the curl line of the README, sent to a running proxy, is answered as a stream.
func TestReadmeRequest(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`curl -N http://127\.0\.0\.1:8000(\S+) -H 'Content-Type: application/json' \\\n  -d '(.*)'`).FindStringSubmatch(read(t, "README.md"))
	if m == nil || !json.Valid([]byte(m[2])) {
		t.Fatal("README.md has no curl line")
	}
	p := startProxy(t, proxyOptions{engines: []*engine{startEngine(t)}})
	p.ready()
	status, answer := post("http://"+p.public+m[1], m[2])
	if status != 200 || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
		t.Errorf("%d %q", status, answer)
	}
}
