package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// reloadRig is a Ramjet whose engines stand in a file.
type reloadRig struct {
	*testing.T
	r    *rig.Ramjet
	file string
}

func newReloadRig(t *testing.T, engines ...*rig.Engine) *reloadRig {
	t.Helper()
	m := &reloadRig{T: t, file: filepath.Join(t.TempDir(), "ramjet.yaml")}
	m.write(fileOf(engines...))
	m.r = rig.StartWith(t, rig.Setup{Flags: rig.Settings("--config="+m.file, "--route.policy=round-robin"), Loose: true})
	for _, e := range engines {
		m.r.Is(t, 2*rig.Patience, e.Name, "ready")
	}
	m.r.Setup.Engines = append(m.r.Setup.Engines, engines...) // for the closing assertions
	m.r.ClosesLater(t)
	return m
}

// fileOf is a configuration with these engines, and further lines.
func fileOf(engines ...*rig.Engine) string {
	var b strings.Builder
	b.WriteString("engines:\n")
	for _, e := range engines {
		fmt.Fprintf(&b, "  - {name: %s, url: %q}\n", e.Name, e.URL())
	}
	return b.String()
}

func (m *reloadRig) write(text string) {
	m.Helper()
	// Whole at once, as editors and Kubernetes do.
	if err := os.WriteFile(m.file+".new", []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	if err := os.Rename(m.file+".new", m.file); err != nil {
		m.Fatal(err)
	}
}

// gauge waits until the reload gauge has a value.
func (m *reloadRig) gauge(want float64) {
	m.Helper()
	rig.Eventually(m.T, rig.Patience, "ramjet_config_reload_success", func() string {
		if got := m.r.Metrics().Sum("ramjet_config_reload_success"); got != want {
			return fmt.Sprintf("is %v, want %v", got, want)
		}
		return ""
	})
}

// names are the engines that the topology tells.
func (m *reloadRig) names() string {
	m.Helper()
	var v struct{ Engines []struct{ Name string } }
	_, body := m.r.AdminGet("/api/v1/topology")
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		m.Fatalf("/api/v1/topology: %v", err)
	}
	var names []string
	for _, e := range v.Engines {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// TestB7Row40Broken: a file that cannot be used leaves everything as it was,
// whichever way it was to be loaded: the log names file and line, the gauge is
// 0, requests are served, and the mended file is taken.
func TestB7Row40Broken(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	m := newReloadRig(t, a, b)
	m.gauge(1)
	stop := rig.Steady(t, m.r, 10*time.Millisecond)
	good := fileOf(a, b)
	for i, c := range []struct {
		how    string
		broken string
		line   int
		word   string // of the message
	}{
		{"POST", good + "rout: {policy: latency}\n", 4, "rout"},
		{"SIGHUP", good + "route: {policy: fastest}\n", 4, "fastest"},
		{"POST", good + "route: {tie: [}\n", 4, "not YAML"},
		{"SIGHUP", strings.Replace(good, "name: b", "name: a", 1), 3, "name"},
		{"the file's change", good + "health: {interval: soon}\n", 4, "soon"},
	} {
		place := fmt.Sprintf("%s:%d:", m.file, c.line)
		m.write(c.broken)
		switch c.how {
		case "POST":
			status, body := m.r.Order(t, "POST", "/-/reload")
			if status < 400 || status > 499 || !strings.Contains(body, place) {
				t.Errorf("case %d: POST /-/reload: %d %s, want it refused with %s", i, status, body, place)
			}
		case "SIGHUP":
			m.r.Signal(syscall.SIGHUP)
		}
		m.gauge(0)
		rig.Eventually(t, rig.Patience, "file and line in the log", func() string {
			if !m.r.Logged(place, c.word) {
				return "not there"
			}
			return ""
		})
		if got := m.names(); got != "a b" {
			t.Errorf("case %d: with a broken file the engines are %s", i, got)
		}
		m.write(good)
		if status, body := m.r.Order(t, "POST", "/-/reload"); status != 200 {
			t.Errorf("case %d: the mended file: %d %s", i, status, body)
		}
		m.gauge(1)
	}
	if sent, bad := stop(); len(bad) > 0 || sent == 0 {
		t.Errorf("%d of %d clients noticed: %v", len(bad), sent, bad)
	}
	for _, name := range []string{"a", "b"} {
		if got := rig.Path(m.r.Changes(t, name)); got != "ready" {
			t.Errorf("%s went %s", name, got)
		}
	}
}

// TestB7Row40Removed: an engine that the new file lacks gets nothing new from
// that moment on, finishes its streams whole, and is gone then; one that the
// file adds is used. No client notices.
func TestB7Row40Removed(t *testing.T) {
	t.Parallel()
	a, b, c := rig.NewEngine(t, "a"), rig.NewEngine(t, "b"), rig.NewEngine(t, "c")
	m := newReloadRig(t, a, b)
	a.On(rig.TokensFor(2 * time.Second))
	b.On(rig.TokensFor(2 * time.Second))
	cs := rig.Streams(t, m.r, 8)
	if n := len(b.ByIDPrefix("stream")); n == 0 {
		t.Fatal("no stream is on b")
	}
	a.On(nil)
	b.On(nil)
	stop := rig.Steady(t, m.r, 5*time.Millisecond)
	m.write(fileOf(a, c))
	if status, body := m.r.Order(t, "POST", "/-/reload"); status != 200 {
		t.Fatalf("reload: %d %s", status, body)
	}
	reloaded := rig.IdsSoFar() // ids that are sent from here on are larger
	m.r.Setup.Engines = append(m.r.Setup.Engines, c)
	m.gauge(1)
	rig.Eventually(t, 2*rig.Patience, "requests on c", func() string {
		if len(c.ByIDPrefix("steady")) < 5 {
			return "too few"
		}
		return ""
	})
	for _, x := range b.ByIDPrefix("steady") {
		if n, err := strconv.ParseInt(strings.TrimPrefix(x.ID(), "steady-"), 10, 64); err != nil || n > reloaded {
			t.Errorf("b got request %s, the last one before it was removed was %d", x.ID(), reloaded)
		}
	}
	for i, one := range cs {
		if resp := one.Response(3 * rig.Patience); !resp.Complete || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) || len(resp.ErrorEvents()) > 0 {
			t.Errorf("stream %d was cut by the reload", i)
		}
		one.Close()
	}
	if sent, bad := stop(); len(bad) > 0 || sent == 0 {
		t.Errorf("%d of %d clients noticed: %v", len(bad), sent, bad)
	}
	rig.Eventually(t, 2*rig.Patience, "b gone", func() string {
		if got := m.names(); got != "a c" {
			return "the engines are " + got
		}
		if n := m.r.Metrics().Count("ramjet_leases", "engine", "b"); n != 0 {
			return "the metrics still tell b"
		}
		return ""
	})
	for _, name := range []string{"a", "c"} {
		m.r.Is(t, rig.Patience, name, "ready")
	}
}
