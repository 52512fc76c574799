package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with the settings, at the place where its author
// can mend it.
type Problem struct {
	// File is the YAML file's path as it was given, or "flag --x" or "variable
	// RAMJET_X"; "" when the problem is that nothing was given at all.
	File string
	// Line and Col count from 1 and are 0 where File is not a file.
	Line, Col int
	Key       string // full key such as route.policy, "" if there is none
	Message   string
	Hint      string // what to do instead, "" if nothing better is known
	// Usage is set when the command line itself is malformed (exit status 2)
	// rather than a value wrong (exit status 1).
	Usage bool

	rank int // layer, for the order of the report
}

// String gives the problem in one line, such as
//
//	ramjet.yaml:12:5: route.policy: unknown policy "lat"; did you mean latency?
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	for _, part := range []string{p.Key, p.Message} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// Problems is the error of Load: everything that is wrong, file first, each
// layer in its own order.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Usage reports whether the command line is malformed.
func (ps Problems) Usage() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Usage })
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// fault is a Problem before its place is known.
type fault struct {
	message string
	hint    string
}

func faultf(format string, args ...any) *fault {
	return &fault{message: fmt.Sprintf(format, args...)}
}

func (f *fault) hintf(format string, args ...any) *fault {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// layer is one source of settings; a higher one wins.
type layer int

const (
	layerDefault layer = iota
	layerFile
	layerVariable
	layerFlag
)

func (l layer) String() string {
	return [...]string{"default", "file", "variable", "flag"}[l]
}

// origin is the place of one value.
type origin struct {
	layer     layer
	name      string // path, --flag or VARIABLE
	line, col int
}

// String is the source as users see it.
func (o origin) String() string {
	switch o.layer {
	case layerDefault:
		return o.layer.String()
	case layerFile:
		if o.line == 0 {
			return o.name
		}
		return fmt.Sprintf("%s:%d", o.name, o.line)
	default:
		return o.layer.String() + " " + o.name
	}
}

func (o origin) problem(key string, f *fault) Problem {
	p := Problem{Key: key, Message: f.message, Hint: f.hint, Line: o.line, Col: o.col, rank: int(o.layer)}
	switch o.layer {
	case layerDefault:
	case layerFile:
		p.File = o.name
	default:
		p.File = o.String()
	}
	return p
}
