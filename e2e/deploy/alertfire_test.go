package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestAlertsFire brings each fault about, all at once, and waits until a real Prometheus, with the shipped rules, says
// what an operator would be told. The case without a fault must stay silent all the while.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute; go test without -short runs it")
	}
	prometheusTools(t)
	ctx, cancel := context.WithCancel(context.Background())
	l := &lab{TB: t, watched: make(chan struct{})}
	defer func() { cancel(); l.wg.Wait() }() // before any process is stopped
	cases := slices.Concat(alertCases, residencyCases)
	targets := startCases(ctx, l, cases)
	p := startPrometheus(t, targets)
	p.awaitScrapes(t)
	close(l.watched)
	missing := awaitAlerts(t, p, cases)
	for _, m := range missing {
		t.Errorf("%s did not fire", m)
	}
	if len(missing) > 0 {
		t.Logf("alerts at the end: %v\ntargets that are down: %v", p.alerts(t), p.unhealthy(t))
	}
	everyAlertHasACase(t, cases)
}

// startCases starts the cases side by side and returns where each proxy's /metrics is.
func startCases(ctx context.Context, l *lab, cases []alertCase) map[string]string {
	var (
		mu      sync.Mutex // guards targets
		targets = map[string]string{}
		wg      sync.WaitGroup
	)
	binary(l, "") // built once, before everybody asks
	binary(l, "panicpoints")
	for _, c := range cases {
		wg.Go(func() {
			p := c.start(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			targets[c.name] = p.admin
		})
	}
	wg.Wait()
	return targets
}

// awaitAlerts returns the alerts that did not fire in time. It fails the test for each that fires where nothing is wrong.
func awaitAlerts(t *testing.T, p *prometheus, cases []alertCase) []string {
	t.Helper()
	missing := map[string]bool{}
	for _, c := range cases {
		for _, a := range c.fires {
			missing[a+" ("+c.name+")"] = true
		}
	}
	started, silent := time.Now(), map[string]bool{}
	for len(missing) > 0 && time.Since(started) < patience {
		time.Sleep(scrape)
		for _, a := range p.alerts(t) {
			key := a.Labels["alertname"] + " (" + a.name + ")"
			if a.State != "firing" {
				continue
			}
			if a.name == "nothing wrong" && !silent[key] {
				silent[key] = true
				t.Errorf("%s fires with %s where nothing is wrong", key, a.Value)
			}
			if missing[key] {
				t.Logf("%5.1f s  %s: %s", time.Since(started).Seconds(), key, a.Annotations["summary"])
				delete(missing, key)
			}
		}
	}
	var out []string
	for m := range missing {
		out = append(out, m)
	}
	slices.Sort(out)
	return out
}

// everyAlertHasACase: an alert that nobody fired is an alert that nobody knows to work.
func everyAlertHasACase(t *testing.T, cases []alertCase) {
	t.Helper()
	var fired []string
	for _, c := range cases {
		fired = append(fired, c.fires...)
	}
	for _, r := range rules(t) {
		if !slices.Contains(fired, r.Alert) {
			t.Errorf("no case fires %s", r.Alert)
		}
	}
}

// rule is one alert of the shipped file.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t testing.TB) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	d := yaml.NewDecoder(strings.NewReader(read(t, rulesFile)))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatalf("%s: %v", rulesFile, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

// chat sends one streamed chat and reads its answer, whatever it is. Pairs of header names and values may follow.
func chat(ctx context.Context, p *proxy, text string, maxTokens int, headers ...string) {
	send(ctx, p, fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, maxTokens, text), headers...)
}

// ask sends one chat that is answered whole, with its usage, which a stream has only on demand.
func ask(ctx context.Context, p *proxy, text string) {
	send(ctx, p, fmt.Sprintf(`{"max_tokens":3,"messages":[{"role":"user","content":%q}]}`, text))
}

func send(ctx context.Context, p *proxy, body string, headers ...string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.public+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		panic("BUG: cannot make a request: " + err.Error())
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return // what a fault does to clients is not what is asked here
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
