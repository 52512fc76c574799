package benchmarks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/sim"
)

// Outputs of the reference deployment are capped at 256 tokens.
const overheadTokens = 256

// BenchmarkOverhead measures what the way through the built binary costs the users of two simulated engines at
// reference speed: the same requests, with the same starts, go to the engines directly and through Ramjet, in turns.
//
// One iteration is a whole set of pairs, about half a minute each at c1 and c16.
//
//	go test -run '^$' -bench Overhead ./benchmarks
func BenchmarkOverhead(b *testing.B) {
	for _, c := range []struct{ streams, pairs int }{{1, 6}, {16, 5}} {
		b.Run(fmt.Sprintf("c%d", c.streams), func(b *testing.B) {
			engines := []string{startSim(b), startSim(b)}
			proxy := startRamjet(b, engines, fewChecks)
			run := newOverheadRun(b, c.streams)
			run.batch(engines, 8) // connections, pools and pages as after some traffic
			run.batch(proxy.addresses, 8)
			var direct, through, added []float64
			b.ResetTimer()
			for range b.N {
				for pair := range c.pairs {
					var d, r []float64
					if pair%2 == 0 { // a drift of the machine must not favour either way
						d = run.batch(engines, overheadTokens)
						r = run.batch(proxy.addresses, overheadTokens)
					} else {
						r = run.batch(proxy.addresses, overheadTokens)
						d = run.batch(engines, overheadTokens)
					}
					direct, through = append(direct, d...), append(through, r...)
					added = append(added, mean(r)-mean(d))
				}
			}
			b.StopTimer()
			s := spreadOf(added)
			b.ReportMetric(float64(c.streams)*overheadTokens/mean(direct), "direct-tok/s")
			b.ReportMetric(float64(c.streams)*overheadTokens/mean(through), "ramjet-tok/s")
			b.ReportMetric(100*s.Median/mean(direct), "overhead-%")
			b.ReportMetric(1e3*s.Median, "added-ms/request")
			b.ReportMetric(1e3*s.Low, "added-low-ms")
			b.ReportMetric(1e3*s.High, "added-high-ms")
			b.ReportMetric(run.allocsPerToken(proxy), "allocs/token")
			b.ReportMetric(0, "ns/op") // the time of a set of pairs says nothing
		})
	}
}

// startSim runs a simulated engine without speculative decoding; two engines of one speed make the choice between them
// irrelevant for the duration, which is what has to be compared.
func startSim(tb testing.TB) string {
	tb.Helper()
	s, err := sim.NewServer(sim.ServerOptions{Model: Model, Core: sim.CoreOptions{Profile: sim.ProfileStandard}})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
	return s.Addr()
}

// overheadRun sends batches of requests.
type overheadRun struct {
	tb      testing.TB
	streams int
	sent    int
	client  *http.Client // keeps its connections from batch to batch, as an SDK does
}

func newOverheadRun(tb testing.TB, streams int) *overheadRun {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	tb.Cleanup(client.CloseIdleConnections)
	return &overheadRun{tb: tb, streams: streams, client: client}
}

// batch makes one request on each of the streams, spread over targets, and returns their durations in seconds. The
// starts are a step and a half apart, so that each request meets the engine's steps at another phase: together they
// would all wait for the same one, and its length is more than what is measured here.
func (o *overheadRun) batch(targets []string, tokens int) []float64 {
	o.tb.Helper()
	const apart = 15 * time.Millisecond
	durations, errs := make([]float64, o.streams), make([]error, o.streams)
	var wg sync.WaitGroup
	for i := range o.streams {
		o.sent++
		url, name := "http://"+targets[i%len(targets)]+"/v1/chat/completions", o.sent
		wg.Go(func() {
			time.Sleep(time.Duration(i) * apart)
			durations[i], errs[i] = streamOnce(o.client, url, name, tokens)
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		o.tb.Fatal(errs[i])
	}
	return durations
}

// allocsPerToken compares long answers with short ones that follow each other without a pause: what a request, a new
// connection or a look at the counter allocates is in both. It is the median of three comparisons.
func (o *overheadRun) allocsPerToken(proxy *target) float64 {
	o.tb.Helper()
	const short = 16
	meter := newAllocMeter(o.tb, proxy.admin, time.Second)
	o.batch(proxy.addresses, short)
	var slopes []float64
	for range 3 {
		few := meter.during(o.tb, func() { o.batch(proxy.addresses, short) })
		many := meter.during(o.tb, func() { o.batch(proxy.addresses, overheadTokens) })
		slopes = append(slopes, (many-few)/float64(o.streams*(overheadTokens-short)))
	}
	return spreadOf(slopes).Median
}

// streamOnce streams one answer of exactly so many tokens and returns how long it took, in seconds.
func streamOnce(client *http.Client, url string, name, tokens int) (float64, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Number %08d, please."}],"stream":true,"max_tokens":%d,"ignore_eos":true,`+
		`"stream_options":{"include_usage":true}}`, Model, name, tokens)
	start := time.Now()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return 0, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	counted, done := false, false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		counted = counted || strings.Contains(line, fmt.Sprintf(`"completion_tokens":%d`, tokens))
		done = done || line == "data: [DONE]"
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if !counted || !done {
		return 0, fmt.Errorf("the answer is not whole: counted %v, done %v", counted, done)
	}
	return time.Since(start).Seconds(), nil
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// The benchmark's client counts the tokens of an answer and takes nothing less than the whole of it.
func TestStreamOnceAgainstTheSimulator(t *testing.T) {
	t.Parallel()
	engine := startSim(t)
	run := newOverheadRun(t, 2)
	for _, s := range run.batch([]string{engine}, 4) {
		if s < 0.02 || s > 10 {
			t.Errorf("4 tokens at reference speed took %.3f s", s)
		}
	}
	for name, answer := range map[string]string{
		"no count":  "data: {}\n\ndata: [DONE]\n\n",
		"no [DONE]": `data: {"usage":{"completion_tokens":4}}` + "\n\n",
		"too few":   `data: {"usage":{"completion_tokens":3}}` + "\n\ndata: [DONE]\n\n",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		if _, err := streamOnce(server.Client(), server.URL, 1, 4); err == nil {
			t.Errorf("%s: the answer was taken", name)
		}
		server.Close()
	}
}
