package telemetry

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// ModelUnknown is the label value of every model that no engine serves: a
// name given by a client never becomes a label.
const ModelUnknown = "unknown"

// maxRequestSeries bounds the family against a caller that passes client text
// after all: past it every model counts as unknown.
const maxRequestSeries = 4096

type requestKey struct {
	model  string
	status int
	end    End
}

// requestCounters finds the counter of a triple without a lock and without
// allocating: the map is immutable and replaced whole when a new triple comes.
type requestCounters struct {
	current atomic.Pointer[map[requestKey]*metrics.Counter]
	fam     *family
	mu      sync.Mutex // orders writers
}

// usualStatus is the status with which each end is listed at 0 from the
// start, so that a rate over it sees the first one.
var usualStatus = map[End]int{
	EndDone: 200, EndClientGoneWaiting: 499, EndClientGoneStreaming: 499, EndClientStalled: 200,
	EndRejected: 400, EndShed: 429, EndTimedOut: 504, EndEngineUnreachable: 503, EndEngineError: 500,
	EndEngineDied: 200, EndEngineStalled: 200, EndEngineBadResponse: 502, EndDrained: 503, EndInternal: 500,
}

func (c *requestCounters) init(fam *family) {
	c.fam = fam
	c.current.Store(&map[requestKey]*metrics.Counter{})
	for _, end := range Ends() {
		c.get(requestKey{ModelUnknown, usualStatus[end], end})
	}
}

func (c *requestCounters) get(k requestKey) *metrics.Counter {
	if n := (*c.current.Load())[k]; n != nil {
		return n
	}
	return c.create(k)
}

func (c *requestCounters) create(k requestKey) *metrics.Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.current.Load()
	if len(old) >= maxRequestSeries {
		k.model = ModelUnknown
	}
	if n := old[k]; n != nil {
		return n
	}
	n := c.fam.counter(label("model", k.model), label("code", strconv.Itoa(k.status)), label("end", k.end.String()))
	next := maps.Clone(old)
	next[k] = n
	c.current.Store(&next)
	return n
}

// Request counts one finished request. The model is one that an engine
// serves, else ModelUnknown or ""; status is what the client got, 499 if it
// left before, and outside of 100..599 it counts as 500. Nothing is allocated
// once a triple was seen.
func (m *Metrics) Request(model string, status int, end End) {
	if model == "" {
		model = ModelUnknown
	}
	if status < 100 || status > 599 {
		status = 500
	}
	m.requests.get(requestKey{model, status, end}).Inc()
}

// ends sums what was counted by the way of ending.
func (c *requestCounters) ends() (sum [endCount]uint64) {
	for k, n := range *c.current.Load() {
		sum[k.end] += n.Get()
	}
	return sum
}
