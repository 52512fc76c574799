package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func mustLoad(t *testing.T, o LoadOptions) *Config {
	t.Helper()
	cfg, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// reader serves one YAML text under every name.
func reader(text string) func(string) ([]byte, error) {
	return func(string) ([]byte, error) { return []byte(text), nil }
}

const oneEngine = "engines: [{name: f, url: http://f:1}]\n"

func TestDefaultsAreTyped(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, LoadOptions{Args: []string{"--engine=a=http://h:1"}})
	for _, tt := range []struct{ name, got, want any }{
		{"listen", c.Listen, []string{":8000"}},
		{"admin.listen", c.Admin.Listen, "127.0.0.1:9900"},
		{"tokens.cache", c.Tokens.Cache, int64(256 << 20)},
		{"tokens.max_time", c.Tokens.MaxTime, 20 * time.Millisecond},
		{"route.exact", c.Route.Exact, Exact{ExactPercent, 100}},
		{"route.memory_tokens", c.Route.MemoryTokens, 0},
		{"eject.max", c.Eject.Max, 300 * time.Second},
		{"timeouts.event_gap", c.Timeouts.EventGap, time.Duration(0)},
		{"timeouts.client_body_rate", c.Timeouts.ClientBodyRate, int64(16 << 10)},
		{"limits.body_memory", c.Limits.BodyMemory, int64(1 << 30)},
		{"headers.x_ramjet", c.Headers.XRamjet, true},
		{"profile", c.Engines[0].Profile, "none"},
		{"events", c.Engines[0].Events, "auto"},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if u := c.Engines[0].Target; u == nil || u.Host != "h:1" || u.Path != "" {
		t.Errorf("Target is %v", u)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	const file = "route:\n  policy: session\n"
	for _, tt := range []struct {
		name               string
		file               string
		env, args          []string
		wantPolicy, source string
	}{
		{"nothing", "", nil, nil, "latency", "default"},
		{"file", file, nil, nil, "session", "r.yaml:3"},
		{"variable over file", file, []string{"RAMJET_ROUTE_POLICY=round-robin"}, nil, "round-robin", "variable RAMJET_ROUTE_POLICY"},
		{"empty variable is none", file, []string{"RAMJET_ROUTE_POLICY="}, nil, "session", "r.yaml:3"},
		{"flag over variable", file, []string{"RAMJET_ROUTE_POLICY=round-robin"}, []string{"--route.policy", "least-tokens"}, "least-tokens", "flag --route.policy"},
		{"flag over file", file, nil, []string{"--route.policy=least-tokens"}, "least-tokens", "flag --route.policy"},
		{"a flag may say the default", file, nil, []string{"--route.policy=latency"}, "latency", "flag --route.policy"},
		{"the last flag wins", "", nil, []string{"--route.policy=latency", "--route.policy=session"}, "session", "flag --route.policy"},
	} {
		c, err := Load(LoadOptions{
			Args: append([]string{"--config=r.yaml"}, tt.args...), Env: tt.env, ReadFile: reader(oneEngine + tt.file),
		})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if c.Route.Policy != tt.wantPolicy || c.Source("route.policy") != tt.source {
			t.Errorf("%s: got %s from %s, want %s from %s", tt.name, c.Route.Policy, c.Source("route.policy"), tt.wantPolicy, tt.source)
		}
	}
}

// Engines of a higher layer replace those of a lower one as a whole.
func TestEngineLayers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		env, args []string
		want      string
	}{
		{"file", nil, nil, "f=http://f:1 r.yaml:1"},
		{"variable", []string{"RAMJET_ENGINE=v=http://v:1  w=http://w:1,profile=mtp"}, nil,
			"v=http://v:1 variable RAMJET_ENGINE|w=http://w:1 variable RAMJET_ENGINE"},
		{"flag", []string{"RAMJET_ENGINE=v=http://v:1"}, []string{"--engine", "x=http://x:1", "--engine=y=http://y:1"},
			"x=http://x:1 flag --engine|y=http://y:1 flag --engine"},
	} {
		c := mustLoad(t, LoadOptions{Args: append([]string{"--config=r.yaml"}, tt.args...), Env: tt.env, ReadFile: reader(oneEngine)})
		var got []string
		for _, e := range c.Engines {
			got = append(got, fmt.Sprintf("%s=%s %s", e.Name, e.URL, c.Source("engines."+e.Name+".url")))
		}
		if g := strings.Join(got, "|"); g != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, g, tt.want)
		}
	}
}

