package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestReloadWays: a signal, a request, and every way in which a file changes.
func TestReloadWays(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := startFile(t, engineList([]*rig.Engine{a})+"route: {exact: 1%}\n", []*rig.Engine{a}, rig.Swift...)
	text := func(percent int) string {
		return engineList([]*rig.Engine{a}) + fmt.Sprintf("route: {exact: %d%%}\n", percent)
	}
	for i, way := range []struct {
		name   string
		change func(text string)
	}{
		{"written in place", func(text string) { write(t, r.file, text) }},
		{"replaced by a rename", func(text string) { replace(t, r.file, text) }},
		{"removed and written", func(text string) {
			if err := os.Remove(r.file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // so that it is missing when it is looked for
			write(t, r.file, text)
		}},
		{"POST", func(text string) { replace(t, r.file, text); r.reload(t, 200) }},
		{"SIGHUP", func(text string) { write(t, r.file, text); r.Signal(syscall.SIGHUP) }},
	} {
		way.change(text(10 + i))
		r.becomes(t, "route.exact", fmt.Sprintf("%d%%", 10+i))
		if t.Failed() {
			t.Fatalf("not %s", way.name)
		}
	}
	// A change that was noticed before its signal came is loaded twice; whichever
	// came first, the signal's line is the last.
	rig.Eventually(t, rig.Patience, "each reload in the log", func() string {
		if n := strings.Count(r.Out.String(), "configuration reloaded"); n < 5 || !r.Logged("configuration reloaded", `"by":"SIGHUP"`) {
			return fmt.Sprintf("%d lines", n)
		}
		return ""
	})
	// Nothing but the content counts: the same text again is no reload.
	before := strings.Count(r.Out.String(), "configuration reloaded")
	replace(t, r.file, text(14))
	time.Sleep(time.Second)
	if n := strings.Count(r.Out.String(), "configuration reloaded"); n != before {
		t.Errorf("%d reloads without a change", n-before)
	}
}

// TestReloadKubernetes: a volume of Kubernetes is a folder of links into
// another one, which ..data leads to; an update swaps that link alone.
func TestReloadKubernetes(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	dir := t.TempDir()
	volume := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "ramjet.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	volume("..2026_1", engineList([]*rig.Engine{a}))
	file := filepath.Join(dir, "ramjet.yaml")
	if err := os.Symlink("..data/ramjet.yaml", file); err != nil {
		t.Fatal(err)
	}
	r := startFile(t, "", nil, append(slices.Clone(rig.Swift), "--engine=a="+a.URL(), "--config="+file)...)
	r.Setup.Engines = []*rig.Engine{a}
	for i := range 3 {
		volume(fmt.Sprintf("..2026_%d", i+2), engineList([]*rig.Engine{a})+fmt.Sprintf("route: {exact: %d%%}\n", 20+i))
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1))); err != nil {
			t.Fatal(err)
		}
		r.becomes(t, "route.exact", fmt.Sprintf("%d%%", 20+i))
	}
}

