package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// reloading is a Ramjet whose engines stand in a file.
type reloading struct {
	*rig.Ramjet
	file string
}

// startFile runs Ramjet with a configuration file and waits until all its
// engines are ready.
func startFile(t testing.TB, text string, engines []*rig.Engine, flags ...string) *reloading {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	write(t, file, text)
	r := &reloading{Ramjet: rig.StartWith(t, rig.Setup{NotReady: true, Flags: append([]string{"--config=" + file}, flags...)}), file: file}
	r.Setup.Engines, r.Setup.NotReady = engines, false // the file says the same
	r.AwaitReady()
	r.WarmUp()
	return r
}

// engineList is the engines part of a file; more are further members of each.
func engineList(engines []*rig.Engine, more ...string) string {
	var b strings.Builder
	b.WriteString("engines:\n")
	for _, e := range engines {
		fmt.Fprintf(&b, "  - {%s}\n", strings.Join(append([]string{"name: " + e.Name, "url: '" + e.URL() + "'"}, more...), ", "))
	}
	return b.String()
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatalf("cannot write %s: %v", file, err)
	}
}

// replace puts a new file in the place of an old one in one step.
func replace(t testing.TB, file, text string) {
	t.Helper()
	write(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatalf("cannot replace %s: %v", file, err)
	}
}

// reloaded is the answer to POST /-/reload.
type reloaded struct {
	Reloaded     bool     `json:"reloaded"`
	Digest       string   `json:"digest"`
	Changed      []string `json:"changed"`
	NeedsRestart []string `json:"needs_restart"`
	Problems     []struct {
		File    string `json:"file"`
		Line    int    `json:"line"`
		Key     string `json:"key"`
		Message string `json:"message"`
	} `json:"problems"`
	Error struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"error"`
}

// reload asks for a reload and wants its answer to have that status.
func (r *reloading) reload(t testing.TB, status int) (v reloaded) {
	t.Helper()
	got, body := r.Order(t, "POST", "/-/reload")
	if err := json.Unmarshal([]byte(body), &v); got != status || err != nil || v.Reloaded != (status == 200) {
		t.Fatalf("POST /-/reload: %d %v %.500s, want %d", got, err, body, status)
	}
	return v
}

// use replaces the file and has it loaded.
func (r *reloading) use(t testing.TB, text string) reloaded {
	t.Helper()
	replace(t, r.file, text)
	return r.reload(t, 200)
}

// config reads the settings in force.
func (r *reloading) config(t testing.TB) map[string]struct{ Value any } {
	t.Helper()
	var v map[string]struct{ Value any }
	r.Get(t, "/api/v1/config", &v)
	return v
}

// becomes waits until a setting has a value.
func (r *reloading) becomes(t testing.TB, key string, want any) {
	t.Helper()
	rig.Eventually(t, 2*rig.Patience, key+" in force", func() string {
		if got := r.config(t)[key].Value; got != want {
			return fmt.Sprintf("%s is %v, want %v", key, got, want)
		}
		return ""
	})
}

// gone waits until nothing of an engine is left: no request, no connection, no
// series.
func (r *reloading) gone(t testing.TB, e *rig.Engine) {
	t.Helper()
	rig.Eventually(t, 2*rig.Patience, "engine "+e.Name+" gone", func() string {
		_, text := r.AdminGet("/metrics")
		if strings.Contains(text, `engine="`+e.Name+`"`) {
			return "it still has series"
		}
		if n := e.Connections(); n != 0 {
			return fmt.Sprintf("%d connections are open", n)
		}
		return ""
	})
}

// says waits for a text in the log.
func (r *reloading) says(t testing.TB, text string) {
	t.Helper()
	rig.Eventually(t, rig.Patience, "a log line", func() string {
		if !strings.Contains(r.Out.String(), text) {
			return "there is no " + text
		}
		return ""
	})
}
