package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// dcgmPoll is how often an exporter is asked. It measures at an interval of
	// its own (30 s unless told otherwise by -c), which only shows in when its
	// figures change.
	dcgmPoll = 500 * time.Millisecond
	// dcgmTimeout is the longest wait for an answer: an exporter answers from
	// memory.
	dcgmTimeout = 3 * time.Second
	// dcgmSteady is how long figures may stay the same until they are kept
	// once more: an idle GPU is a line, not a hole.
	dcgmSteady = 5 * time.Second
	// maxDCGM bounds an answer: 64 GPUs with all of DCGM's metrics take 4 MiB.
	maxDCGM = 16 << 20
)

// DCGM reads the GPUs behind one dcgm-exporter. It implements Source.
type DCGM struct {
	name, url, host string
	client          http.Client
	poll, hold      time.Duration
}

// NewDCGM returns a source that asks the exporter at address, whose path is
// /metrics if it has none. forbidden says what an address leads to if it
// must not be connected to, else "", whatever name resolved to it; nil = none.
func NewDCGM(address string, forbidden func(netip.Addr) string) (*DCGM, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("cannot read the exporter's address: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	dialer := &net.Dialer{Timeout: time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if forbidden != nil {
			if what := forbidden(at.Addr()); what != "" {
				return fmt.Errorf("%s leads to %s", at.Addr(), what)
			}
		}
		return nil
	}}
	return &DCGM{
		name: "dcgm " + strings.TrimSuffix(strings.TrimPrefix(u.String(), "http://"), "/metrics"), url: u.String(), host: u.Hostname(), poll: dcgmPoll, hold: dcgmSteady,
		client: http.Client{
			Timeout: dcgmTimeout,
			// No proxy of the environment, no redirect to elsewhere.
			Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 1, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Name implements Source.
func (d *DCGM) Name() string { return d.name }

// Host implements Source: the exporter's.
func (d *DCGM) Host() string { return d.host }

var errNoGPU = errors.New("its answer names no GPU: no DCGM_FI_ metric with a gpu label")

// Read implements Source.
func (d *DCGM) Read(ctx context.Context, deliver func(Reading)) error {
	defer d.client.CloseIdleConnections()
	ticker := time.NewTicker(d.poll)
	defer ticker.Stop()
	var last []Sample
	var kept time.Time
	var beat pace
	for {
		samples, err := d.ask(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		changed := last == nil || !slices.EqualFunc(samples, last, sameFigures)
		if changed && last != nil {
			beat.tick(now)
		}
		if changed || now.Sub(kept) >= d.hold {
			for i := range samples {
				samples[i].At = now
			}
			last, kept = samples, now
			deliver(Reading{Interval: beat.interval(), Samples: samples})
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *DCGM) ask(ctx context.Context) ([]Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the exporter: %w", err)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the exporter: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot ask the exporter: it answered %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDCGM+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the exporter's answer: %w", err)
	case len(text) > maxDCGM:
		return nil, fmt.Errorf("cannot read the exporter's answer: it is longer than %d MiB", maxDCGM>>20)
	}
	samples := ParseDCGM(text)
	if len(samples) == 0 {
		return nil, errNoGPU
	}
	return samples, nil
}

// sameFigures compares all but the time.
func sameFigures(a, b Sample) bool {
	return a.UUID == b.UUID && a.Index == b.Index && a.Name == b.Name &&
		same(a.Utilization, b.Utilization) && same(a.PowerW, b.PowerW) && same(a.PowerLimitW, b.PowerLimitW) && same(a.TemperatureC, b.TemperatureC) &&
		a.MemoryUsedBytes == b.MemoryUsedBytes && a.MemoryTotalBytes == b.MemoryTotalBytes && a.SMClockHz == b.SMClockHz &&
		slices.Equal(a.Throttle, b.Throttle)
}

// same takes two unknown values for equal.
func same(a, b float64) bool { return a == b || a != a && b != b }
