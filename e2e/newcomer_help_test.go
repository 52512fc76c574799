package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/ports"
	"ramjet/e2e/rig"
)

// evening is what a newcomer has before them: a folder, terminals, a browser.
type evening struct {
	t          testing.TB // whose end ends all that was started
	repository string
	python     string // that has the openai package
	home, dir  string // a folder of their own; the clone in it
	window     *window

	demo, serve     *terminal
	sims            map[string]*terminal
	page, public    string // URLs; page ends with /
	asked, answered string // request id and engine of the SDK's call
	prometheus      string // URL; "" = there is none
	noPrometheus    string // why

	client  http.Client // of the load
	load    sync.WaitGroup
	stop    chan struct{} // ends the load
	stopped sync.Once
	served  atomic.Int64

	mu       sync.Mutex // guards troubles
	troubles []string   // of the load
}

// newEvening skips the test where something is missing that a newcomer would
// have.
func newEvening(t *testing.T) *evening {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	e := &evening{t: t, repository: root, python: filepath.Join(root, ".venv/bin/python"), home: t.TempDir(), sims: map[string]*terminal{}, stop: make(chan struct{}),
		client: http.Client{Timeout: 12 * rig.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	for _, tool := range []string{"git", "make", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is missing (apt-get install " + tool + ")")
		}
	}
	if chromiumPath() == "" {
		t.Skip("chromium is missing (apt-get install chromium, or set CHROMIUM to a Chromium or Chrome)")
	}
	if _, err := os.Stat(e.python); err != nil {
		t.Skip("the Python SDKs are not installed; `make test` installs them into .venv")
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("this is no git repository that could be cloned")
	}
	e.window = openWindow(t)
	return e
}

// asItStands puts what is not committed yet into the clone, so that what is
// tested is what stands here.
func (e *evening) asItStands(t *testing.T) {
	t.Helper()
	git := []string{"-c", "safe.directory=*", "-c", "core.quotePath=false"}
	changed := e.run(t, e.repository, "git", append(git, "diff", "--name-only", "--no-renames", "-z", "HEAD")...)
	added := e.run(t, e.repository, "git", append(git, "ls-files", "--others", "--exclude-standard", "-z")...)
	for name := range strings.SplitSeq(strings.Trim(changed+added, "\x00"), "\x00") {
		if name == "" {
			continue
		}
		from, to := filepath.Join(e.repository, name), filepath.Join(e.dir, name)
		info, err := os.Stat(from)
		switch {
		case errors.Is(err, os.ErrNotExist):
			err = os.RemoveAll(to)
		case err == nil && info.Mode().IsRegular(): // a link to a folder, such as .venv, is no part of the repository
			err = copyFile(from, to, info.Mode().Perm())
		}
		if err != nil {
			t.Fatalf("cannot take %s over: %v", name, err)
		}
	}
}

func copyFile(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, mode))
}

func (e *evening) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (e *evening) admin() string {
	return strings.TrimSuffix(strings.TrimPrefix(e.page, "http://"), "/")
}

// run types a command and returns what it prints; it has to end well.
func (e *evening) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := e.typed(dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// fails types a command that has to end with that code.
func (e *evening) fails(t *testing.T, code int, name string, args ...string) string {
	t.Helper()
	out, err := e.typed(e.dir, name, args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Fatalf("%s %s: %v, want exit code %d\n%s", name, strings.Join(args, " "), err, code, out)
	}
	return out
}

// typed returns what a command prints, and what it complains of if it fails.
func (e *evening) typed(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, newcomersEnvironment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		out.Write(errs.Bytes())
	}
	return out.String(), err
}

// newcomersEnvironment is without what the make above this test, and who runs
// it, have set for themselves.
func newcomersEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "RAMJET_")
	})
	return append(env, "NO_PROXY=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
}

// terminal is one in which a command runs.
type terminal struct {
	cmd    *exec.Cmd
	out    rig.Output
	exited chan struct{}
	url    string // of a simulated engine
}

