package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// wellMade is an engine that keeps nothing of what it gets: a body of 8 MiB,
// two hundred times, is more than a test should hold.
func wellMade(t *testing.T, wait time.Duration) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, rig.ModelList("m"))
			return
		}
		if n > 1<<20 {
			time.Sleep(wait)
		}
		fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"stop"}],"received":%d}`, n)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestAttackBodies: 200 bodies of 8 MiB at once, 1.6 GiB in all, on a process
// that may use 512 MiB. As many as body_memory holds are read, the others wait in
// their clients' kernels; each gets the engine's answer, or 503 after the time
// that it may wait; the process stays within its memory.
func TestAttackBodies(t *testing.T) {
	rig.Slow(t, "1.6 GiB of bodies")
	const clients, size, limit = 200, 8 << 20, 512 << 20
	urls := []string{"a=" + wellMade(t, 200*time.Millisecond), "b=" + wellMade(t, 200*time.Millisecond)}
	r := rig.StartWith(t, rig.Setup{URLs: urls, Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)},
		Flags: []string{"--limits.body-memory=256MiB", "--limits.queue-wait=20s", "--timeouts.client-body-rate=0"}})
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a long story ", size/13) + `"}]}`
	peak := watchPeak(r)
	answers := map[string]int{}
	var mu sync.Mutex
	began := time.Now()
	inParallel(clients, clients, func(i int) {
		got := sendLarge(r, r.ID("large"), body)
		mu.Lock()
		defer mu.Unlock()
		answers[got]++
	})
	most := peak.end()
	t.Logf("%d bodies of %d MiB in %v: %d MiB resident at most; answers %v", clients, size>>20, time.Since(began).Round(time.Millisecond), most>>20, answers)
	// GOMEMLIMIT counts Go's memory, not the pages of the binary itself.
	if most > limit+32<<20 {
		t.Errorf("%d MiB resident, the limit is %d MiB", most>>20, limit>>20)
	}
	if answers["200"] < 20 {
		t.Errorf("only %d of %d were served", answers["200"], clients)
	}
	if n := answers["200"] + answers["503 overloaded"]; n != clients {
		t.Errorf("%d of %d were answered as they must be", n, clients)
	}
	// All of the budget is free again.
	if got := sendLarge(r, r.ID("large"), body); got != "200" {
		t.Errorf("afterwards a large body is answered %s", got)
	}
}

// sendLarge sends a request and returns the answer's status, with the code of
// an error. The body is written beside the reading: an answer may come before
// its end.
func sendLarge(r *rig.Ramjet, id, body string) string {
	c, err := net.DialTimeout("tcp", r.Public, 4*rig.Patience)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(8 * rig.Patience))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.Close() // before the wait, so that a write that blocks ends
	wg.Go(func() {
		_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nX-Request-Id: "+id+
			fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)))
		_, _ = io.WriteString(c, body)
	})
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	switch {
	case resp.StatusCode == 200 && strings.Contains(string(text), fmt.Sprintf(`"received":%d`, len(body))):
		return "200"
	case strings.Contains(string(text), `"code":"overloaded"`):
		return fmt.Sprintf("%d overloaded", resp.StatusCode)
	}
	return fmt.Sprintf("%d %.100s", resp.StatusCode, text)
}
