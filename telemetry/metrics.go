package telemetry

import (
	"bytes"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics is one Ramjet's set of metrics. It never touches the metrics
// library's global set, so that several proxies can live in one process (the
// demo, tests). Every method and handle is safe for concurrent use.
type Metrics struct {
	// Duration is the whole time of a request in seconds, from its head to
	// the last byte or the moment that ended it.
	Duration *metrics.PrometheusHistogram
	// RouteDuration is the time in seconds from a complete request to its
	// choice of engine, without any wait in the queue.
	RouteDuration *metrics.PrometheusHistogram
	// QueueDuration is the time in seconds that a request waited for an
	// engine below its in-flight limit; requests that did not wait are not in it.
	QueueDuration *metrics.PrometheusHistogram

	families  []*family
	fam       engineFamilies
	requests  requestCounters
	residency residencyCounters
	retries   [retryCount]*metrics.Counter

	build       string
	reloadOK    atomic.Bool
	reloadTime  atomic.Int64 // Unix nanoseconds
	logDropped  atomic.Pointer[func() uint64]
	leaseSource atomic.Pointer[LeaseSource]

	mu      sync.Mutex // guards engines
	engines map[string]*EngineMetrics
}

// LeaseSource reads the load account of one engine at scrape time: requests
// that have no first token yet, requests that have, and the tokens that they
// weigh.
type LeaseSource func(engine string) (prefill, decode int, tokens int64)

// NewMetrics returns a set whose families are all there, those with closed
// labels at 0.
func NewMetrics(version, goVersion string) *Metrics {
	m := &Metrics{engines: make(map[string]*EngineMetrics)}
	m.build = series("ramjet_build_info", label("version", version), label("goversion", goVersion))
	m.reloadOK.Store(true)
	m.reloadTime.Store(time.Now().UnixNano())
	m.addRequestFamilies()
	m.addEngineFamilies()
	m.addResidencyFamilies()
	m.addProcessFamilies()
	return m
}

// add appends a family. A nil write gives it a set of its own.
func (m *Metrics) add(f Family, write func(b *bytes.Buffer, name string)) *family {
	fam := &family{Family: f, write: write}
	if write == nil {
		fam.set = metrics.NewSet()
	}
	m.families = append(m.families, fam)
	return fam
}

func (m *Metrics) addRequestFamilies() {
	m.requests.init(m.add(Family{Name: "ramjet_requests_total", Type: "counter", Labels: []string{"model", "code", "end"},
		Help: "Requests by served model, HTTP status and the way they ended; each request once, refused ones and clients that left (499) too."}, nil))
	m.Duration = m.add(Family{Name: "ramjet_request_duration_seconds", Type: "histogram", Bounds: durationBounds,
		Help: "Whole time of a request, from its head to the last byte or the moment that ended it."}, nil).histogram()
	m.RouteDuration = m.add(Family{Name: "ramjet_route_duration_seconds", Type: "histogram", Bounds: routeBounds,
		Help: "Time from a complete request to the choice of its engine, without waiting in the queue."}, nil).histogram()
	m.QueueDuration = m.add(Family{Name: "ramjet_queue_duration_seconds", Type: "histogram", Bounds: queueBounds,
		Help: "Time that requests waited for an engine below its in-flight limit."}, nil).histogram()
	retries := m.add(Family{Name: "ramjet_retries_total", Type: "counter", Labels: []string{"reason"},
		Help: "Attempts given up for another one, by what failed."}, nil)
	for _, r := range Retries() {
		m.retries[r] = retries.counter(label("reason", r.String()))
	}
}

func (m *Metrics) addProcessFamilies() {
	m.add(Family{Name: "ramjet_log_dropped_total", Type: "counter",
		Help: "Log and access lines lost because the log's reader was too slow, or took none."},
		func(b *bytes.Buffer, name string) {
			var n uint64
			if f := m.logDropped.Load(); f != nil {
				n = (*f)()
			}
			sample(b, name, float64(n))
		})
	m.add(Family{Name: "ramjet_build_info", Type: "gauge", Labels: []string{"version", "goversion"},
		Help: "Always 1; the labels tell the version of Ramjet and of Go."},
		func(b *bytes.Buffer, _ string) { sample(b, m.build, 1) })
	m.add(Family{Name: "ramjet_config_reload_success", Type: "gauge",
		Help: "1 if the last loading of the configuration succeeded, 0 if the one before it is still in use."},
		func(b *bytes.Buffer, name string) { sample(b, name, boolValue(m.reloadOK.Load())) })
	m.add(Family{Name: "ramjet_config_reload_timestamp_seconds", Type: "gauge",
		Help: "Unix time of the last successful loading of the configuration."},
		func(b *bytes.Buffer, name string) { sample(b, name, float64(m.reloadTime.Load())/1e9) })
}

// Retry counts one attempt given up for another.
func (m *Metrics) Retry(reason Retry) { m.retries[reason].Inc() }

// SetReload notes the result of loading the configuration at a time.
func (m *Metrics) SetReload(ok bool, at time.Time) {
	m.reloadOK.Store(ok)
	if ok {
		m.reloadTime.Store(at.UnixNano())
	}
}

// SetLeaseSource sets where lease gauges are read at scrape time. f must not
// block and must not call back into m.
func (m *Metrics) SetLeaseSource(f LeaseSource) { m.leaseSource.Store(&f) }

// SetLogDropped sets where the number of dropped log lines is read.
func (m *Metrics) SetLogDropped(f func() uint64) { m.logDropped.Store(&f) }

// Families lists what WritePrometheus writes of Ramjet's own, in order.
func (m *Metrics) Families() []Family {
	out := make([]Family, len(m.families))
	for i, f := range m.families {
		out[i] = f.Family
	}
	return out
}

// WritePrometheus writes every family in the Prometheus text format, each
// with HELP and TYPE, then those of the process and the Go runtime. It
// collects the page first, so a slow reader holds nothing.
func (m *Metrics) WritePrometheus(w io.Writer) {
	var b bytes.Buffer
	for _, f := range m.families {
		f.writeTo(&b)
	}
	writeProcess(&b)
	_, _ = w.Write(b.Bytes()) // a scraper that left is nobody's error
}

func sample(b *bytes.Buffer, name string, v float64) {
	b.WriteString(name)
	b.WriteByte(' ')
	b.Write(strconv.AppendFloat(b.AvailableBuffer(), v, 'g', -1, 64))
	b.WriteByte('\n')
}

func boolValue(v bool) float64 {
	if v {
		return 1
	}
	return 0
}