// TestReloadBroken: a file that cannot be used changes nothing, and everyone
// says so: the answer, the log with file and line, the gauge.
func TestReloadBroken(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	good := engineList([]*rig.Engine{a, b})
	r := startFile(t, good+"route: {tie: 30ms}\n", []*rig.Engine{a, b}, rig.Swift...)
	loaded := r.Metrics().Sum("ramjet_config_reload_timestamp_seconds")
	line := strings.Count(good, "\n") + 2
	for name, tt := range map[string]struct {
		text, key, message string
		line               int
	}{
		"unknown key":   {good + "route:\n  tye: 30ms\n", "route.tye", "did you mean", line},
		"bad value":     {good + "route:\n  policy: latent\n", "route.policy", "latency", line},
		"no YAML":       {good + "route: {tie: 1s\n", "", "not YAML", 1},
		"no engine":     {"route: {tie: 1s}\n", "engines", "no engine", 0},
		"missing key":   {good + "auth:\n  keys_file: /nowhere/keys\n", "auth.keys_file", "no such file", line},
		"empty secret":  {good + "admin:\n  token_file: /dev/null\n", "admin.token_file", "one line", line},
		"no tls at all": {good + "limits:\n  body: 3GiB\n", "limits.body", "limits.body_memory", line},
	} {
		replace(t, r.file, tt.text)
		v := r.reload(t, 422)
		i := slices.IndexFunc(v.Problems, func(p struct {
			File    string `json:"file"`
			Line    int    `json:"line"`
			Key     string `json:"key"`
			Message string `json:"message"`
		}) bool {
			return strings.HasPrefix(p.Key, tt.key) && strings.Contains(p.Message, tt.message) && (tt.line == 0 || p.File == r.file && p.Line >= tt.line)
		})
		if i < 0 || v.Error.Code != "invalid_request" || !strings.Contains(v.Error.Message, "old configuration is still in use") {
			t.Errorf("%s: %+v", name, v)
			continue
		}
		if want := fmt.Sprintf("%s:%d:", r.file, v.Problems[i].Line); tt.line > 0 {
			r.says(t, want)
		}
		if m := r.Metrics(); m.Sum("ramjet_config_reload_success") != 0 || m.Sum("ramjet_config_reload_timestamp_seconds") != loaded {
			t.Errorf("%s: the gauges say that it was loaded", name)
		}
		if got := r.config(t)["route.tie"].Value; got != "30ms" {
			t.Errorf("%s: route.tie is %v", name, got)
		}
	}
	for _, name := range []string{"a", "b"} {
		r.Is(t, rig.Patience, name, "ready")
	}
	// The file is mended, and that is noticed.
	replace(t, r.file, good+"route: {tie: 40ms}\n")
	r.becomes(t, "route.tie", "40ms")
	rig.Eventually(t, rig.Patience, "the gauges say that it was loaded", func() string {
		if m := r.Metrics(); m.Sum("ramjet_config_reload_success") != 1 || m.Sum("ramjet_config_reload_timestamp_seconds") <= loaded {
			return "they do not"
		}
		return ""
	})
}

