package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// composeFile is what a test needs of a compose file; keys that are not here are refused, x-* apart.
type composeFile struct {
	Name       string
	Services   map[string]service
	Secrets    map[string]struct{ File string }
	Volumes    map[string]struct{}
	Extensions map[string]any `yaml:",inline"`
}

type service struct {
	Image string
	Build *struct {
		Context string
		Args    map[string]string
	}
	Command         []string
	Environment     map[string]string
	Volumes         []string
	Ports           []string
	Secrets         []string
	User            string
	ReadOnly        bool     `yaml:"read_only"`
	CapAdd          []string `yaml:"cap_add"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	MemLimit        string   `yaml:"mem_limit"`
	Ulimits         map[string]int
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck     *healthcheck
	StopGracePeriod string `yaml:"stop_grace_period"`
	Restart         string
	NetworkMode     string `yaml:"network_mode"`
	IPC             string
	ShmSize         string `yaml:"shm_size"`
	Deploy          *struct {
		Resources struct {
			Reservations struct {
				Devices []struct {
					Driver       string
					DeviceIDs    []string `yaml:"device_ids"`
					Count        string
					Capabilities []string
				}
			}
		}
	}
}

type healthcheck struct {
	Test        []string
	Disable     bool
	Interval    string
	Timeout     string
	Retries     int
	StartPeriod string `yaml:"start_period"`
}

func composeFiles(t testing.TB) map[string]composeFile {
	t.Helper()
	out := map[string]composeFile{}
	for _, path := range shipped(t, "deploy/compose/*/compose.yaml") {
		var f composeFile
		d := yaml.NewDecoder(strings.NewReader(read(t, path)))
		d.KnownFields(true)
		if err := d.Decode(&f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for key := range f.Extensions {
			if !strings.HasPrefix(key, "x-") {
				t.Errorf("%s has the key %s", path, key)
			}
		}
		out[path] = f
	}
	return out
}

// An image is pinned when its tag names a version; ours is built here.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.\d+[a-z0-9.-]*$`)

// loopbackPort is a port that only this machine reaches.
var loopbackPort = regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`)

func TestComposeFiles(t *testing.T) {
	t.Parallel()
	for path, f := range composeFiles(t) {
		for name, s := range f.Services {
			where := path + ": " + name
			if !pinned.MatchString(s.Image) && s.Image != "ramjet:${RAMJET_VERSION:-dev}" {
				t.Errorf("%s: the image %s is not pinned", where, s.Image)
			}
			for _, p := range s.Ports {
				if !loopbackPort.MatchString(p) && (name != "ramjet" || p != "8000:8000") {
					t.Errorf("%s publishes %s to everybody", where, p)
				}
			}
			for dependency := range s.DependsOn {
				if _, ok := f.Services[dependency]; !ok {
					t.Errorf("%s depends on %s, which is no service", where, dependency)
				}
			}
			for _, secret := range s.Secrets {
				if f.Secrets[secret].File == "" {
					t.Errorf("%s uses the secret %s, which is none", where, secret)
				}
			}
			checkMounts(t, where, filepath.Dir(path), s, f)
			if s.Restart == "" {
				t.Errorf("%s does not say when it is started again", where)
			}
		}
		checkRamjet(t, path, f)
	}
}

// checkMounts: what is mounted from the repository is there, what is named is a volume, and nothing of a configuration
// can be written to.
func checkMounts(t *testing.T, where, dir string, s service, f composeFile) {
	t.Helper()
	for _, v := range s.Volumes {
		parts := strings.Split(regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(v, "VARIABLE"), ":")
		source := parts[0]
		switch {
		case source == "VARIABLE":
		case strings.HasPrefix(source, "."):
			if _, err := os.Stat(filepath.Join(root, dir, source)); err != nil {
				t.Errorf("%s mounts %s: %v", where, source, err)
			}
			if !strings.HasSuffix(v, ":ro") {
				t.Errorf("%s can write to %s", where, source)
			}
		default:
			if _, ok := f.Volumes[source]; !ok {
				t.Errorf("%s mounts %s, which is no volume", where, source)
			}
		}
	}
	if s.Build != nil {
		if _, err := os.Stat(filepath.Join(root, dir, s.Build.Context, "Dockerfile")); err != nil {
			t.Errorf("%s is built where no Dockerfile is: %v", where, err)
		}
	}
}

// checkRamjet: the proxy runs without rights, stops before the engines do, and has time to drain.
func checkRamjet(t *testing.T, path string, f composeFile) {
	t.Helper()
	r := f.Services["ramjet"]
	if r.User != "65532:65532" || !r.ReadOnly || !slices.Equal(r.CapDrop, []string{"ALL"}) || !slices.Equal(r.SecurityOpt, []string{"no-new-privileges:true"}) {
		t.Errorf("%s: ramjet runs with more rights than it needs", path)
	}
	for name, s := range f.Services {
		isEngine := strings.HasPrefix(name, "vllm-") || strings.HasPrefix(name, "sim-")
		if _, waits := r.DependsOn[name]; isEngine && !waits {
			t.Errorf("%s: %s may stop before ramjet has drained", path, name)
		}
		if s.StopGracePeriod == "" && (isEngine || name == "ramjet") {
			t.Errorf("%s: %s is killed after ten seconds", path, name)
		}
		if limit := flagOf(s.Command, "shutdown-timeout"); strings.HasPrefix(name, "vllm-") && duration(t, s.StopGracePeriod) <= duration(t, limit+"s") {
			t.Errorf("%s: %s is killed after %s, before its --shutdown-timeout of %s s", path, name, s.StopGracePeriod, limit)
		}
	}
	var config struct {
		Timeouts struct{ Drain string }
		Limits   struct {
			BodyMemory string `yaml:"body_memory"`
		}
	}
	unmarshal(t, filepath.Join(filepath.Dir(path), "config", "ramjet.yaml"), &config)
	if duration(t, r.StopGracePeriod) <= duration(t, config.Timeouts.Drain) {
		t.Errorf("%s: ramjet is killed after %s, before its drain of %s", path, r.StopGracePeriod, config.Timeouts.Drain)
	}
	if 3*size(t, config.Limits.BodyMemory) > size(t, r.MemLimit) {
		t.Errorf("%s: bodies may take %s of %s", path, config.Limits.BodyMemory, r.MemLimit)
	}
}

func flagOf(command []string, name string) string {
	for _, arg := range command {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// size reads docker's and Go's forms: 4g, 512m, 3GiB.
func size(t testing.TB, text string) int64 {
	t.Helper()
	var n int64
	var unit string
	if _, err := fmt.Sscanf(strings.ToLower(text), "%d%s", &n, &unit); err != nil {
		t.Fatalf("%q is no size: %v", text, err)
	}
	return n << map[byte]int{'k': 10, 'm': 20, 'g': 30}[unit[0]]
}

// Every argument of an engine has a line that says why, at its first mention.
func TestEngineFlagsAreExplained(t *testing.T) {
	t.Parallel()
	for _, path := range shipped(t, "deploy/compose/reference/compose.yaml", "deploy/compose/two-gpus/compose.yaml") {
		seen := map[string]bool{}
		previous := ""
		for line := range strings.Lines(read(t, path)) {
			line = strings.TrimSpace(line)
			if m := regexp.MustCompile(`^- (--[a-z-]+)[= #]`).FindStringSubmatch(line + " "); m != nil && !seen[m[1]] {
				seen[m[1]] = true
				if !strings.Contains(line, " # ") && !strings.HasPrefix(previous, "# ") {
					t.Errorf("%s does not say why %s", path, m[1])
				}
			}
			previous = line
		}
		if len(seen) < 8 {
			t.Errorf("%s sets only %d flags; the test does not read it rightly", path, len(seen))
		}
	}
}

