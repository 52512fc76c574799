package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/kvevents"
	"ramjet/lease"
	"ramjet/probe"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// product is what serve builds around a decision, put together as main does.
type product struct {
	engines []*engine.Engine
	monitor *probe.Monitor
	book    *lease.Book
	set     *route.Set
	index   *radix.Index
	memory  *radix.Memory
	router  *route.Router
	feeds   []*kvevents.Feed
	sources []*publisher

	now  atomic.Uint64 // bits of the virtual time, for the feeds' goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// epoch is the wall time at which virtual time begins.
const epoch = 1_700_000_000

// newProduct starts the feeds of engines with these profiles and caches of so many blocks.
func newProduct(profiles []string, blocks, blockTokens int, s route.Settings) (*product, error) {
	p := &product{book: lease.NewBook(nil), set: &route.Set{}, index: radix.NewIndex(), memory: radix.NewMemory()}
	for i, profile := range profiles {
		name := string(rune('a' + i))
		e := engine.New(engine.Options{Name: name, URL: &url.URL{Scheme: "http", Host: name + ".invalid"}, Profile: profile})
		p.engines = append(p.engines, e)
		p.set.Members = append(p.set.Members, route.Member{Engine: e, Account: lease.NewAccount(profile), Slot: len(p.set.Members)})
	}
	o := probe.Defaults()
	o.Get = func(_ context.Context, _ *engine.Engine, path string, _ []byte, _ int64) (int, []byte, error) {
		if path != "/health" {
			return http.StatusNotFound, nil, nil
		}
		return http.StatusOK, nil, nil
	}
	p.monitor = probe.New(o, p.engines)
	p.router = route.New(p.book, p.index, p.memory, s, p.set)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	for i, e := range p.engines {
		src := newPublisher()
		feed := kvevents.New(kvevents.Options{
			Name: e.Name, Slot: i, Events: kvevents.Endpoint{Network: "tcp", Address: e.Name + ".invalid:5557"},
			Residency: p.index.Engine(i), Metrics: src, Trusted: e.SetTrust, Dial: src.dial,
			Now: func() time.Time {
				s, part := math.Modf(math.Float64frombits(p.now.Load()))
				return time.Unix(epoch+int64(s), int64(part*1e9))
			},
		})
		feed.SetCapacity(blocks)
		p.index.Engine(i).SetCapacity(blocks)
		p.memory.SetCapacity(i, int64(blocks)*int64(blockTokens))
		p.sources, p.feeds = append(p.sources, src), append(p.feeds, feed)
		p.wg.Go(func() { feed.Run(ctx) })
	}
	if err := p.begin(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// startLimit is wall time enough for two goroutines to greet each other on a loaded machine.
const startLimit = time.Minute

// begin waits until the monitor has admitted every engine and the feeds believe the records, which begin empty.
func (p *product) begin(ctx context.Context) error {
	mctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		p.monitor.Run(mctx)
		close(done)
	}()
	for _, src := range p.sources {
		select {
		case <-src.up:
		case <-time.After(startLimit):
			return errors.New("cannot start: a feed does not connect")
		}
		src.send(payload(epoch, 0, nil, nil, 1))
	}
	for began := time.Now(); ; runtime.Gosched() {
		ready := true
		for _, e := range p.engines {
			trust, _ := e.Trust()
			ready = ready && trust == telemetry.TrustExact && e.State() == telemetry.StateReady
		}
		if ready {
			break
		}
		if time.Since(began) > startLimit {
			return fmt.Errorf("cannot start: engine a is %s", p.engines[0].State())
		}
	}
	// From here on virtual time passes, and the monitor's clock is the wall's.
	stop()
	<-done
	return nil
}

// at tells the feeds the virtual time.
func (p *product) at(now float64) { p.now.Store(math.Float64bits(now)) }

// settle waits until an engine's trust is exact, or is not.
func (p *product) settle(slot int, exact bool) {
	for began := time.Now(); time.Since(began) < startLimit; runtime.Gosched() {
		if trust, _ := p.engines[slot].Trust(); (trust == telemetry.TrustExact) == exact {
			return
		}
	}
}

func (p *product) close() {
	p.stop()
	for _, src := range p.sources {
		src.sever()
	}
	// A feed may be telling of a batch that nobody waits for any more.
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			for _, e := range p.engines {
				e.Close()
			}
			return
		case <-p.sources[0].applied:
		}
	}
}
