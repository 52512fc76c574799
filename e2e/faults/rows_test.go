package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRowsAreListed holds the list in doc.go against the tests of this folder:
// each of the fifty rows is there, and each test below its own row.
func TestRowsAreListed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed, row, next := map[string]string{}, "", 1
	for line := range strings.Lines(string(text)) {
		entry, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !ok {
			continue
		}
		if name, isTest := strings.CutPrefix(entry, "      "); isTest {
			listed[name] = row
			continue
		}
		row = strings.TrimSpace(entry[:2])
		if row != strconv.Itoa(next) {
			t.Errorf("doc.go has row %s where %d belongs", row, next)
		}
		next++
	}
	if next != 51 {
		t.Errorf("doc.go has %d rows, want 50", next-1)
	}
	rows := map[string]bool{}
	for _, row := range listed {
		rows[row] = true
	}
	for n := 1; n <= 50; n++ {
		if !rows[strconv.Itoa(n)] {
			t.Errorf("row %d of doc.go names no test", n)
		}
	}
	here := testsHere(t)
	for name, row := range here {
		if listed[name] != row {
			t.Errorf("%s is below row %q of doc.go, not below %s", name, listed[name], row)
		}
	}
	for name := range listed {
		if _, ok := here[name]; !ok && !strings.Contains(name, " ") { // tests of other folders say where they are
			t.Errorf("doc.go names %s, which is not here", name)
		}
	}
}

// testsHere maps the tests of the table in this folder to their rows.
func testsHere(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of tests: %v", len(files), err)
	}
	here, named := map[string]string{}, regexp.MustCompile(`(?m)^func (TestB7Row(\d\d)\w*)\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			here[m[1]] = strings.TrimLeft(m[2], "0")
		}
	}
	return here
}
