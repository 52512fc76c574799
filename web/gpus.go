package web

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"ramjet/gpu"
)

// GPUs is what the admin port needs of gpu.Sampler.
type GPUs interface {
	Snapshot() []gpu.Device
	Series(since time.Time) []gpu.Series
	Interval() time.Duration
	Note() string
}

// gpuView is one device in the topology.
type gpuView struct {
	Index       int      `json:"index"`
	Name        *string  `json:"name"`
	Utilization floatOr  `json:"utilization"`
	MemoryUsed  *int64   `json:"memory_used_bytes"`
	MemoryTotal *int64   `json:"memory_total_bytes"`
	Power       floatOr  `json:"power_w"`
	PowerLimit  floatOr  `json:"power_limit_w"`
	Temperature floatOr  `json:"temperature_c"`
	SMClock     *int64   `json:"sm_clock_hz"`
	Throttle    []string `json:"throttle"`
	AgeS        float64  `json:"age_s"`
	Source      string   `json:"source"`
	IntervalS   floatOr  `json:"interval_s"`
}

// devices returns the newest sample of every device by engine, nil if there is
// none.
func (s *Server) devices(now time.Time) map[string][]gpuView {
	if s.o.GPUs == nil {
		return nil
	}
	var all map[string][]gpuView
	for _, d := range s.o.GPUs.Snapshot() {
		if all == nil {
			all = map[string][]gpuView{}
		}
		v := gpuView{
			Index: d.Index, Name: textOrNil(d.Name), Utilization: floatOr(d.Utilization),
			MemoryUsed: countOrNil(d.MemoryUsedBytes), MemoryTotal: countOrNil(d.MemoryTotalBytes),
			Power: floatOr(d.PowerW), PowerLimit: floatOr(d.PowerLimitW), Temperature: floatOr(d.TemperatureC),
			SMClock: countOrNil(d.SMClockHz), Throttle: d.Throttle, Source: d.Source, IntervalS: secondsOr(d.Interval),
			AgeS: max(now.Sub(d.At), 0).Round(time.Millisecond).Seconds(),
		}
		if v.Throttle == nil {
			v.Throttle = []string{}
		}
		all[d.Engine] = append(all[d.Engine], v)
	}
	return all
}

// historyView is what GET /api/v1/gpu and `event: gpu` tell: the devices'
// series of CONTRACT section 5, and beside them what the engines' requests
// asked for on the same axis.
type historyView struct {
	IntervalS floatOr      `json:"interval_s"`
	Note      *string      `json:"note"`
	Series    []seriesView `json:"series"`
	Tokens    tokensView   `json:"tokens"`
}

type seriesView struct {
	Engine      string    `json:"engine"`
	Index       int       `json:"index"`
	Source      string    `json:"source"`
	IntervalS   floatOr   `json:"interval_s"`
	Time        []stamp   `json:"time"`
	Utilization []floatOr `json:"utilization"`
	Power       []floatOr `json:"power_w"`
	MemoryUsed  []*int64  `json:"memory_used_bytes"`
}

// cut drops the first n samples.
func (v *seriesView) cut(n int) {
	v.Time, v.Utilization, v.Power, v.MemoryUsed = v.Time[n:], v.Utilization[n:], v.Power[n:], v.MemoryUsed[n:]
}

// gpu answers with what is kept of the last ten minutes, or what came after
// since; engine limits it to one engine.
func (s *Server) gpu(w http.ResponseWriter, r *http.Request) {
	var since time.Time
	if text := r.URL.Query().Get("since"); text != "" {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			fail(w, http.StatusBadRequest, "invalid_request", "since must be a time like 2026-01-02T15:04:05.000Z, not "+quote(text))
			return
		}
		// Stamps are cut to milliseconds; who sends the last one back has seen all of that millisecond.
		since = t.Truncate(time.Millisecond).Add(time.Millisecond - time.Nanosecond)
	}
	reply(w, http.StatusOK, s.history(since, r.URL.Query().Get("engine")))
}

// history returns what came after since; "" stands for every engine.
func (s *Server) history(since time.Time, engine string) historyView {
	s.flows.catchUp(time.Now().Add(-sampleEvery - sampleSlack)) // what is later may be a sample's
	v := historyView{IntervalS: floatOr(sampleEvery.Seconds()), Series: []seriesView{}, Tokens: s.flows.since(since, engine)}
	if s.o.GPUs == nil {
		v.Note = textOrNil("no source of GPU figures runs; set gpu.source: auto")
		return v
	}
	if d := s.o.GPUs.Interval(); d > 0 {
		v.IntervalS = secondsOr(d)
	}
	v.Note = textOrNil(s.o.GPUs.Note())
	for _, one := range s.o.GPUs.Series(since) {
		if engine != "" && one.Engine != engine {
			continue
		}
		sv := seriesView{Engine: one.Engine, Index: one.Index, Source: one.Source, IntervalS: secondsOr(one.Interval)}
		for i := range one.Times {
			sv.Time = append(sv.Time, stamp(one.Times[i]))
			sv.Utilization = append(sv.Utilization, floatOr(one.Utilization[i]))
			sv.Power = append(sv.Power, floatOr(one.PowerW[i]))
			sv.MemoryUsed = append(sv.MemoryUsed, countOrNil(one.MemoryUsedBytes[i]))
		}
		v.Series = append(v.Series, sv)
	}
	return v
}

// floatOr is a number, null where it is not known (NaN).
type floatOr float64

// MarshalJSON implements json.Marshaler. Four decimals are beyond what anything
// here is measured to, and keep ten minutes of many devices small.
func (f floatOr) MarshalJSON() ([]byte, error) {
	v := float64(f)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Round(v*1e4)/1e4, 'f', -1, 64), nil
}

// secondsOr is a time span in seconds; 0 is not known.
func secondsOr(d time.Duration) floatOr {
	if d <= 0 {
		return floatOr(math.NaN())
	}
	return floatOr(d.Seconds())
}

// countOrNil turns a negative count, which stands for unknown, into nil.
func countOrNil(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
