package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// script writes a program that stands for nvidia-smi.
func script(t *testing.T, body string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "nvidia-smi")
	// A child that is forked while the file is open for writing keeps it so,
	// and a file that is written to cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// collect reads a source until it breaks or n readings came.
func collect(t *testing.T, s Source, n int) (got []Reading, err error) {
	t.Helper()
	if smi, ok := s.(*SMI); ok {
		smi.ends = time.Minute // a busy machine is no driver that hangs
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var mu sync.Mutex // Read delivers from one goroutine; the detector may check
	err = s.Read(ctx, func(r Reading) {
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, r); len(got) == n {
			cancel()
		}
	})
	return got, err
}

const twoRows = `echo 'index, name, utilization.gpu [%]'
while :; do echo '0, one, 50 %'; echo '1, two, [N/A]'; sleep 0.05; done`

func TestSMIDelivers(t *testing.T) {
	t.Parallel()
	before := time.Now()
	s := NewSMI(script(t, twoRows))
	s.interval = 40 * time.Millisecond
	got, err := collect(t, s, 8)
	if !errors.Is(err, context.Canceled) || len(got) != 8 {
		t.Fatalf("%d readings, %v", len(got), err)
	}
	for i, r := range got {
		if len(r.Samples) != 1 || r.Samples[0].Index != i%2 || r.Samples[0].At.Before(before) {
			t.Errorf("reading %d: %+v", i, r)
		}
	}
	if d := got[0].Interval; d != s.interval {
		t.Errorf("first interval %s, want what was asked for", d)
	}
	if d := got[7].Interval; d < 40*time.Millisecond || d > 5*time.Second {
		t.Errorf("interval %s, rows come each 50 ms", d)
	}
}

// An older driver refuses fields one after the other; the query shrinks until
// it is understood.
func TestSMILeavesOutWhatADriverDoesNotKnow(t *testing.T) {
	t.Parallel()
	got, err := collect(t, NewSMI(script(t, `case "$1" in
*power.draw.instant*) echo 'Field "power.draw.instant" is not a valid field to query.'; echo; exit 2;;
*clocks_event_reasons.active*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.' >&2; exit 2;;
*mig.mode.current*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;;
esac
[ "$2 $3 $4" = '--format=csv -lms 500' ] || exit 3
echo "${1#--query-gpu=}" | sed 's/,/, /g'
echo '2026/11/30 12:00:00.000, 7, GPU-x, old, 1 %, 2 MiB, 3 MiB, 4.00 W, 5.00 W, 6.00 W, 7, 8 MHz, 0x0000000000000020'
sleep 10`)), 1)
	if !errors.Is(err, context.Canceled) || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if s := got[0].Samples[0]; s.Index != 7 || s.PowerW != 4 || s.PowerLimitW != 5 || s.Throttle[0] != "thermal" || time.Since(s.At) > time.Minute {
		t.Errorf("%s", show(s))
	}
}

func TestSMISaysWhyItEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"no driver":      {`echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; echo; exit 9`, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."},
		"no device":      {`echo 'No devices were found'; exit 6`, "No devices were found"},
		"to stderr":      {`echo 'lost' >&2; exit 1`, "lost"},
		"killed":         {`kill -9 $$`, "it ended: signal: killed"},
		"status":         {`exit 3`, "it ended: exit status 3"},
		"quietly":        {`exit 0`, "it ended"},
		"refused twice":  {`echo 'Field "nonsense" is not a valid field to query.'; exit 2`, "it does not know the field nonsense"},
		"after rows":     {"echo 'index, name'; echo '0, one'; echo 'GPU is lost'; exit 15", "GPU is lost"},
		"a long line":    {`head -c 100000 /dev/zero | tr '\0' x; echo; exec sleep 20`, "it said a line that is too long"},
		"a long message": {`printf '%300s\n' x | tr ' ' y; exit 1`, strings.Repeat("y", 200) + ".."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := collect(t, NewSMI(script(t, c.body)), 100); err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	if _, err := collect(t, NewSMI("/nowhere/nvidia-smi"), 1); err == nil || !strings.Contains(err.Error(), "cannot start it") {
		t.Errorf("%v", err)
	}
}

// A driver that hangs holds nvidia-smi with it.
func TestSMIThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	s := NewSMI(script(t, "echo $$ >"+pid+"; echo 'index, name'; echo '0, one'; sleep 60"))
	s.silence = 3 * time.Second
	got, err := collect(t, s, 100)
	if err == nil || err.Error() != "it said nothing for 3s" || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	wantGone(t, pid)
}

// The end of a Read is the end of all that it started, also of what a wrapper
// started, and of whoever holds the pipe.
func TestSMILeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, child := filepath.Join(dir, "pid"), filepath.Join(dir, "child")
	got, err := collect(t, NewSMI(script(t, "echo $$ >"+pid+"; sleep 60 & echo $! >"+child+"; echo 'index, name'; echo '0, one'; wait")), 1)
	if !errors.Is(err, context.Canceled) || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	wantGone(t, pid)
	wantGone(t, child)
}

// wantGone demands that the process whose id a file holds has ended.
func wantGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || zombie(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond) // an orphan ends when its signal is delivered, and nothing tells us
	}
	t.Errorf("process %d still runs", pid)
}

// zombie reports whether a process has ended and only its parent, here the
// system's first process, has not looked yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// TestSMIWaitsNotForEver: a child that does not end once it was killed, as one
// inside a hung driver, is left alone, and no other one is started beside it.
func TestSMIWaitsNotForEver(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := &SMI{path: "/bin/false", interval: time.Second, silence: time.Second, ends: time.Minute, stuck: ended}
	if err := s.run(t.Context(), []string{"index"}, nil); !errors.Is(err, errStuck) {
		t.Errorf("%v, want %v", err, errStuck)
	}
	ended <- nil
	if err := s.run(t.Context(), []string{"index"}, func(Reading) {}); errors.Is(err, errStuck) {
		t.Error("still stuck after its end")
	}
}
