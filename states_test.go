package main

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// holds are what makes a type a piece of state that several goroutines share.
var holds = []string{"sync.Mutex", "sync.RWMutex", "sync.Map", "sync.Pool", "atomic.Pointer"}

// Each piece of shared state has an owner, a bound and a test; a new one has
// to be thought about before it is used.
func TestEveryStateIsInTheTable(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Who owns which state")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+\\.[A-Za-z]+)`").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	states := 0
	for _, s := range sources(t) {
		switch folder, _, _ := strings.Cut(s.path, "/"); folder {
		case "sim", "benchmarks", "e2e", "scripts", "tools", "fuzz":
			continue // not in a process that serves
		}
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.StructType); ok && shared(of) {
				states++
				if name := s.file.Name.Name + "." + spec.Name.Name; !listed[name] {
					t.Errorf("%s: %s is shared state, and no line of the table of states in docs/ARCHITECTURE.md is about it", s.path, name)
				}
			}
			return true
		})
	}
	if states < 40 {
		t.Errorf("only %d types found", states)
	}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 && len(cells) != 8 {
			t.Errorf("%d cells in %q", len(cells)-2, line)
		}
	}
}

// shared reports whether a field is one of holds, or made of one.
func shared(of *ast.StructType) bool {
	for _, f := range of.Fields.List {
		found := false
		ast.Inspect(f.Type, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok {
					for _, h := range holds {
						found = found || pkg.Name+"."+sel.Sel.Name == h
					}
				}
			}
			return true
		})
		if found {
			return true
		}
	}
	return false
}
