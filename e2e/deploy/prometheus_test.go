package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

const rulesFile = "deploy/prometheus/ramjet.rules.yml"

// hurry is by how much durations of the rules are divided, so that an hour of the alerts passes in two minutes. Rates are per
// second and need no change.
const hurry = 30

// scrape is the interval of the test's Prometheus: ten samples in five hurried minutes.
const scrape = time.Second

var ruleDuration = regexp.MustCompile(`(\[|for: )(\d+)([smh])`)

// hurried returns the rules with every range and every `for` shortened.
func hurried(rules string) string {
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	return ruleDuration.ReplaceAllStringFunc(rules, func(s string) string {
		m := ruleDuration.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[2])
		if err != nil {
			panic("BUG: the pattern admits digits alone: " + err.Error())
		}
		return fmt.Sprintf("%s%dms", m[1], (time.Duration(n) * units[m[3]] / hurry).Milliseconds())
	})
}

// prometheus is a real Prometheus on loopback that scrapes proxies and evaluates the shipped rules, hurried.
type prometheus struct {
	url   string
	names map[string]string // by instance
}

// startPrometheus runs one that scrapes the given instances, HOST:PORT by name.
func startPrometheus(t *testing.T, targets map[string]string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := write("rules.yml", hurried(read(t, rulesFile)))
	var b strings.Builder
	fmt.Fprintf(&b, "global: {scrape_interval: %v, scrape_timeout: %v, evaluation_interval: %v}\nrule_files: [%q]\n", scrape, scrape, scrape, rules)
	b.WriteString("scrape_configs:\n  - job_name: ramjet\n    static_configs:\n")
	p := &prometheus{names: map[string]string{}}
	for name, target := range targets {
		fmt.Fprintf(&b, "      - {targets: [%q]}\n", target)
		p.names[target] = name
	}
	config := write("prometheus.yml", b.String())
	address := ports.Kept(t)
	launch(t, "prometheus", exec.Command(filepath.Join(prometheusTools(t), "prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	p.url = "http://" + address
	eventually(t, "Prometheus", func() error {
		if status, body := get(p.url + "/-/ready"); status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	return p
}

// alert is one that is pending or fires.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
	Value       string            `json:"value"`
	name        string            // of the target that it is about
}

func (p *prometheus) alerts(t *testing.T) []alert {
	t.Helper()
	status, body := get(p.url + "/api/v1/alerts")
	var answer struct {
		Data struct{ Alerts []alert }
	}
	if err := json.Unmarshal([]byte(body), &answer); status != 200 || err != nil {
		t.Fatalf("/api/v1/alerts: %d %v %s", status, err, body)
	}
	for i, a := range answer.Data.Alerts {
		answer.Data.Alerts[i].name = p.names[a.Labels["instance"]]
	}
	return answer.Data.Alerts
}

// target is one that Prometheus scrapes.
type target struct {
	Labels            map[string]string
	Health, LastError string
}

func (p *prometheus) targets(t *testing.T) []target {
	t.Helper()
	_, body := get(p.url + "/api/v1/targets")
	var answer struct {
		Data struct{ ActiveTargets []target }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("/api/v1/targets: %v %s", err, body)
	}
	return answer.Data.ActiveTargets
}

// awaitScrapes waits until every target was scraped, or could not be.
func (p *prometheus) awaitScrapes(t *testing.T) {
	t.Helper()
	eventually(t, "the first scrapes", func() error {
		targets := p.targets(t)
		if len(targets) != len(p.names) { // the first five seconds: it waits for discovery to settle
			return fmt.Errorf("%d targets of %d are known", len(targets), len(p.names))
		}
		for _, target := range targets {
			if target.Health == "unknown" {
				return fmt.Errorf("%s was not scraped", p.names[target.Labels["instance"]])
			}
		}
		return nil
	})
}

// unhealthy lists the targets that Prometheus cannot scrape, with the reason.
func (p *prometheus) unhealthy(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, target := range p.targets(t) {
		if target.Health == "down" {
			out[p.names[target.Labels["instance"]]] = target.LastError
		}
	}
	return out
}
