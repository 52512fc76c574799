package chaos

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ramjet is the process under test. What it prints goes into a file: a long
// run has millions of lines.
type ramjet struct {
	t             testing.TB
	cmd           *exec.Cmd
	public, admin string
	log           string // file
	config        string // file
	engines       []string
	exited        chan struct{}
	once          sync.Once // stops it
	template      string    // of the configuration: the list of engines and a time are still open

	mu    sync.Mutex // guards the following, and the file
	lines []string   // of the engines
	away  []bool     // engines that the configuration does not name
	tie   time.Duration
}

// settings have limits short enough that every fault ends within a run.
const settings = `
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
tokens: {path: %q, max_time: 2s, cache: 16MiB}
health: {interval: 200ms, timeout: 500ms, successes: 2, stable: 500ms, slow_start: 500ms, failures: 3, stall: 2s}
eject: {after: 5, base: 500ms, max: 2s}
timeouts: {head: 8s, first_event: 8s, event_gap: 4s, total: 25s, client_write: 10s, drain: 5s, dial: 500ms}
limits: {body: 1MiB, body_memory: 64MiB}
log: {level: %s, format: json}
`

// startRamjet runs it in front of the addresses, engines named a, b, .. Below
// level info there are no access lines.
func startRamjet(t testing.TB, path string, addresses []string, model, level string) *ramjet {
	t.Helper()
	dir := t.TempDir()
	r := &ramjet{t: t, log: filepath.Join(dir, "log"), config: filepath.Join(dir, "ramjet.yaml"), exited: make(chan struct{})}
	r.template, r.tie = fmt.Sprintf(settings, model, level), 20*time.Millisecond
	for i, address := range addresses {
		r.engines = append(r.engines, string(rune('a'+i)))
		profile := []string{"mtp", "standard"}[i%2]
		r.lines = append(r.lines, fmt.Sprintf("  - {name: %s, url: http://%s, profile: %s}\n", r.engines[i], address, profile))
	}
	r.away = make([]bool, len(addresses))
	r.configure(func() {})
	ports := filepath.Join(dir, "ports")
	r.cmd = exec.Command(path, "serve", "--config", r.config, "--port-file", ports)
	out, err := os.Create(r.log)
	if err != nil {
		t.Fatalf("cannot make a log: %v", err)
	}
	defer func() { _ = out.Close() }()
	r.cmd.Stdout, r.cmd.Stderr = out, out
	// A race is printed and found by the ledger; it must not end the process.
	r.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0")
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("cannot start ramjet: %v", err)
	}
	go func() { _ = r.cmd.Wait(); close(r.exited) }()
	t.Cleanup(r.stopOnce)
	last := poll(20*time.Second, func() string {
		b, err := os.ReadFile(ports)
		if err != nil {
			return err.Error()
		}
		for l := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(l), "=")
			switch name {
			case "public":
				r.public = value
			case "admin":
				r.admin = value
			}
		}
		return ""
	})
	if last != "" {
		t.Fatalf("ramjet does not say its ports: %s\n%s", last, r.text())
	}
	return r
}

// configure changes the configuration's file.
func (r *ramjet) configure(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	text := r.template + "route: {tie: " + r.tie.String() + "}\nengines:\n"
	for i, line := range r.lines {
		if !r.away[i] {
			text += line
		}
	}
	if err := os.WriteFile(r.config+".new", []byte(text), 0o600); err != nil {
		r.t.Errorf("cannot write the configuration: %v", err)
	}
	if err := os.Rename(r.config+".new", r.config); err != nil {
		r.t.Errorf("cannot write the configuration: %v", err)
	}
}

// reload asks for what the file says. 501: this Ramjet cannot.
func (r *ramjet) reload() {
	if status := r.post("/-/reload"); status != 200 && status != 501 {
		r.t.Errorf("a reload was answered %d", status)
	}
}

// post sends an order to the admin port; the status is 0 without an answer.
func (r *ramjet) post(path string) int {
	resp, err := plainHTTP.Post("http://"+r.admin+path, "", http.NoBody)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// text is the end of the log, without access lines.
func (r *ramjet) text() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	var kept strings.Builder
	for l := range strings.Lines(string(b)) {
		if !strings.Contains(l, `"route_s"`) {
			kept.WriteString(l)
		}
	}
	text := kept.String()
	return text[max(0, len(text)-8000):]
}

// stopOnce ends the process, in order.
func (r *ramjet) stopOnce() { r.once.Do(r.stop) }

func (r *ramjet) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.exited:
	case <-time.After(15 * time.Second):
		r.t.Errorf("ramjet did not stop within 15 s of SIGTERM")
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		time.Sleep(time.Second)
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 && code != 66 { // 66: a race was found, which the ledger has told
		r.t.Errorf("ramjet exited with %d", code)
	}
}