func TestEngineSpec(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, LoadOptions{Args: []string{"--engine",
		"a=https://h:1/,profile=mtp,events=tcp://h:5557,replay=tcp://*:5558,topic=kv,api_key_file=/k,in-flight=3,gpus=0-2,5"}})
	e := c.Engines[0]
	got := fmt.Sprint(e.Name, " ", e.URL, " ", e.Profile, " ", e.Events, " ", e.Replay, " ", e.Topic, " ", e.APIKeyFile, " ", e.InFlight, " ", e.GPUs)
	const want = "a https://h:1 mtp tcp://h:5557 tcp://*:5558 kv /k 3 [0 1 2 5]"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for spec, want := range map[string]string{
		"http://h:1":                    "flag --engine: an engine needs a name; write NAME=URL, such as a=http://127.0.0.1:8001",
		"a":                             "flag --engine: an engine needs a name; write NAME=URL, such as a=http://127.0.0.1:8001",
		"a=":                            "flag --engine: engines.a.url: no url; write http://host:port",
		"A=http://h:1":                  `flag --engine: engines[0].name: bad name "A"; 1 to 32 of a-z, 0-9 and -`,
		"a=http://h:1,mtp":              `flag --engine: "mtp" is not key=value`,
		"a=http://h:1,profle=mtp":       `flag --engine: unknown engine key "profle"; did you mean profile?`,
		"a=http://h:1,name=b":           "flag --engine: engine key name given twice",
		"a=http://h:1,gpus=x":           `flag --engine: engines.a.gpus: bad GPU index "x"; write 0-3 or 0,1,2,3`,
		"a=http://h:1,in_flight=-2":     "flag --engine: engines.a.in_flight: must be at least 0, is -2",
		"a=http://169.254.169.254:80":   `flag --engine: engines.a.url: url "http://169.254.169.254:80" leads to a link-local address`,
		"a=http://user:pw@h:1":          "flag --engine: engines.a.url: url carries a user or password; leave it out, whatever needs a secret reads it from a file",
		"a=http://h:1,profile=standart": `flag --engine: engines.a.profile: unknown profile "standart"; did you mean standard?`,
	} {
		if _, err := Load(LoadOptions{Args: []string{"--engine=" + spec}}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", spec, err, want)
		}
	}
}

// C26: one event endpoint for two engines is found whatever source named them.
func TestC26SameEndpointTwice(t *testing.T) {
	t.Parallel()
	const want = "variable RAMJET_ENGINE: engines.b.events: endpoint tcp://127.0.0.1:5557 is also events of engine a (variable RAMJET_ENGINE); each socket belongs to one engine"
	_, err := Load(LoadOptions{Env: []string{
		"RAMJET_ENGINE=a=http://h:1,events=tcp://127.0.0.1:5557 b=http://h:2,events=tcp://127.0.0.1:5557",
	}})
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// A swap cannot be seen here: both endpoints are used once.
	mustLoad(t, LoadOptions{Args: []string{
		"--engine=a=http://h:1,events=tcp://h:5558", "--engine=b=http://h:2,events=tcp://h:5557",
	}})
}

