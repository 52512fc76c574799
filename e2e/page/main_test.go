package page

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// pictures is where screenshots go, from here.
const pictures = "../../.tools/page"

var (
	binary string // the built Ramjet
	shared struct {
		sync.Mutex
		b *browser
	}
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "ramjet-page-build-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	if chromium() != "" {
		binary = filepath.Join(folder, "ramjet")
		build := exec.Command("go", "build", "-o", binary, "../..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build Ramjet: %v\n%s", err, out)
			return 1
		}
	}
	defer func() {
		if shared.b != nil {
			shared.b.stop()
		}
	}()
	return m.Run()
}

// theBrowser starts the one browser, or skips.
func theBrowser(t *testing.T) *browser {
	t.Helper()
	path := chromium()
	if path == "" {
		t.Skip("chromium is missing: apt-get install chromium (or set CHROMIUM to a Chromium or Chrome)")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.b == nil {
		b, err := startBrowser(path)
		if err != nil {
			t.Fatal(err)
		}
		shared.b = b
	}
	return shared.b
}

// process is a running Ramjet or simulated engine.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("ramjet %s:\n%s", strings.Join(args, " "), p.out.String())
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// client gives up on what does not answer, but not on a stream that takes its time.
var client = &http.Client{Timeout: 2 * patience}

// answers waits until an address answers 200.
func answers(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		r, err := client.Get(url)
		if err != nil {
			continue
		}
		_ = r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s does not answer", url)
}

// sim starts a simulated engine and returns its address.
func sim(t *testing.T, args ...string) string {
	t.Helper()
	address := ports.Kept(t)
	start(t, append([]string{"sim", "--listen=" + address}, args...)...)
	answers(t, "http://"+address+"/health")
	return address
}

// ramjet is a running Ramjet.
type ramjet struct {
	*process
	public, admin string
	args          []string
}

// serve starts a Ramjet whose checks are quick, and waits until it answers.
func serve(t *testing.T, args ...string) *ramjet {
	t.Helper()
	r := &ramjet{public: ports.Kept(t), admin: ports.Kept(t)}
	r.args = append([]string{
		"serve", "--listen=" + r.public, "--admin=" + r.admin, "--health.interval=200ms", "--health.stable=5s", "--health.slow-start=5s",
		"--tokens.source=off", "--log.level=warn",
	}, args...)
	r.again(t)
	return r
}

// again starts the same once more.
func (r *ramjet) again(t *testing.T) {
	t.Helper()
	r.process = start(t, r.args...)
	answers(t, r.url("livez"))
}

func (r *ramjet) url(path string) string { return "http://" + r.admin + "/" + path }

// ask sends one chat request and reads the answer.
func (r *ramjet) ask(t *testing.T, id, content string) {
	t.Helper()
	body := `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":16,"messages":[{"role":"user","content":` + quote(content) + `}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+r.public+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", res.StatusCode, text, err)
	}
}

// post sends an operator's order.
func (r *ramjet) post(t *testing.T, path string) {
	t.Helper()
	res, err := client.Post(r.url(path), "", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", path, res.StatusCode)
	}
}