// read returns the access lines, and what else was printed that is no line of
// the log.
func (r *ramjet) read() (lines []line, odd string, all int) {
	f, err := os.Open(r.log)
	if err != nil {
		r.t.Errorf("cannot read the log: %v", err)
		return nil, "", 0
	}
	defer func() { _ = f.Close() }()
	var other bytes.Buffer
	for s := bufio.NewReader(f); ; {
		b, err := s.ReadBytes('\n')
		if err != nil {
			return lines, other.String(), all
		}
		var l line
		switch {
		case json.Unmarshal(b, &l) != nil:
			if other.Len() < 1<<20 {
				other.Write(b)
			}
		case l.ID != "" && l.End != "":
			all++
			if ours(l.ID) {
				lines = append(lines, l)
			} else if testing.Verbose() {
				r.t.Logf("foreign line %s", b)
			}
		case bytes.Contains(b, []byte(`panic`)):
			other.Write(b)
		}
	}
}

// metrics reads the samples of /metrics: name with labels to value.
func (r *ramjet) metrics() map[string]float64 {
	status, body := get("http://" + r.admin + "/metrics")
	if status != 200 {
		return nil
	}
	m := map[string]float64{}
	for l := range strings.Lines(body) {
		name, value, ok := strings.Cut(strings.TrimSpace(l), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(l, "#") {
			m[name] = n
		}
	}
	return m
}

func sum(m map[string]float64, family string) (total float64) {
	for name, v := range m {
		if name == family || strings.HasPrefix(name, family+"{") {
			total += v
		}
	}
	return total
}

// engine is what the topology says of one.
type engineView struct {
	Name   string
	State  string
	Trust  string
	Why    string `json:"trust_reason"`
	Blocks int    `json:"index_blocks"`
}

func (r *ramjet) topology() (list []engineView) {
	_, body := get("http://" + r.admin + "/api/v1/topology")
	var v struct{ Engines []engineView }
	_ = json.Unmarshal([]byte(body), &v)
	return v.Engines
}

// awaitAll waits until every engine is ready and its record exact.
func (r *ramjet) awaitAll(limit time.Duration) string {
	return poll(limit, func() string {
		list := r.topology()
		if len(list) != len(r.engines) {
			return "no topology"
		}
		for _, e := range list {
			if e.State != "ready" || e.Trust != "exact" {
				return fmt.Sprintf("engine %s is %s, its record %s (%s)", e.Name, e.State, e.Trust, e.Why)
			}
		}
		return ""
	})
}

// figures measures the process.
func (r *ramjet) figures(peers []string) (f figures) {
	m := r.metrics()
	f.leases, f.leaseTokens, f.requests = sum(m, "ramjet_leases"), sum(m, "ramjet_lease_tokens"), int(sum(m, "ramjet_requests_total"))
	_, profile := get("http://" + r.admin + "/debug/pprof/goroutine?debug=1")
	f.goroutines = countGoroutines(profile)
	f.upstream, f.descriptors = r.descriptors(peers)
	_, heap := get("http://" + r.admin + "/debug/pprof/heap?gc=1&debug=1")
	if found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindStringSubmatch(heap); found != nil {
		f.heap, _ = strconv.Atoi(found[1])
	}
	f.index = map[string]int{}
	for _, e := range r.topology() {
		f.index[e.Name] = e.Blocks
	}
	return f
}

// countGoroutines reads pprof's debug=1 form, without those that answer this
// very question or keep a connection of the prober, which counts as a socket.
func countGoroutines(profile string) (total int) {
	for group := range strings.SplitSeq(profile, "\n\n") {
		if strings.HasPrefix(group, "goroutine profile:") {
			_, group, _ = strings.Cut(group, "\n")
		}
		count, _, ok := strings.Cut(strings.TrimSpace(group), " @")
		n, err := strconv.Atoi(count)
		if ok && err == nil && !strings.Contains(group, "runtime/pprof.") && !strings.Contains(group, "net/http.(*persistConn)") {
			total += n
		}
	}
	return total
}

// descriptors counts open ones: sockets whose peer is one of the addresses, and
// all others.
func (r *ramjet) descriptors(peers []string) (upstream, others int) {
	dir := fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.t.Errorf("cannot list descriptors: %v", err)
		return 0, 0
	}
	ports := map[int]bool{}
	for _, p := range peers {
		n, _ := strconv.Atoi(p[strings.LastIndex(p, ":")+1:])
		ports[n] = true
	}
	byInode := peerPorts()
	for _, entry := range entries {
		link, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if ports[byInode[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")]] {
			upstream++
		} else {
			others++
		}
	}
	return upstream, others
}

// peerPorts maps the inode of every TCP socket to its peer's port.
func peerPorts() map[string]int {
	ports := map[string]int{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // no IPv6
		}
		for l := range strings.Lines(string(text)) {
			w := strings.Fields(l)
			if len(w) < 10 {
				continue
			}
			_, port, _ := strings.Cut(w[2], ":")
			if b, err := hex.DecodeString(port); err == nil && len(b) == 2 {
				ports[w[9]] = int(b[0])<<8 | int(b[1])
			}
		}
	}
	return ports
}

// rss is the resident memory in bytes.
func (r *ramjet) rss() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10
		}
	}
	return 0
}