func TestProblemsOfFlagsAndVariables(t *testing.T) {
	t.Parallel()
	_, err := Load(LoadOptions{
		Args:     []string{"--config=r.yaml", "--tie=5ms", "--route.tie=5", "--exact", "--polcy", "x", "--route.policy=lat"},
		Env:      []string{"RAMJET_LIMITS_BODY=5", "RAMJET_TIMEOUTS_DIAL=1s"},
		ReadFile: reader(oneEngine + "usage: none\n"),
	})
	want := strings.Join([]string{
		`r.yaml:2:8: usage: unknown usage "none"; one of pass, inject`,
		`variable RAMJET_LIMITS_BODY: limits.body: size 5 has no unit; did you mean 5B?`,
		`flag --tie: unknown flag; did you mean --route.tie?`,
		`flag --polcy: unknown flag; the nearest known one is --relay`,
		`unexpected argument x`,
		`flag --exact: needs a value; write --exact=VALUE`,
		`flag --route.tie: route.tie: duration 5 has no unit; did you mean 5s?`,
		`flag --route.policy: route.policy: unknown policy "lat"; did you mean latency?`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	var ps Problems
	if !errors.As(err, &ps) || !ps.Usage() {
		t.Error("an unknown flag is wrong usage")
	}
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "no.yaml")
	for _, o := range []LoadOptions{
		{Args: []string{"--config", missing}},
		{Env: []string{"RAMJET_CONFIG=" + missing}},
	} {
		_, err := Load(o)
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 || ps[0].File != missing || ps.Usage() ||
			ps[0].Message != "cannot read: "+fs.ErrNotExist.Error() && !strings.Contains(ps[0].Message, "no such file") {
			t.Errorf("got %v", err)
		}
	}
	_, err := Load(LoadOptions{Args: []string{"--config=big"}, ReadFile: reader(strings.Repeat("#", maxFile+1))})
	if err == nil || err.Error() != "big:1:1: larger than 1MiB" {
		t.Errorf("got %v", err)
	}
	_, err = Load(LoadOptions{Args: []string{"--config="}})
	if err == nil || !strings.HasPrefix(err.Error(), "flag --config: needs a path") && !strings.Contains(err.Error(), "\nflag --config: needs a path") {
		t.Errorf("got %v", err)
	}
	// The flag names the file, whatever the variable says.
	c := mustLoad(t, LoadOptions{Args: []string{"--config=r.yaml"}, Env: []string{"RAMJET_CONFIG=" + missing}, ReadFile: reader(oneEngine)})
	if c.File() != "r.yaml" {
		t.Errorf("read %s", c.File())
	}
}

func TestNoEngines(t *testing.T) {
	t.Parallel()
	_, err := Load(LoadOptions{})
	if want := "engines: no engine is given; add --engine NAME=http://HOST:PORT or an engines list"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	c := mustLoad(t, LoadOptions{AllowNoEngines: true, Args: []string{"--admin=127.0.0.1:1"}})
	if c.Admin.Listen != "127.0.0.1:1" || c.Source("admin.listen") != "flag --admin" {
		t.Errorf("got %s from %s", c.Admin.Listen, c.Source("admin.listen"))
	}
}

func TestListsAndPairsFromFlags(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, LoadOptions{
		Args: []string{"--engine=a=http://h:1", "--listen=:1,:2", "--listen", "unix:///s", "--model.aliases=a=x,b=y", "--model.aliases", "c=z=1"},
		Env:  []string{"RAMJET_LISTEN=:9", "RAMJET_PATHS_ALLOW=/a /b,/c"},
	})
	if got := strings.Join(c.Listen, " "); got != ":1 :2 unix:///s" {
		t.Errorf("listen is %s: repeated flags add up and replace the variable", got)
	}
	if got := strings.Join(c.Paths.Allow, " "); got != "/a /b /c" {
		t.Errorf("paths.allow is %s", got)
	}
	if got := fmt.Sprint(c.Model.Aliases); got != "map[a:x b:y c:z=1]" {
		t.Errorf("model.aliases is %s", got)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	engine := "--engine=a=http://h:1"
	for _, tt := range []struct {
		name      string
		args, env []string
		want      []string
	}{
		{"none", []string{engine}, []string{"PATH=/bin", "HTTP_PROXY=http://p"}, nil},
		{"near variable", []string{engine}, []string{"RAMJET_ROUTE_POLCY=x", "RAMJET_ENGINES=x"}, []string{
			"variable RAMJET_ENGINES: unknown variable; did you mean RAMJET_ENGINE?",
			"variable RAMJET_ROUTE_POLCY: unknown variable; did you mean RAMJET_ROUTE_POLICY?",
		}},
		{"far variable", []string{engine}, []string{"RAMJET_HOME_FOLDER_OF_MINE=x"}, nil},
		{"variable of the command", []string{engine}, []string{"RAMJET_PORT_FILE=x", "RAMJET_LISTEM=x"}, nil},
		{"Kubernetes service named ramjet", []string{engine}, []string{
			"RAMJET_PORT=tcp://10.0.0.1:8000", "RAMJET_SERVICE_HOST=10.0.0.1", "RAMJET_SERVICE_PORT=8000", "RAMJET_SERVICE_PORT_HTTP=8000",
			"RAMJET_PORT_8000_TCP=tcp://10.0.0.1:8000", "RAMJET_PORT_8000_TCP_ADDR=10.0.0.1", "RAMJET_ADMIN_PORT=tcp://10.0.0.2:9900", "RAMJET_ADMIN_SERVICE_HOST=10.0.0.2",
		}, nil},
		{"both names", []string{engine}, []string{"RAMJET_EXACT=1%", "RAMJET_ROUTE_EXACT=2%"}, []string{
			"variable RAMJET_EXACT: has no effect, RAMJET_ROUTE_EXACT is set too",
		}},
		{"admin off loopback", []string{engine, "--admin=:9900"}, nil, []string{
			"flag --admin: admin.listen: reachable from other machines without admin.token_file; mutations and pprof will answer 403",
		}},
		{"admin with a token", []string{engine, "--admin=:9900", "--admin.token-file=/t"}, nil, nil},
		{"admin on loopback", []string{engine, "--admin=[::1]:9900"}, nil, nil},
		{"same url", []string{engine, "--engine=b=http://H:1/"}, nil, []string{
			"flag --engine: engines.b.url: engine a has the same url",
		}},
		{"replay alone", []string{engine + ",events=off,replay=tcp://h:5"}, nil, []string{
			"flag --engine: engines.a.replay: has no effect while events is off",
		}},
		{"queue without a limit", []string{engine, "--limits.queue=5"}, nil, []string{
			"flag --limits.queue: limits.queue: has no effect: no engine has in_flight set",
		}},
		{"queue with a limit", []string{engine + ",in_flight=1", "--limits.queue=5"}, nil, nil},
	} {
		o := LoadOptions{Args: tt.args, Env: tt.env, KnownVariables: []string{"RAMJET_PORT_FILE", "RAMJET_LISTEM"}}
		c, err := Load(o)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, w := range c.Warnings {
			got = append(got, w.String())
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here := filepath.Join(dir, "here")
	if err := os.WriteFile(here, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, LoadOptions{Args: []string{
		"--engine=a=http://h:1,api_key_file=" + dir + "/key", "--admin.token-file=" + here, "--tls.cert=" + dir + "/cert", "--tls.key=" + here,
		"--journal.path=" + dir + "/made-when-needed",
	}})
	got := c.CheckFiles(func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	}).Error()
	const want = "flag --tls.cert: tls.cert: cannot read: no such file or directory\n" +
		"flag --engine: engines.a.api_key_file: cannot read: no such file or directory"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
