package gpu

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// exporter answers what f gives, and counts.
func exporter(t *testing.T, f func(n int) (status int, body string)) (d *DCGM, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		status, body := f(int(asked.Add(1)))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	d, err := NewDCGM(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.poll, d.client.Timeout = 5*time.Millisecond, 30*time.Second
	return d, asked
}

func busy(percent int) string {
	return fmt.Sprintf("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"u\"} %d\n", percent)
}

// The exporter's own interval shows in when its figures change, however often
// it is asked.
func TestDCGMLearnsTheInterval(t *testing.T) {
	t.Parallel()
	d, asked := exporter(t, func(n int) (int, string) { return 200, busy(n / 8 % 100) })
	got, err := collect(t, d, 6)
	if err == nil || len(got) != 6 {
		t.Fatalf("%d readings, %v", len(got), err)
	}
	if n := asked.Load(); n < 40 {
		t.Errorf("6 readings after %d answers: one that changes nothing is no reading", n)
	}
	if got[0].Interval != 0 || got[5].Interval < 20*time.Millisecond || got[5].Interval > 5*time.Second {
		t.Errorf("intervals %s .. %s, figures change each 40 ms", got[0].Interval, got[5].Interval)
	}
	for i, r := range got {
		if s := r.Samples[0]; s.Utilization != float64(i)/100 || s.At.IsZero() {
			t.Errorf("reading %d: %s", i, show(s))
		}
	}
}

func TestDCGMReadsWhatAnExporterWrites(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/exporter.prom")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := exporter(t, func(int) (int, string) { return 200, string(text) })
	got, _ := collect(t, d, 1)
	if len(got) != 1 || len(got[0].Samples) != 2 || got[0].Samples[1].PowerW != 76.9 {
		t.Errorf("%+v", got)
	}
	if d.Host() != "127.0.0.1" || !strings.HasPrefix(d.Name(), "dcgm 127.0.0.1:") {
		t.Errorf("%s at %s", d.Name(), d.Host())
	}
}

func TestDCGMSaysWhyItEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"status":      {503, busy(1), "cannot ask the exporter: it answered 503 Service Unavailable"},
		"redirect":    {302, "", "cannot ask the exporter: it answered 302 Found"},
		"no GPU":      {200, "# nothing\n", errNoGPU.Error()},
		"web page":    {200, "<html>", errNoGPU.Error()},
		"much":        {200, strings.Repeat("# much of nothing\n", maxDCGM/18+1), "it is longer than 16 MiB"},
		"not a whole": {200, "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1", errNoGPU.Error()},
	} {
		d, asked := exporter(t, func(int) (int, string) { return c.status, c.body })
		if got, err := collect(t, d, 1); err == nil || !strings.Contains(err.Error(), c.want) || len(got) != 0 || asked.Load() != 1 {
			t.Errorf("%s: %d readings, %d answers, %v", name, len(got), asked.Load(), err)
		}
	}
	d, err := NewDCGM("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t, d, 1); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	if _, err := NewDCGM("http://h:%zz", nil); err == nil {
		t.Error("a bad address is taken")
	}
}

func TestDCGMNames(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://h:9400": "dcgm h:9400", "http://h:9400/": "dcgm h:9400", "http://h:9400/metrics": "dcgm h:9400",
		"https://h:9400": "dcgm https://h:9400", "http://h:9400/gpu/metrics": "dcgm h:9400/gpu", "http://h/x?y=1": "dcgm h/x?y=1",
	} {
		if d, err := NewDCGM(address, nil); err != nil || d.Name() != want || d.Host() != "h" {
			t.Errorf("%s: %s at %s, %v", address, d.Name(), d.Host(), err)
		}
	}
}

// An answer that stops in its middle is no answer.
func TestDCGMCutAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, busy(50))
	}))
	t.Cleanup(server.Close)
	d, err := NewDCGM(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := collect(t, d, 1); err == nil || !strings.Contains(err.Error(), "cannot read the exporter's answer") {
		t.Errorf("%v %v", got, err)
	}
}

// What a name resolves to is judged at the connection.
func TestDCGMForbiddenAddress(t *testing.T) {
	t.Parallel()
	d, asked := exporter(t, func(int) (int, string) { return 200, busy(1) })
	guarded, err := NewDCGM(d.url, func(a netip.Addr) string {
		if a.IsLoopback() {
			return "a forbidden place"
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t, guarded, 1); err == nil || !strings.Contains(err.Error(), "127.0.0.1 leads to a forbidden place") || asked.Load() != 0 {
		t.Errorf("%v, %d answers", err, asked.Load())
	}
}

// An idle GPU is a line, not a hole.
func TestDCGMKeepsWhatDoesNotChange(t *testing.T) {
	t.Parallel()
	d, asked := exporter(t, func(int) (int, string) { return 200, busy(0) })
	d.hold = 50 * time.Millisecond
	got, _ := collect(t, d, 3)
	if len(got) != 3 || asked.Load() < 3 || got[2].Interval != 0 {
		t.Fatalf("%d readings of %d answers, interval %s: nothing changed, so it cannot be known", len(got), asked.Load(), got[2].Interval)
	}
	for i, r := range got[1:] {
		if gap := r.Samples[0].At.Sub(got[i].Samples[0].At); gap < d.hold {
			t.Errorf("reading %d comes %s after the one before", i+1, gap)
		}
	}
}

// Read ends with its context even while an exporter is silent, and gives its
// connection back.
func TestDCGMEndsWithItsContext(t *testing.T) {
	t.Parallel()
	asked, left := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	}))
	t.Cleanup(server.Close)
	d, err := NewDCGM(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Read(ctx, func(Reading) {}) }()
	<-asked
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	<-left
}
