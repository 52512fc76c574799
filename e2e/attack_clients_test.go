package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// The tests of the attack_ files hold more open at once than a deployment ever
// should, and print what that cost. Each asks for three things: memory within a
// bound that follows from the number, an honest answer to everybody, and the
// closing assertions afterwards.

// ramjetPeak follows the resident memory of a process.
type ramjetPeak struct {
	stop chan struct{}
	done chan struct{}
	most int // after done
}

func watchPeak(r *rig.Ramjet) *ramjetPeak {
	p := &ramjetPeak{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for {
			p.most = max(p.most, r.RSS())
			select {
			case <-p.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return p
}

// end returns the peak in bytes.
func (p *ramjetPeak) end() int {
	close(p.stop)
	<-p.done
	return p.most
}

// affordable is n, or what the limit of open files of this process allows when
// each takes so many of them here.
func affordable(t *testing.T, n, each int) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("cannot read the limit of open files: %v", err)
	}
	if most := (int(min(limit.Cur, 1<<30)) - 1000) / each; most < n {
		t.Logf("%d instead of %d: this process may open %d files (ulimit -n)", most, n, limit.Cur)
		return most
	}
	return n
}

// inParallel runs f for 0..n-1, so many at a time.
func inParallel(n, width int, f func(i int)) {
	work := make(chan int)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
}

// TestAttackSlowClients: 5,000 streams whose clients take an event now and
// then. Each costs a fixed sum, others are served as ever, and all of it comes
// back.
func TestAttackSlowClients(t *testing.T) {
	rig.Slow(t, "5,000 open streams")
	n := affordable(t, 5000, 2)
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.client-write=30s", "--timeouts.dial=10s") // the engines are this process, which is busy
	release := make(chan struct{})
	play := func(x *rig.Exchange) {
		if !strings.HasPrefix(x.ID(), "slow-") {
			x.Plain()
			return
		}
		x.StreamHead()
		x.Events(rig.RoleEvent(), rig.DeltaEvent("one"), rig.DeltaEvent("two"))
		if x.Hold(release) {
			x.Events(rig.DoneEvent)
			x.Write(rig.LastChunk)
		}
	}
	a.On(play)
	b.On(play)
	base := r.RSS()
	clients := make([]*rig.Client, n)
	inParallel(n, 50, func(i int) {
		c, err := rig.DialAddr(t, r.Public)
		if err != nil {
			t.Errorf("client %d cannot connect: %v", i, err)
			return
		}
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("slow"), rig.ChatBody(true)))
		clients[i] = c
	})
	if t.Failed() {
		return
	}
	rig.Eventually(t, 8*rig.Patience, "all streams open", func() string {
		if got := int(r.Metrics().Leases()); got != n {
			return fmt.Sprintf("%d of %d leases", got, n)
		}
		return ""
	})
	held := r.RSS()
	began := time.Now()
	r.Served(r.ID(rig.AutoID+"among"), false)
	t.Logf("%d slow streams: %d MiB resident, %.1f KiB each; another request took %v", n, held>>20, float64(held-base)/1024/float64(n), time.Since(began))
	if each := (held - base) / n; each > 40<<10 {
		t.Errorf("a slow stream costs %d bytes", each)
	}
	close(release)
	inParallel(n, 50, func(i int) {
		if resp := clients[i].Response(4 * rig.Patience); !resp.Complete || resp.Status != 200 || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) {
			t.Errorf("client %d: %d %.300q", i, resp.Status, resp.Body)
		}
		clients[i].Close()
	})
}

// TestAttackHalfOpen: 1,000 connections that say nothing or half a head. They
// are answered 408 or closed at their deadline, whatever they trickle, and
// others are served meanwhile.
func TestAttackHalfOpen(t *testing.T) {
	n := affordable(t, 1000, 1)
	if testing.Short() {
		n = min(n, 200)
	}
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.client-header=3s")
	base := r.RSS()
	conns := make([]net.Conn, n)
	inParallel(n, 20, func(i int) {
		c, err := net.DialTimeout("tcp", r.Public, rig.Patience)
		if err != nil {
			t.Errorf("cannot connect: %v", err)
			return
		}
		conns[i] = c
		if i%4 > 0 { // the fourth says nothing at all
			_, _ = c.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("a", i%4*5000)))
		}
	})
	held := r.RSS()
	r.Served(r.ID(rig.AutoID+"among"), true)
	t.Logf("%d half-open connections: %d MiB resident, %.1f KiB each", n, held>>20, float64(held-base)/1024/float64(n))
	// 15 KiB of head are held for some, in buffers of 16 or 32 KiB.
	if each := (held - base) / n; each > 64<<10 {
		t.Errorf("a half-open connection costs %d bytes", each)
	}
	answered := 0
	var mu sync.Mutex
	inParallel(n, n, func(i int) {
		if conns[i] == nil {
			return
		}
		defer conns[i].Close()
		if i%4 == 0 {
			return // it may stay: it holds nothing
		}
		_ = conns[i].SetReadDeadline(time.Now().Add(4 * rig.Patience))
		b := make([]byte, 4096)
		k, _ := conns[i].Read(b)
		if strings.HasPrefix(string(b[:k]), "HTTP/1.1 408 ") {
			mu.Lock()
			answered++
			mu.Unlock()
		}
	})
	if want := n - (n+3)/4; answered != want {
		t.Errorf("%d of %d unfinished heads were answered 408", answered, want)
	}
}
