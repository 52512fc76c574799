package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"ramjet/gpu"
)

// TestSimulatedGPU: a load that is known gives the figures that its shape would give, and who asks twice as often
// changes nothing.
func TestSimulatedGPU(t *testing.T) {
	t.Parallel()
	standard, mtp := CoreOptions{Profile: ProfileStandard, Speed: 1}, CoreOptions{Profile: ProfileMTP, Speed: 1}
	ten := CoreOptions{Profile: ProfileStandard, Speed: 10}
	for _, c := range []struct {
		name     string
		o        CoreOptions
		span     time.Duration
		st       Stats
		use      float64
		from, to float64 // W
	}{
		{"rests", standard, time.Second, Stats{}, 0, gpuRest, gpuRest},
		{"decodes half of the time", standard, time.Second, Stats{Steps: 50, OutputTokens: 100}, 50 * (9.5e-3 + 2*0.24e-3), 200, 300},
		{"decodes ten times as fast", ten, time.Second, Stats{Steps: 50, OutputTokens: 100}, 5 * (9.5e-3 + 2*0.24e-3), 80, 110},
		{"predicts ahead", mtp, time.Second, Stats{Steps: 20, OutputTokens: 100, Drafts: 40}, 20 * stepSeconds(true, stepLoad{decodes: 2}), 100, 400},
		{"prefills all the time", standard, time.Second, Stats{Steps: 3, OutputTokens: 3, PrefillTokens: 9_900}, 1, 0.95 * gpuLimit, gpuLimit},
		{"ends more than fits", standard, time.Second, Stats{Steps: 400, OutputTokens: 400, PrefillTokens: 30_000}, 1, 500, gpuLimit},
		{"is asked after a minute", standard, time.Minute, Stats{PrefillTokens: 300_000, Steps: 1}, 0.5, 350, 420},
	} {
		g, now := &gpuMeter{}, time.Unix(1_800_000_000, 0)
		if f := g.read(now, Stats{}, c.o); f.use != 0 || f.power != gpuRest {
			t.Errorf("%s: the first figures are %+v", c.name, f)
		}
		f := g.read(now.Add(c.span), c.st, c.o)
		if math.Abs(f.use-c.use) > 0.02 || f.power < c.from || f.power > c.to {
			t.Errorf("%s: %+v, want a use of %.3f and %.0f to %.0f W", c.name, f, c.use, c.from, c.to)
		}
		if again := g.read(now.Add(c.span+gpuEvery/2), Stats{Steps: 1e6, PrefillTokens: 1e9}, c.o); again != f {
			t.Errorf("%s: asked again at once it says %+v after %+v", c.name, again, f)
		}
		// A process that was restarted counts from zero.
		if f = g.read(now.Add(2*c.span+gpuEvery), Stats{}, c.o); f.use != 0 {
			t.Errorf("%s: after a restart %+v", c.name, f)
		}
	}
}

// TestSimulatedGPUWarmsUp slowly, and never beyond what its power gives.
func TestSimulatedGPUWarmsUp(t *testing.T) {
	t.Parallel()
	g, now, st := &gpuMeter{}, time.Unix(1_800_000_000, 0), Stats{}
	last := g.read(now, st, CoreOptions{Speed: 1}).temperature
	for range 200 {
		now = now.Add(time.Second)
		st.Steps, st.PrefillTokens = st.Steps+1, st.PrefillTokens+10_000
		at := g.read(now, st, CoreOptions{Speed: 1}).temperature
		if at < last || at > gpuHot || at-last > 5 {
			t.Fatalf("from %.1f to %.1f degrees in a second", last, at)
		}
		last = at
	}
	if last < gpuHot-3 {
		t.Errorf("%.1f degrees after 200 s at the limit", last)
	}
}

// TestSimulatedGPUIsRead by Ramjet's own reader of dcgm-exporter's metrics, with nothing missing.
func TestSimulatedGPUIsRead(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	a := call(t, s, get("/sim/dcgm/7"))
	all := gpu.ParseDCGM([]byte(a.body))
	if a.status != 200 || len(all) != 1 {
		t.Fatalf("%d, %d GPUs in %s", a.status, len(all), a.body)
	}
	d := all[0]
	if d.Index != 7 || d.Name != "simulated GPU" || !strings.HasPrefix(d.UUID, "simulated-") || d.Utilization != 0 || d.PowerW != gpuRest || d.PowerLimitW != gpuLimit ||
		d.TemperatureC != gpuCool || d.SMClockHz != gpuRestClock*1e6 || d.MemoryTotalBytes != gpuMemory<<20 || d.MemoryUsedBytes != gpuUsed<<20 || len(d.Throttle) != 0 {
		t.Errorf("%+v", d)
	}
	busy := gpuFigures{use: 1, power: gpuPrefill, temperature: 70.4}
	if d = gpu.ParseDCGM([]byte(busy.text(0, "x")))[0]; d.Utilization != 1 || d.TemperatureC != 70 || len(d.Throttle) != 1 || d.Throttle[0] != "power-cap" {
		t.Errorf("%+v", d)
	}
	for _, index := range []string{"x", "128", "-1", "", "07"} {
		if a := call(t, s, get("/sim/dcgm/"+index)); a.status != 404 {
			t.Errorf("%q: %d %s", index, a.status, a.body)
		}
	}
}