// TestReloadNeedsRestart: what a running process cannot change is named, and
// the rest of the same file holds.
func TestReloadNeedsRestart(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := startFile(t, engineList([]*rig.Engine{a}), []*rig.Engine{a}, rig.Swift...)
	for range 2 { // until it is restarted it says so each time
		v := r.use(t, engineList([]*rig.Engine{a})+"limits: {header: 64KiB, body: 2GiB, body_memory: 4GiB}\nroute: {tie: 50ms}\njournal: {path: /tmp}\n")
		if want := []string{"journal.path", "limits.body_memory", "limits.header"}; !slices.Equal(v.NeedsRestart, want) {
			t.Errorf("needs_restart %v, want %v", v.NeedsRestart, want)
		}
	}
	cfg := r.config(t)
	for key, want := range map[string]any{"route.tie": "50ms", "limits.header": "32KiB", "limits.body_memory": "1GiB", "limits.body": "1GiB", "journal.path": ""} {
		if got := cfg[key].Value; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	r.says(t, "settings that need a restart stay as they were")
	if v := r.use(t, engineList([]*rig.Engine{a})); len(v.NeedsRestart) != 0 {
		t.Errorf("it was taken back and yet needs %v", v.NeedsRestart)
	}
}

// TestReloadKeys: keys are taken over when their file changes, and an empty
// file locks nobody out and nobody in.
func TestReloadKeys(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "one\n")
	text := engineList([]*rig.Engine{a})
	r := startFile(t, text, []*rig.Engine{a}, rig.Swift...)
	status := func(key string) int {
		t.Helper()
		return r.Post(t, rig.ChatPath, rig.ChatBody(false), "Authorization: Bearer "+key).Status
	}
	becomes := func(key string, want int) {
		t.Helper()
		rig.Eventually(t, rig.Patience, fmt.Sprintf("key %s answered %d", key, want), func() string {
			if got := status(key); got != want {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	r.use(t, text+"auth: {keys_file: "+keys+"}\n")
	if one, none := status("one"), status("two"); one != 200 || none != 401 {
		t.Errorf("with a keys file: %d, and %d with a wrong one", one, none)
	}
	replace(t, keys, "two\n")
	becomes("two", 200)
	if got := status("one"); got != 401 {
		t.Errorf("a key that was taken out: %d", got)
	}
	write(t, keys, "\n")
	rig.Eventually(t, rig.Patience, "the refusal", func() string {
		if r.Metrics().Sum("ramjet_config_reload_success") != 0 {
			return "the gauge says that an empty file was taken over"
		}
		return ""
	})
	if two, one := status("two"), status("one"); two != 200 || one != 401 {
		t.Errorf("after a broken file: %d, and %d with a wrong one", two, one)
	}
	r.use(t, text)
	if got := status("anything"); got != 200 {
		t.Errorf("without a keys file: %d", got)
	}
}

// TestReloadCertificate: new handshakes get the new certificate, connections
// that stand go on, and a pair that does not fit is not used.
func TestReloadCertificate(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	_, certFile, keyFile := rig.TestCertificate(t)
	_, otherCert, otherKey := rig.TestCertificate(t)
	text := engineList([]*rig.Engine{a}) + "tls: {cert: " + certFile + ", key: " + keyFile + "}\n"
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	write(t, file, text)
	r := &reloading{Ramjet: rig.StartWith(t, rig.Setup{NotReady: true, Flags: append([]string{"--config=" + file}, rig.Swift...)}), file: file}
	rig.Eventually(t, 2*rig.Patience, "ready", func() string {
		if status, body := r.AdminGet("/readyz"); status != 200 {
			return body
		}
		return ""
	})
	dial := func(trusted string) error {
		pem, err := os.ReadFile(trusted)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: rig.Patience}, "tcp", r.Public, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	old := certFile + ".old"
	content := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write(t, old, content(certFile))
	if err := dial(old); err != nil {
		t.Fatalf("the first certificate: %v", err)
	}
	kept := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxConnsPerHost: 1}
	defer kept.CloseIdleConnections()
	ask := func() string {
		resp, err := (&http.Client{Transport: kept, Timeout: rig.Patience}).Get("https://" + r.Public + "/v1/models")
		if err != nil {
			return err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		var v map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != 200 {
			return fmt.Sprint(resp.StatusCode, err)
		}
		return ""
	}
	if got := ask(); got != "" {
		t.Fatal(got)
	}

	// The new certificate without its key.
	replace(t, certFile, content(otherCert))
	v := r.reload(t, 422)
	if len(v.Problems) != 1 || v.Problems[0].Key != "tls.cert" {
		t.Errorf("a pair that does not fit: %+v", v)
	}
	if err := dial(old); err != nil {
		t.Errorf("while the pair does not fit, the old certificate is not used: %v", err)
	}
	// And with it.
	replace(t, keyFile, content(otherKey))
	rig.Eventually(t, rig.Patience, "the new certificate", func() string {
		if err := dial(otherCert); err != nil {
			return err.Error()
		}
		return ""
	})
	if dial(old) == nil {
		t.Error("the old certificate is still used")
	}
	if got := ask(); got != "" {
		t.Errorf("a connection that stood: %s", got)
	}
}

// TestReloadCohorts: the sessions of 1 % are among those of 10 %, and those
// among all, before and after live changes.
func TestReloadCohorts(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	text := engineList([]*rig.Engine{a, b})
	r := startFile(t, text+"route: {exact: 1%}\n", []*rig.Engine{a, b}, rig.Swift...)
	const sessions = 1000
	in := func() map[int]bool {
		t.Helper()
		set := map[int]bool{}
		client := &http.Client{Timeout: rig.Patience}
		defer client.CloseIdleConnections()
		for i := range sessions {
			body := fmt.Sprintf(`{"model":"m","user":"u%d","messages":[{"role":"user","content":"hello"}]}`, i)
			resp, err := client.Post("http://"+r.Admin+"/api/v1/explain?path="+rig.ChatPath, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var x struct{ Cohort struct{ In bool } }
			err = json.NewDecoder(resp.Body).Decode(&x)
			if _ = resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if x.Cohort.In {
				set[i] = true
			}
		}
		return set
	}
	contains := func(big, small map[int]bool) {
		t.Helper()
		for i := range small {
			if !big[i] {
				t.Errorf("session %d of the smaller cohort is not in the larger", i)
			}
		}
	}
	one := in()
	r.use(t, text+"route: {exact: 10%}\n")
	ten := in()
	r.use(t, text)
	all := in()
	contains(ten, one)
	// Three sigma of a binomial draw: 10 +- 9.4 and 100 +- 28.5.
	if len(one) < 1 || len(one) > 19 || len(ten) < 72 || len(ten) > 128 || len(all) != sessions {
		t.Errorf("cohorts of %d, %d and %d of %d sessions", len(one), len(ten), len(all), sessions)
	}
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, "another draw\n")
	r.use(t, text+"route: {exact: 10%, cohort_key_file: "+key+"}\n")
	other := in()
	same := 0
	for i := range other {
		if ten[i] {
			same++
		}
	}
	if len(other) < 72 || len(other) > 128 || same > len(ten)/2 {
		t.Errorf("with another key %d sessions, %d of them as before", len(other), same)
	}
	r.use(t, text+"route: {exact: shadow}\n")
	if n := len(in()); n != 0 {
		t.Errorf("in the shadow %d sessions are in", n)
	}
}