// start types a command that goes on running, in a terminal of its own.
func (e *evening) start(t *testing.T, name string, args ...string) *terminal {
	t.Helper()
	p := &terminal{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = e.dir, newcomersEnvironment(), &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	e.t.Cleanup(func() {
		p.signalGroup(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(rig.Patience):
			p.signalGroup(syscall.SIGKILL)
			<-p.exited
		}
	})
	return p
}

func (p *terminal) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// signalGroup signals all that runs in the terminal.
func (p *terminal) signalGroup(sig syscall.Signal) {
	select {
	case <-p.exited: // its number may be somebody else's
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// shows waits until the terminal shows something and returns its first group.
func (p *terminal) shows(t *testing.T, pattern string) (found string) {
	t.Helper()
	return p.showsWithin(t, 12*rig.Patience, pattern)
}

func (p *terminal) showsWithin(t *testing.T, limit time.Duration, pattern string) (found string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	ended := false
	last := rig.Poll(limit, func() string {
		select {
		case <-p.exited:
			ended = true
		default:
		}
		if m := re.FindStringSubmatch(p.out.String()); m != nil {
			found = m[1]
			return ""
		}
		if ended {
			return "" // nothing more will come
		}
		return "it runs"
	})
	if ended && found == "" {
		last = "it ended"
	}
	if last != "" {
		text := p.out.String()
		t.Fatalf("%s does not show %s (%s):\n%s", p.cmd, pattern, last, text[max(0, len(text)-3000):])
	}
	return found
}

func (p *terminal) ends(t *testing.T) (code int) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(6 * rig.Patience):
		t.Fatalf("%s does not end:\n%s", p.cmd, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// startSim runs a simulated engine.
func (e *evening) startSim(t *testing.T, name, address string) {
	t.Helper()
	p := e.start(t, "./ramjet", "sim", "--listen", address)
	p.url = p.shows(t, `(?m)^sim: sim on (http://\S+)$`)
	e.sims[name] = p
}

// get reads JSON of the admin port.
func (e *evening) get(t *testing.T, path string, v any) {
	t.Helper()
	status, body := rig.HTTPGet(strings.TrimSuffix(e.page, "/") + path)
	if err := json.Unmarshal([]byte(body), v); status != 200 || err != nil {
		t.Fatalf("%s: %d %v %.500s", path, status, err, body)
	}
}

func (e *evening) engine(t *testing.T, name string) (state, reason string) {
	t.Helper()
	var topology struct {
		Engines []struct {
			Name   string
			State  string
			Reason string `json:"state_reason"`
		}
	}
	e.get(t, "/api/v1/topology", &topology)
	for _, one := range topology.Engines {
		if one.Name == name {
			return one.State, one.Reason
		}
	}
	return "not there", ""
}

// ask keeps six requests under way until stopAsking, so that all engines get
// some. They are not streamed: one whose engine dies moves, and is not lost.
func (e *evening) ask(t *testing.T) {
	t.Helper()
	url := e.public + "/v1/chat/completions"
	for worker := range 6 {
		e.load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-e.stop:
					return
				default:
				}
				body := fmt.Sprintf(`{"max_tokens":24,"messages":[{"role":"user","content":"Question %d of worker %d: what does the river say?"}]}`, n, worker)
				if err := askOnce(&e.client, url, body); err != nil {
					e.mu.Lock()
					e.troubles = append(e.troubles, err.Error())
					e.mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					continue
				}
				e.served.Add(1)
			}
		})
	}
	e.t.Cleanup(func() { e.stopAsking() })
}

func askOnce(client *http.Client, url, body string) error {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return fmt.Errorf("cannot read an answer: %w", err)
	}
	if resp.StatusCode != 200 || !bytes.Contains(text.Bytes(), []byte(`"completion_tokens":24`)) {
		return fmt.Errorf("answered %d %.300s", resp.StatusCode, text.Bytes())
	}
	return nil
}

// stopAsking returns how many requests were answered.
func (e *evening) stopAsking() int64 {
	e.stopped.Do(func() { close(e.stop) })
	e.load.Wait()
	e.client.CloseIdleConnections()
	return e.served.Load()
}

// nothingLost waits for some more answers and demands that none went wrong.
func (e *evening) nothingLost(t *testing.T) {
	t.Helper()
	from := e.served.Load()
	rig.Eventually(t, 6*rig.Patience, "more answers", func() string {
		if n := e.served.Load() - from; n < 12 {
			return fmt.Sprintf("%d came", n)
		}
		return ""
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.troubles) > 0 {
		t.Errorf("%d requests were lost beside %d that were answered: %s", len(e.troubles), e.served.Load(), e.troubles[0])
	}
}

// hurryAlerts is by how much the durations of the alerts are divided: nobody
// waits for ten minutes here.
const hurryAlerts = 100

var alertDuration = regexp.MustCompile(`(\[|for: )(\d+)([smh])`)

// watch starts a real Prometheus with the shipped alerts, if there is one.
func (e *evening) watch(t *testing.T) {
	t.Helper()
	folder, err := e.typed(e.repository, "scripts/promtool.sh", "--path")
	if err != nil {
		e.noPrometheus = strings.TrimSpace(folder)
		return
	}
	units := map[string]int{"s": 1000, "m": 60_000, "h": 3_600_000}
	rules := alertDuration.ReplaceAllStringFunc(e.file(t, "deploy/prometheus/ramjet.rules.yml"), func(s string) string {
		m := alertDuration.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2])
		return fmt.Sprintf("%s%dms", m[1], n*units[m[3]]/hurryAlerts)
	})
	e.write(t, "hurried.yml", rules)
	e.write(t, "prometheus.yml", fmt.Sprintf("global: {scrape_interval: 300ms, scrape_timeout: 300ms, evaluation_interval: 300ms}\nrule_files: [hurried.yml]\n"+
		"scrape_configs:\n  - {job_name: ramjet, static_configs: [{targets: [%q]}]}\n", e.admin()))
	address := ports.Kept(e.t)
	e.start(t, filepath.Join(strings.TrimSpace(folder), "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path="+filepath.Join(e.home, "prometheus"),
		"--web.listen-address="+address, "--log.level=warn")
	e.prometheus = "http://" + address
}

// firing is an alert as Prometheus tells it.
type firing struct {
	Labels, Annotations map[string]string
	State               string
}

// alert waits until that one fires.
func (e *evening) alert(t *testing.T, name string) (found firing) {
	t.Helper()
	if e.prometheus == "" {
		t.Skip(e.noPrometheus)
	}
	last := rig.Poll(12*rig.Patience, func() string {
		_, body := rig.HTTPGet(e.prometheus + "/api/v1/alerts")
		var answer struct{ Data struct{ Alerts []firing } }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return err.Error()
		}
		for _, a := range answer.Data.Alerts {
			if a.Labels["alertname"] == name && a.State == "firing" {
				found = a
				return ""
			}
		}
		return fmt.Sprintf("%d alerts: %.1000s", len(answer.Data.Alerts), body)
	})
	if last != "" {
		t.Fatalf("%s does not fire: %s", name, last)
	}
	return found
}
