package engine

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cannotBlock are the system calls that may bypass the scheduler, with why
// they cannot block. One that did would hold its processor for good.
var cannotBlock = map[string]string{
	"syscall.SYS_READ":        "descriptors are non-blocking",
	"syscall.SYS_SENDTO":      "MSG_DONTWAIT",
	"syscall.SYS_RECVFROM":    "MSG_DONTWAIT",
	"syscall.SYS_EPOLL_PWAIT": "time-out 0",
	"syscall.SYS_IOCTL":       "reads a number",
}

// mustNotOccur are calls and names that cost a stream dearly, each with what
// it does.
var mustNotOccur = map[string]string{
	"LockOSThread":         "a thread of its own is handed over at every wait",
	"EpollWait":            "it blocks behind the scheduler's back; the set sits in the runtime's poller instead",
	"SetBodyStreamWriter":  "a pipe and a goroutine per stream",
	"KeepHijackedConns":    "its reader leaks with every request",
	"Hijack":               "the connection leaves keep-alive, drain and the books",
	"Splice":               "it cannot see the end of a chunked answer",
	"UnsafeConn":           "it drops pipelined bytes",
	"ReverseProxy":         "it broke streams on reused connections",
	"SetBodyStream":        "answers are relayed, not handed over",
	"CompressHandler":      "a compressor holds events back",
	"SetLinger":            "what is on its way to a client would be lost",
	"DefaultTransport":     "it takes proxies from the environment",
	"ProxyFromEnvironment": "the same",
}

// hotFiles are the parsed files of the packages through which every byte goes,
// without tests.
func hotFiles(t *testing.T) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	var out []*ast.File
	for _, folder := range []string{".", "../proxy"} {
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("no files in %s: %v", folder, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
	}
	return fset, out
}

func text(fset *token.FileSet, n ast.Node) string {
	var b strings.Builder
	_ = format.Node(&b, fset, n)
	return b.String()
}

// TestRawSystemCalls: those that bypass the scheduler cannot block, and a
// pointer becomes a number only inside the call itself, where the collector
// knows of it (rule 4 of package unsafe).
func TestRawSystemCalls(t *testing.T) {
	t.Parallel()
	fset, files := hotFiles(t)
	raw := 0
	for _, f := range files {
		inCall := map[ast.Node]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch name := text(fset, call.Fun); {
			case name == "syscall.RawSyscall" || name == "syscall.RawSyscall6":
				raw++
				number := text(fset, call.Args[0])
				if cannotBlock[number] == "" {
					t.Errorf("%s: %s bypasses the scheduler with %s, which may block", fset.Position(call.Pos()), name, number)
				}
				if number == "syscall.SYS_EPOLL_PWAIT" && text(fset, call.Args[4]) != "0" {
					t.Errorf("%s: epoll waits for %s", fset.Position(call.Pos()), text(fset, call.Args[4]))
				}
				if slices.Contains([]string{"syscall.SYS_SENDTO", "syscall.SYS_RECVFROM"}, number) && !strings.Contains(text(fset, call.Args[4]), "MSG_DONTWAIT") {
					t.Errorf("%s: %s without MSG_DONTWAIT", fset.Position(call.Pos()), number)
				}
				for _, a := range call.Args {
					inCall[a] = true
				}
			case name == "uintptr" && strings.HasPrefix(text(fset, call.Args[0]), "unsafe.Pointer(") && !inCall[n]:
				t.Errorf("%s: a pointer becomes a number outside a system call", fset.Position(call.Pos()))
			}
			return true
		})
	}
	if raw < 5 {
		t.Errorf("%d raw system calls were found; the test looks in the wrong place", raw)
	}
}

// TestNothingThatCostsAStream: names whose use was measured to be dear or
// unsafe for streams do not occur.
func TestNothingThatCostsAStream(t *testing.T) {
	t.Parallel()
	fset, files := hotFiles(t)
	names := 0
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			names++
			if why := mustNotOccur[sel.Sel.Name]; why != "" {
				t.Errorf("%s: %s: %s", fset.Position(sel.Pos()), text(fset, sel), why)
			}
			return true
		})
		for _, im := range f.Imports {
			if im.Path.Value == `"net/http/httputil"` {
				t.Errorf("%s imports httputil: its proxy broke streams on reused connections", fset.Position(im.Pos()))
			}
		}
	}
	if names < 1000 {
		t.Errorf("%d names were seen; the test looks in the wrong place", names)
	}
}