// TestSimsComposeServes runs what compose/sims/compose.yaml says, as processes on loopback: its engines, its model and
// its configuration, with addresses in place of names.
func TestSimsComposeServes(t *testing.T) {
	t.Parallel()
	const path = "deploy/compose/sims/compose.yaml"
	f := composeFiles(t)[path]
	config := read(t, "deploy/compose/sims/config/ramjet.yaml")
	model := t.TempDir()
	for _, arg := range f.Services["model"].Command {
		if strings.HasPrefix(arg, "--write-model=") {
			if out, err := exec.Command(binary(t, ""), "sim", "--write-model="+model).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	config = strings.ReplaceAll(config, "path: /model", "path: "+model)
	for _, name := range []string{"sim-a", "sim-b"} {
		var args []string
		for _, arg := range f.Services[name].Command {
			arg = strings.Replace(arg, "--listen=0.0.0.0:8000", "--listen=127.0.0.1:0", 1)
			arg = strings.Replace(arg, "tcp://*:5557", "tcp://127.0.0.1:0", 1)
			args = append(args, strings.Replace(arg, "tcp://*:5558", "tcp://127.0.0.1:0", 1))
		}
		p := launch(t, name, exec.Command(binary(t, ""), args...))
		eventually(t, name, func() error {
			api, sockets := simAPI.FindStringSubmatch(p.said()), simSockets.FindStringSubmatch(p.said())
			if api == nil || sockets == nil {
				return fmt.Errorf("it said %q", p.said())
			}
			config = strings.Replace(config, `"http://`+name+`:8000"`, fmt.Sprintf("%q, events: %q, replay: %q", api[1], sockets[1], sockets[2]), 1)
			return nil
		})
	}
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	command := slices.Clone(f.Services["ramjet"].Command)
	if !slices.Equal(command, []string{"--config", "/etc/ramjet/ramjet.yaml"}) {
		t.Fatalf("ramjet is started as %v", command)
	}
	p := startProxy(t, proxyOptions{flags: []string{"--config=" + file}})
	p.trusts("a")
	p.trusts("b")
	status, answer := post("http://"+p.public+"/v1/chat/completions", `{"max_tokens":3,"messages":[{"role":"user","content":"Tell me about rivers."}]}`)
	if status != 200 || !strings.Contains(answer, `"choices"`) {
		t.Errorf("a chat was answered %d %s", status, answer)
	}
}

// TestDockerAcceptsCompose asks docker compose itself, where there is one.
func TestDockerAcceptsCompose(t *testing.T) {
	t.Parallel()
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Skip("docker compose is missing: https://docs.docker.com/compose/install/ (the other tests check the files without it)")
	}
	for path := range maps.Keys(composeFiles(t)) {
		cmd := exec.Command("docker", "compose", "-f", filepath.Join(root, path), "config", "--quiet")
		cmd.Env = append(os.Environ(), "HF_CACHE="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}
