//go:build linux || darwin

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a screen that pictures are drawn on. restore gives it back as it
// was.
type terminal struct {
	in, out *os.File
	before  *unix.Termios // of in; nil if it was not changed
	resized chan os.Signal
	keys    chan byte // closed when none will come
	quit    chan struct{}
	done    chan struct{} // closed when nobody reads in any more
}

// What the screen is told (ECMA-48, and xterm's private modes 1049 and 25).
const (
	screenEnter = "\x1b[?1049h\x1b[?25l\x1b[2J" // another screen, no cursor, empty
	screenLeave = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineEnd     = "\x1b[K\r\n" // nothing stays behind the line
	screenEnd   = "\x1b[K\x1b[J"
)

// readWait is how long a read waits for a key, so that its reader can be
// stopped; terminals count in tenths of a second.
const readWait = 200 * time.Millisecond

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), termiosGet)
	return err == nil
}

// openTerminal takes the screen. Lines and echo are switched off, so that a
// key counts at once; Ctrl-C stays a signal, and the keys that would stop the
// process without giving the screen back do nothing.
func openTerminal(in, out *os.File) (*terminal, error) {
	t := &terminal{in: in, out: out, resized: make(chan os.Signal, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if in != nil && isTerminal(in) {
		before, err := unix.IoctlGetTermios(int(in.Fd()), termiosGet)
		if err != nil {
			return nil, fmt.Errorf("cannot read the terminal's mode: %w", err)
		}
		raw := *before
		raw.Lflag &^= unix.ICANON | unix.ECHO
		raw.Cc[unix.VSUSP], raw.Cc[unix.VQUIT] = 0, 0 // _POSIX_VDISABLE
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, uint8(readWait/(100*time.Millisecond))
		if err := unix.IoctlSetTermios(int(in.Fd()), termiosSet, &raw); err != nil {
			return nil, fmt.Errorf("cannot set the terminal's mode: %w", err)
		}
		t.before = before
		t.keys = make(chan byte)
		go t.readKeys()
	} else {
		close(t.done)
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	if _, err := t.out.WriteString(screenEnter); err != nil {
		t.restore()
		return nil, fmt.Errorf("cannot write to the terminal: %w", err)
	}
	return t, nil
}

// readKeys passes keys on until quit, or until the terminal is gone.
func (t *terminal) readKeys() {
	defer close(t.done)
	defer close(t.keys)
	var b [64]byte
	for {
		from := time.Now()
		n, err := unix.Read(int(t.in.Fd()), b[:])
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return
		}
		if err == nil && n == 0 && time.Since(from) < readWait/2 {
			return // a terminal that is gone does not wait
		}
		for _, key := range b[:max(n, 0)] {
			select {
			case t.keys <- key:
			case <-t.quit:
				return
			}
		}
		select {
		case <-t.quit:
			return
		default:
		}
	}
}

// draw shows what lines makes of the screen's size.
func (t *terminal) draw(lines func(width, height int) []string) error {
	width, height := onceColumns, 24
	if size, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	if _, err := t.out.WriteString(screenHome + strings.Join(lines(width, height), lineEnd) + screenEnd); err != nil {
		return fmt.Errorf("cannot write to the terminal: %w", err)
	}
	return nil
}

// restore gives the terminal back.
func (t *terminal) restore() {
	signal.Stop(t.resized)
	close(t.quit)
	<-t.done
	_, _ = t.out.WriteString(screenLeave)
	if t.before != nil {
		_ = unix.IoctlSetTermios(int(t.in.Fd()), termiosSet, t.before)
	}
}
