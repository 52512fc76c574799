package deploy

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// ramjetConfigs returns every shipped configuration by where it stands, those inside a ConfigMap too.
func ramjetConfigs(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range shipped(t, "deploy/ramjet.example.yaml", "deploy/compose/*/config/ramjet.yaml", "deploy/systemd/ramjet.yaml") {
		out[path] = read(t, path)
	}
	for _, m := range manifests(t) {
		if m.Kind == "ConfigMap" {
			out[m.path+"/"+m.Metadata.Name] = m.Data["ramjet.yaml"]
		}
	}
	return out
}

// TestShippedConfigsAreValid: `ramjet check` accepts each, with a file in place of those that a deployment brings.
func TestShippedConfigsAreValid(t *testing.T) {
	t.Parallel()
	configs := ramjetConfigs(t)
	if len(configs) < 6 {
		t.Fatalf("only %d configurations are shipped", len(configs))
	}
	absolute := regexp.MustCompile(`(token_file|path): (/[a-z/-]+)`)
	for where, text := range configs {
		dir := t.TempDir()
		text = absolute.ReplaceAllStringFunc(text, func(s string) string {
			m := absolute.FindStringSubmatch(s)
			place := filepath.Join(dir, filepath.Base(m[2]))
			if m[1] == "path" { // a folder with the model's files
				if out, err := exec.Command(binary(t, ""), "sim", "--write-model="+place).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			} else if err := os.WriteFile(place, []byte("token-of-a-test-0123456789abcdef\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return m[1] + ": " + place
		})
		file := filepath.Join(dir, "ramjet.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		cmd := exec.Command(binary(t, ""), "check", "--config", file)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err != nil || unexpected(errs.String()) || !strings.Contains(out.String(), "\nvalid, digest ") {
			t.Errorf("%s: %v\n%s", where, err, errs.String())
		}
	}
}

// unexpected reports whether ramjet check said anything but that, without a token, what changes something is refused off
// loopback: where that is meant, the file says so.
func unexpected(said string) bool {
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "warning: ") || !strings.Contains(line, "admin.listen: reachable from other machines without admin.token_file") {
			return true
		}
	}
	return false
}

// TestCheckFindsTypos: the same command names every error at once, so that the test above can fail.
func TestCheckFindsTypos(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	text := strings.NewReplacer("profile: mtp", "profil: mtp", "drain: 30s", "drain: 30", "handoff:", "handof:").Replace(read(t, "deploy/compose/sims/config/ramjet.yaml"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.Command(binary(t, ""), "check", "--config", file)
	cmd.Stderr = &errs
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("three typos: %v", err)
	}
	for _, want := range []string{"profil", "did you mean profile?", "handof", "did you mean handoff?", "timeouts.drain"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("ramjet check does not say %q:\n%s", want, errs.String())
		}
	}
}

// manifest is what a test needs of a Kubernetes object.
type manifest struct {
	path       string
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec yaml.Node
}

func manifests(t testing.TB) []manifest {
	t.Helper()
	var all []manifest
	for _, path := range shipped(t, "deploy/kubernetes/*.yaml") {
		d := yaml.NewDecoder(strings.NewReader(read(t, path)))
		for {
			m := manifest{path: path}
			err := d.Decode(&m)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, m)
		}
	}
	return all
}
