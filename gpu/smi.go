package gpu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// smiInterval is how often nvidia-smi is asked to look; smiSilence is how long
// it may say nothing before it counts as hung, as it does when the driver is.
const (
	smiInterval = 500 * time.Millisecond
	smiSilence  = 10 * time.Second
)

// smiFields are asked for in one query. A driver that does not know one says
// which (older ones call the event reasons throttle reasons, and have neither
// instant power nor MIG); it is then left out.
var smiFields = []string{
	"timestamp", "index", "uuid", "name", "mig.mode.current", "utilization.gpu", "memory.used", "memory.total",
	"power.draw.instant", "power.draw", "enforced.power.limit", "power.limit", "temperature.gpu", "clocks.current.sm",
	"clocks_event_reasons.active", "clocks_throttle_reasons.active",
}

// SMI reads the GPUs of this machine through one nvidia-smi that runs for as
// long as it is read. It implements Source.
type SMI struct {
	path     string
	interval time.Duration
	silence  time.Duration
	ends     time.Duration
	stuck    <-chan error // of a child that was killed and did not end
}

// smiEnds is how long a killed child may take to end. One that waits inside a
// hung driver cannot be ended at all.
const smiEnds = 2 * time.Second

var errStuck = errors.New("it was killed and does not end; its driver hangs")

// NewSMI returns a source that runs the program at path.
func NewSMI(path string) *SMI {
	return &SMI{path: path, interval: smiInterval, silence: smiSilence, ends: smiEnds}
}

// Name implements Source.
func (*SMI) Name() string { return "nvidia-smi" }

// Host implements Source: this machine.
func (*SMI) Host() string { return "" }

// Read implements Source.
func (s *SMI) Read(ctx context.Context, deliver func(Reading)) error {
	fields := slices.Clone(smiFields)
	for {
		err := s.run(ctx, fields, deliver)
		var unknown *unknownFieldError
		if !errors.As(err, &unknown) || !slices.Contains(fields, unknown.field) {
			return err
		}
		fields = slices.DeleteFunc(fields, func(f string) bool { return f == unknown.field })
	}
}

// unknownFieldError is nvidia-smi's refusal of a field of the query.
type unknownFieldError struct{ field string }

func (e *unknownFieldError) Error() string { return "it does not know the field " + e.field }

// run starts one nvidia-smi and reads it to its end.
func (s *SMI) run(ctx context.Context, fields []string, deliver func(Reading)) error {
	if len(s.stuck) == 0 && s.stuck != nil {
		return errStuck // another one would hang as well
	}
	s.stuck = nil
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot read it: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, s.path, "--query-gpu="+strings.Join(fields, ","), "--format=csv",
		"-lms", strconv.FormatInt(s.interval.Milliseconds(), 10))
	// One pipe for both: what it complains of explains why there are no rows.
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = childAttributes()
	runtime.LockOSThread() // it lives no longer than this thread
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		return fmt.Errorf("cannot start it: %w", err)
	}
	// Whoever still holds the pipe's other end does not hold us.
	closed := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer closed()
	watchdog := time.AfterFunc(s.silence, func() { cancel(fmt.Errorf("it said nothing for %s", s.silence)) })
	defer watchdog.Stop()

	said, err := s.rows(ctx, out, watchdog, deliver)
	if err != nil {
		cancel(err)
	}
	cancelled := context.Cause(ctx)
	cancel(nil) // it closed its output but may still run
	ended, gone := s.wait(cmd)
	switch {
	case !gone:
		return errStuck
	case cancelled != nil:
		return cancelled
	case said != "":
		return errors.New(said)
	case ended != nil && !errors.Is(ended, context.Canceled): // which is ours
		return fmt.Errorf("it ended: %w", ended)
	}
	return errEnded
}

// wait waits for the end of a child that was killed, and not for ever.
func (s *SMI) wait(cmd *exec.Cmd) (ended error, gone bool) {
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	limit := time.NewTimer(s.ends)
	defer limit.Stop()
	select {
	case ended = <-waited:
		return ended, true
	case <-limit.C:
		s.stuck = waited
		return nil, false
	}
}

// rows delivers the rows of an output and returns the last line that was none.
func (s *SMI) rows(ctx context.Context, out io.Reader, watchdog *time.Timer, deliver func(Reading)) (said string, err error) {
	var table Table
	var beat pace
	first := -1
	lines := bufio.NewScanner(out)
	lines.Split(wholeLines)
	for ctx.Err() == nil && lines.Scan() {
		watchdog.Reset(s.silence)
		sample, kind := table.Line(lines.Text())
		if kind == RowOther {
			if field, ok := refused(lines.Text()); ok {
				return "", &unknownFieldError{field}
			}
			if text := strings.TrimSpace(lines.Text()); text != "" {
				said = clip(text)
			}
		}
		if kind != RowSample {
			continue
		}
		sample.At = believed(sample.At, time.Now())
		if first < 0 {
			first = sample.Index
		}
		if sample.Index == first {
			beat.tick(sample.At)
		}
		said = ""
		// Rows that a late reader finds together seem to follow at once; it never
		// looks more often than it was told to.
		deliver(Reading{Interval: max(beat.interval(), s.interval), Samples: []Sample{sample}})
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return "", errLongLine
	}
	return said, nil
}

var errLongLine = errors.New("it said a line that is too long")

// believed is the time that a row names, which is right even where rows come
// late through a full pipe, unless its clock or time zone is not ours.
func believed(at, now time.Time) time.Time {
	if off := now.Sub(at); off < -time.Second || off > time.Minute {
		return now
	}
	return at
}

// wholeLines is bufio.ScanLines without the last line that has no end: half a
// number is another number.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// refused finds the field in: Field "x" is not a valid field to query.
func refused(line string) (field string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), `Field "`)
	if !ok {
		return "", false
	}
	field, rest, ok = strings.Cut(rest, `"`)
	return field, ok && strings.Contains(rest, "not a valid field")
}

// clip bounds a text from outside.
func clip(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + ".."
	}
	return text
}
