package rig

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Resources is what a process holds. Connections to engines are counted apart
// from the other descriptors: some stay open in the pool by design.
type Resources struct {
	goroutines int
	fds        int // without sockets to engines
	upstream   int // sockets to engines
}

// resources measures the process. Idle workers of the HTTP server's pool
// (fasthttp keeps them for some seconds) are not counted: they belong to no
// request.
func (r *Ramjet) resources() Resources {
	r.T.Helper()
	upstream, fds := r.descriptors()
	return Resources{goroutines: r.goroutines(), fds: fds, upstream: upstream}
}

func (r *Ramjet) goroutines() int {
	r.T.Helper()
	status, body := r.AdminGet("/debug/pprof/goroutine?debug=1")
	if status != 200 {
		r.T.Fatalf("/debug/pprof/goroutine: %d %s", status, body)
	}
	n, err := countGoroutines(body)
	if err != nil {
		r.T.Fatalf("/debug/pprof/goroutine: %v", err)
	}
	return n
}

// countGoroutines reads the debug=1 form: groups of `N @ addresses` followed by
// the stack as comments. Idle pool workers and those that answer this very
// question are left out.
func countGoroutines(profile string) (int, error) {
	total := 0
	for _, group := range strings.Split(profile, "\n\n") {
		for len(group) > 0 && (strings.HasPrefix(group, "goroutine profile:") || group[0] == '\n') {
			_, group, _ = strings.Cut(group, "\n")
		}
		if group == "" {
			continue
		}
		count, _, _ := strings.Cut(group, " @")
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil {
			return 0, fmt.Errorf("group %.80q", group)
		}
		if !ownOrIdle(group) {
			total += n
		}
	}
	return total, nil
}

func ownOrIdle(stack string) bool {
	idleWorker := strings.Contains(stack, "workerPool).workerFunc") && !strings.Contains(stack, "serveConn")
	probe := strings.Contains(stack, "net/http.(*persistConn).readLoop") || // a kept connection of the prober,
		strings.Contains(stack, "net/http.(*persistConn).writeLoop") // counted among the sockets
	return idleWorker || probe || strings.Contains(stack, "runtime/pprof.")
}

// descriptors counts open descriptors: sockets whose peer is one of the engines
// and all others.
func (r *Ramjet) descriptors() (upstream, others int) {
	r.T.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", r.Cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.T.Fatalf("cannot list descriptors: %v", err)
	}
	peers := peerPorts(r.T)
	ports := r.enginePorts()
	for _, entry := range entries {
		link, err := os.Readlink(dir + "/" + entry.Name())
		if err != nil {
			continue // closed meanwhile
		}
		inode := strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")
		if ports[peers[inode]] {
			upstream++
		} else {
			others++
		}
	}
	return upstream, others
}

func (r *Ramjet) enginePorts() map[int]bool {
	ports := map[int]bool{}
	addrs := append([]string(nil), r.Setup.URLs...)
	for _, e := range r.Setup.Engines {
		addrs = append(addrs, e.Addr)
	}
	for _, a := range addrs {
		if n, err := strconv.Atoi(a[strings.LastIndex(a, ":")+1:]); err == nil {
			ports[n] = true
		}
	}
	return ports
}

// peerPorts maps the inode of every TCP socket of this machine to the port of
// its peer.
func peerPorts(t testing.TB) map[string]int {
	t.Helper()
	ports := map[string]int{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(file)
		if err != nil {
			continue // no IPv6
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			w := strings.Fields(lines.Text())
			if len(w) < 10 || w[9] == "inode" {
				continue
			}
			_, port, _ := strings.Cut(w[2], ":")
			if b, err := hex.DecodeString(port); err == nil && len(b) == 2 {
				ports[w[9]] = int(b[0])<<8 | int(b[1])
			}
		}
		_ = f.Close()
	}
	return ports
}

// RSS is the resident memory of the process in bytes.
func (r *Ramjet) RSS() int {
	r.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
	if err != nil {
		r.T.Fatalf("cannot read the process status: %v", err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err == nil {
				return kb << 10
			}
		}
	}
	r.T.Fatalf("no VmRSS in %q", b)
	return 0
}
