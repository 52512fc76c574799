package lab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// asParent makes the test binary a program that starts a child and waits to be killed.
const asParent = "RAMJET_LAB_PARENT"

// living says whether a process runs; one that nobody has waited for yet does not.
func living(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && !strings.HasPrefix(rest, "Z")
}

func TestChildEndsWithAKilledProgram(t *testing.T) {
	if os.Getenv(asParent) != "" {
		cmd := exec.Command("sleep", "600")
		if err := StartChild(cmd); err != nil {
			t.Fatal(err)
		}
		fmt.Println("child", cmd.Process.Pid)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildEndsWithAKilledProgram$", "-test.timeout=5m")
	parent.Env = append(os.Environ(), asParent+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			pid, err = strconv.Atoi(text)
		}
	}
	alive := pid > 0 && living(pid)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if err != nil || !alive {
		t.Fatalf("no child to look at: %d, %v", pid, err)
	}
	for end := time.Now().Add(time.Minute); living(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
			t.Fatal("the child outlived its program by a minute")
		}
	}
}

// Whoever asks for a child may be on a thread that ends.
func TestChildOutlivesAThread(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never given back: the thread ends with this function
		started <- StartChild(cmd)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("it ended with the thread: %v", err)
	case <-time.After(300 * time.Millisecond):
		_ = cmd.Process.Kill()
		<-ended
	}
}
