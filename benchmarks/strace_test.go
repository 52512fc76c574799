package benchmarks

import (
	"errors"
	"io"
	"maps"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const straceListing = `10 1796021691.000001 epoll_pwait(0x4, 0xc000, 0x80, 0, 0, 0) = 0x1
11 1796021691.100000 read(0x9, 0xc000, 0x1000) = 0xfd
10 1796021691.100050 epoll_pwait(0x4, 0xc000, 0x80, 0xffffffff, 0, 0 <unfinished ...>
11 1796021691.100100 write(0xa, 0xc000, 0xfd) = 0xfd
10 1796021691.100200 <... epoll_pwait resumed>) = 0x1
12  1796021691.100300 futex(0x1, 0x80, 0, 0, 0, 0) = ?
12 1796021691.100400 +++ exited with 0 (core dumped) +++
11 1796021691.200000 read(0x9, 0xc000, 0x1000) = -1 (errno 11)
`

func TestParseStrace(t *testing.T) {
	t.Parallel()
	start, end := time.UnixMicro(1796021691_050000), time.UnixMicro(1796021691_200000)
	calls, err := parseStrace([]byte(straceListing), start, end)
	want := map[string]int64{"read": 1, "epoll_pwait": 1, "write": 1, "futex": 1}
	if err != nil || !maps.Equal(calls, want) {
		t.Errorf("got %v, want %v: %v", calls, want, err)
	}
	if calls, err := parseStrace(nil, start, end); err != nil || len(calls) != 0 {
		t.Errorf("a process that made no call: %v %v", calls, err)
	}
	for _, bad := range []string{"10 read(0x1) = 1\n", "10 1.5 read(0x1) = 1\n", "10 x.000001 read(0x1) = 1\n"} {
		if _, err := parseStrace([]byte(bad), start, end); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestPerToken(t *testing.T) {
	t.Parallel()
	busy := map[string]int64{"read": 1000, "write": 500, "futex": 50}
	idle := map[string]int64{"futex": 20, "read": 10, "nanosleep": 3}
	got := perToken(busy, 5, idle, 2, 500) // 2.5 times the idle window
	r := SyscallRecord{PerToken: got}
	if math.Abs(got["read"]-1.95) > 1e-9 || math.Abs(got["write"]-1) > 1e-9 || got["futex"] != 0 || math.Abs(r.total()-2.95) > 1e-9 || math.Abs(r.difference()-2.95) > 1e-9 || r.scheduler() != 0 {
		t.Errorf("%v", got)
	}
}

// What an idle process does more often than a busy one must not hide calls that tokens cost.
func TestIdleCallsGiveNoCredit(t *testing.T) {
	t.Parallel()
	r := SyscallRecord{PerToken: perToken(map[string]int64{"read": 200, "nanosleep": 10}, 1, map[string]int64{"nanosleep": 60}, 1, 100)}
	if math.Abs(r.total()-2) > 1e-9 || math.Abs(r.difference()-1.5) > 1e-9 || r.scheduler() != 0 {
		t.Errorf("total %v, difference %v, scheduler %v", r.total(), r.difference(), r.scheduler())
	}
}

// The trace of a real process: what it does between began and the end of ended is counted, exactly, and it goes on
// afterwards.
func TestCountSyscallsOfAProcess(t *testing.T) {
	t.Parallel()
	strace, err := FindTool("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	cmd := exec.Command("cat")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatalf("cannot start cat: %v", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	echo := func(times int) error {
		for range times {
			if _, err := in.Write([]byte{'x'}); err != nil {
				return err
			}
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
				return err
			}
		}
		return nil
	}
	calls, err := countSyscalls(strace, t.TempDir(), []int{cmd.Process.Pid}, 50*time.Millisecond,
		func() error { return echo(7) }, func() error { return echo(20) })
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skipf("this system does not allow tracing: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if calls["write"] != 20 || calls["read"] < 19 || calls["read"] > 21 { // cat's last read may begin after the window
		t.Errorf("20 echoes gave the calls %v", calls)
	}
	if err := echo(1); err != nil {
		t.Errorf("the process did not survive: %v", err)
	}
}
