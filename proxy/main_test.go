package proxy

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails the package when its tests leave goroutines or descriptors
// behind: every server, engine and client of a test must be gone at the end.
func TestMain(m *testing.M) {
	// Most tests wait for something most of their time, so two cores serve
	// more than two of them.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic("BUG: " + err.Error())
	}
	goroutines, files := runtime.NumGoroutine(), len(openFiles())
	code := m.Run()
	if !settled(func() bool {
		runtime.GC() // ends the pipes that the runtime keeps for its next copy from socket to socket
		return runtime.NumGoroutine() <= goroutines && len(openFiles()) <= files+spareFiles
	}) {
		fmt.Fprintf(os.Stderr, "FAIL: %d goroutines and %d descriptors at the end, %d and %d at the start\n",
			runtime.NumGoroutine(), len(openFiles()), goroutines, files)
		for _, file := range openFiles() {
			fmt.Fprintln(os.Stderr, file)
		}
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// spareFiles is what the runtime itself may keep once it polls: its epoll set
// and the event that wakes it, and what the resolver read.
const spareFiles = 4

// openFiles tells this process's descriptors and what each of them is.
func openFiles() (files []string) {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, name := range names {
		to, err := os.Readlink("/proc/self/fd/" + name.Name())
		if err == nil { // the folder's own is closed by now
			files = append(files, name.Name()+" "+to)
		}
	}
	return files
}

// settled waits until cond holds and reports whether it came to that.
func settled(cond func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return true
		}
	}
	return cond()
}

// patience is how long a test waits for what must happen. It is only ever
// spent by a test that fails.
const patience = 30 * time.Second

// eventually fails t unless cond comes to hold.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !settled(cond) {
		t.Fatalf("waited in vain: %s", what)
	}
}
