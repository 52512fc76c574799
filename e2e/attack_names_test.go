package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// pour sends n requests on some connections, each of which sends a batch before
// it reads the answers, and counts the statuses.
func pour(t *testing.T, r *rig.Ramjet, n int, make func(i int) string) (statuses *[600]atomic.Int64) {
	t.Helper()
	statuses = new([600]atomic.Int64)
	const width, batch = 8, 50
	inParallel(width, width, func(k int) {
		c, err := net.Dial("tcp", r.Public)
		if err != nil {
			t.Errorf("cannot connect: %v", err)
			return
		}
		defer c.Close()
		in := bufio.NewReaderSize(c, 64<<10)
		var out strings.Builder
		for i := k; i < n; {
			_ = c.SetDeadline(time.Now().Add(6 * rig.Patience))
			out.Reset()
			sent := 0
			for ; sent < batch && i < n; i += width {
				out.WriteString(make(i))
				sent++
			}
			if _, err := io.WriteString(c, out.String()); err != nil {
				t.Errorf("cannot send: %v", err)
				return
			}
			for range sent {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Errorf("no answer: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				statuses[resp.StatusCode].Add(1)
			}
		}
	})
	return statuses
}

func shortPost(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, strings.Join(headers, ""), len(body), body)
}

// TestAttackNames: 100,000 models that nobody serves, as many sessions and as
// many keys. None becomes a series of the metrics, and what is remembered of
// them has a bound.
func TestAttackNames(t *testing.T) {
	rig.Slow(t, "300,000 requests")
	const n = 100_000
	engines := []string{"a=" + wellMade(t, 0), "b=" + wellMade(t, 0)}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("the-right-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const right = "Authorization: Bearer the-right-key\r\n"
	for _, c := range []struct {
		name   string
		status int
		flags  []string
		make   func(i int) string
	}{
		{"models", 404, nil, func(i int) string {
			return shortPost(rig.ChatPath, fmt.Sprintf(`{"model":"model-%d","messages":[{"role":"user","content":"x"}]}`, i))
		}},
		{"sessions", 200, nil, func(i int) string {
			return shortPost(rig.ChatPath, fmt.Sprintf(`{"model":"m","session_id":"session-%d","messages":[{"role":"user","content":"message %d"}]}`, i, i))
		}},
		{"keys", 401, []string{"--auth.keys-file=" + keys}, func(i int) string {
			return shortPost(rig.ChatPath, `{"model":"m","messages":[]}`, fmt.Sprintf("Authorization: Bearer key-%d\r\n", i))
		}},
	} {
		// The access log would fill this process's memory: 300,000 lines are kept here.
		r := rig.StartWith(t, rig.Setup{URLs: engines, Loose: true, NotReady: c.flags != nil, Flags: append([]string{"--log.level=warn"}, c.flags...)})
		if c.flags != nil {
			r.AwaitReady()
		}
		warm := shortPost(rig.ChatPath, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, right)
		if got := pour(t, r, 1000, func(int) string { return warm }); got[200].Load() != 1000 {
			t.Fatalf("%s: only %d of 1000 plain requests were answered", c.name, got[200].Load())
		}
		series, base, began := len(r.Metrics().Samples), r.RSS(), time.Now()
		peak := watchPeak(r)
		got := pour(t, r, n, c.make)
		most := peak.end()
		if got[c.status].Load() != n {
			t.Errorf("%s: %d of %d were answered %d", c.name, got[c.status].Load(), n, c.status)
		}
		m := r.Metrics()
		t.Logf("%d %s in %v: %d MiB resident at most, %d before; %d series, %d before", n, c.name, time.Since(began).Round(10*time.Millisecond), most>>20, base>>20, len(m.Samples), series)
		// One series for an outcome not seen before, with its model "unknown".
		if len(m.Samples) > series+2 {
			t.Errorf("%s: %d series of metrics, %d before", c.name, len(m.Samples), series)
		}
		if most > base+96<<20 {
			t.Errorf("%s: %d MiB resident, %d before", c.name, most>>20, base>>20)
		}
		if got := pour(t, r, 100, func(int) string { return warm }); got[200].Load() != 100 {
			t.Errorf("%s: afterwards only %d of 100 plain requests were answered", c.name, got[200].Load())
		}
		rig.Eventually(t, rig.Patience, "nothing held", func() string {
			if n := r.Metrics().Leases(); n != 0 {
				return fmt.Sprintf("%s: %v leases", c.name, n)
			}
			return ""
		})
	}
}
