package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAdminPortBesideABrokenFile: Ramjet serves on with the old configuration
// when its file is broken, and must not be called dead for it.
func TestAdminPortBesideABrokenFile(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	f.answer = func(_ http.ResponseWriter, r *http.Request) bool { return r.URL.Path == "/livez" }
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	noYAML, here := file("no.yaml", "admin: {listen: '127.0.0.1:1'\n"), "admin: {listen: '"+f.addr()+"'}\n"
	badElsewhere, badHere := file("elsewhere.yaml", here+"route: {policy: no}\nlimit: 1\n"), file("here.yaml", "admin: {listen: nowhere}\n")
	for name, c := range map[string]struct {
		args, env []string
		want      string // of the error, "" for none
	}{
		"variable, no YAML":      {nil, []string{"RAMJET_CONFIG=" + noYAML, "RAMJET_ADMIN_LISTEN=" + f.addr()}, ""},
		"flag, no YAML":          {[]string{"--config=" + noYAML, "--admin=" + f.addr()}, nil, ""},
		"flag, no file":          {[]string{"--config=" + dir + "/none", "--admin=" + f.addr()}, nil, ""},
		"flag, bad address":      {[]string{"--config=" + badHere, "--admin=" + f.addr()}, nil, ""},
		"file, bad elsewhere":    {[]string{"--config=" + badElsewhere}, nil, ""},
		"file, no YAML":          {[]string{"--config=" + noYAML}, nil, "not YAML"},
		"file, bad address":      {[]string{"--config=" + badHere}, nil, "admin.listen"},
		"file, missing":          {[]string{"--config=" + dir + "/none"}, nil, "cannot read"},
		"flag over the variable": {[]string{"--admin=" + f.addr()}, []string{"RAMJET_ADMIN_LISTEN=127.0.0.1:1"}, ""},
		"bad flag":               {[]string{"--admin=" + f.addr(), "--route.policy=no"}, nil, "route.policy"},
	} {
		var out strings.Builder
		health := Health(t.Context(), &out, c.args, c.env, time.Minute)
		_, found := findAdmin(c.args, c.env)
		for what, err := range map[string]error{"health": health, "findAdmin": found} {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: %v, want %q", name, what, err, c.want)
			}
		}
	}
}
