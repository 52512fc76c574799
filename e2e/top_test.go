//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramjet/e2e/rig"
)

// screen is a terminal that a program runs in.
type screen struct {
	t       *testing.T
	master  *os.File
	slave   *os.File
	cmd     *exec.Cmd
	before  unix.Termios
	drained chan struct{}

	mu  sync.Mutex // guards the following
	out bytes.Buffer
}

// openScreen makes a terminal (pty(7)) and starts a program that it controls.
func openScreen(t *testing.T, columns, rows uint16, path string, args ...string) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	s := &screen{t: t, master: master, drained: make(chan struct{})}
	var n int
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if n, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN); err != nil {
		t.Fatal(err)
	}
	if s.slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Skipf("no terminal can be opened here: %v", err)
	}
	s.resize(columns, rows)
	s.before = s.mode()
	s.cmd = exec.Command(path, args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.drain()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.slave.Close()
		_ = s.master.Close()
		<-s.drained
	})
	return s
}

func (s *screen) drain() {
	defer close(s.drained)
	b := make([]byte, 4096)
	for {
		n, err := s.master.Read(b)
		s.mu.Lock()
		s.out.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) resize(columns, rows uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) mode() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// text is what was written since mark bytes.
func (s *screen) text(mark int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()[mark:]
}

func (s *screen) await(mark int, what string, seen func(text string) bool) {
	s.t.Helper()
	rig.Eventually(s.t, 2*rig.Patience, what, func() string {
		if text := s.text(mark); !seen(text) {
			return fmt.Sprintf("the screen holds %.2000q", text)
		}
		return ""
	})
}

// leaves waits for the end of the program and demands that the terminal is as
// it was.
func (s *screen) leaves() {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			s.t.Errorf("it ended with %v:\n%.2000q", err, s.text(0))
		}
	case <-time.After(2 * rig.Patience):
		s.t.Fatalf("it did not end:\n%.2000q", s.text(0))
	}
	if now := s.mode(); now != s.before {
		s.t.Errorf("the terminal's mode is %+v, was %+v", now, s.before)
	}
	s.await(0, "screen given back", func(text string) bool { return strings.HasSuffix(text, "\x1b[?25h\x1b[?1049l") })
}

// frame returns the lines of the last whole picture.
func frame(text string) []string {
	text = strings.ReplaceAll(text, "\r\r\n", "\r\n") // a terminal puts a return before each line feed
	end := strings.LastIndex(text, "\x1b[K\x1b[J")
	if end < 0 {
		return nil
	}
	start := strings.LastIndex(text[:end], "\x1b[H")
	return strings.Split(text[start+len("\x1b[H"):end], "\x1b[K\r\n")
}

func width(lines []string) (most int) {
	for _, l := range lines {
		most = max(most, len(l))
	}
	return most
}

// The live view follows what happens and the size of its terminal, q and
// Ctrl-C end it, and the terminal is then as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	s := openScreen(t, 80, 24, rig.Binary(t, ""), "top", "--admin="+r.Admin, "--interval=100ms")
	s.await(0, "a picture", func(text string) bool {
		f := frame(text)
		return len(f) > 6 && strings.HasPrefix(f[0], "Ramjet ") && strings.HasPrefix(f[4], "ENGINE ") && strings.HasPrefix(f[5], "a ") && strings.HasPrefix(f[6], "b ")
	})
	if f := frame(s.text(0)); len(f) > 24 || width(f) > 80 {
		t.Errorf("%d lines of %d on 80x24:\n%s", len(f), width(f), strings.Join(f, "\n"))
	}
	if !strings.HasPrefix(s.text(0), "\x1b[?1049h\x1b[?25l") {
		t.Errorf("it does not draw on a screen of its own: %.100q", s.text(0))
	}
	if now := s.mode(); now.Lflag&(unix.ICANON|unix.ECHO) != 0 {
		t.Errorf("keys wait for a line: %+v", now)
	}
	r.Post(t, rig.ChatPath, rig.ChatBody(false))
	s.await(0, "a decision", func(text string) bool { return strings.Contains(strings.Join(frame(text), "\n"), " done") })

	mark := len(s.text(0))
	s.resize(120, 9)
	s.await(mark, "the new size", func(text string) bool {
		f := frame(text)
		return len(f) > 0 && len(f) <= 9 && strings.Contains(strings.Join(f, "\n"), "TPOT")
	})
	s.press("x\x1a\x1c") // no key of ours, and the keys that would stop or kill it
	mark = len(s.text(0))
	s.await(mark, "more pictures", func(text string) bool { return strings.Count(text, "\x1b[H") > 2 })
	s.press("q")
	s.leaves()

	s = openScreen(t, 100, 30, rig.Binary(t, ""), "top", "--admin="+r.Admin)
	s.await(0, "a picture", func(text string) bool { return frame(text) != nil })
	s.press("\x03")
	s.leaves()

	s = openScreen(t, 100, 30, rig.Binary(t, ""), "top", "--admin="+r.Admin)
	s.await(0, "a picture", func(text string) bool { return frame(text) != nil })
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.leaves()
}

// A Ramjet that stops answering leaves its last picture, marked.
func TestTopOutlivesItsRamjet(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Loose: true})
	s := openScreen(t, 100, 24, rig.Binary(t, ""), "top", "--admin="+r.Admin, "--interval=100ms")
	s.await(0, "a picture", func(text string) bool { return frame(text) != nil })
	r.Stop()
	s.await(0, "the fault", func(text string) bool {
		f := frame(text)
		return len(f) > 6 && strings.HasPrefix(f[0], "NO ANSWER for ") && strings.HasPrefix(f[5], "a ")
	})
	s.press("q")
	s.leaves()
}

func TestTopOnceForScripts(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	out, err := exec.Command(rig.Binary(t, ""), "top", "--once", "--admin="+r.Admin).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("\x1b")) || !bytes.Contains(out, []byte("\nENGINE ")) || !bytes.Contains(out, []byte("\na ")) || !bytes.Contains(out, []byte(" done")) {
		t.Errorf("%v\n%s", err, out)
	}
	// In a terminal too, --once draws nothing.
	s := openScreen(t, 100, 24, rig.Binary(t, ""), "top", "--once", "--admin="+r.Admin)
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	s.await(0, "the picture", func(text string) bool { return strings.Contains(text, "\r\nENGINE ") })
	if text := s.text(0); strings.Contains(text, "\x1b") {
		t.Errorf("%.1000q", text)
	}
	for args, code := range map[string]int{"top --once --admin=127.0.0.1:1": 1, "top --onec": 2, "top now": 2} {
		cmd := exec.Command(rig.Binary(t, ""), strings.Fields(args)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("%s: %v, want status %d\n%s", args, err, code, out)
		}
	}
}
