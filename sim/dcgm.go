package sim

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// The GPU of a simulated engine, as dcgm-exporter would show it. Nothing is measured: the figures follow from what the
// core computed since they were last made, so that the shape of a load can be seen where no GPU is.
const (
	// gpuEvery is how often the figures are made, whoever asks how often: dcgm-exporter's -c at its shortest useful.
	gpuEvery = 500 * time.Millisecond

	// The board is an H200 by its data sheet: 700 W, 141 GB. What it takes at rest and while it works are round figures.
	gpuLimit   = 700.0 // W
	gpuRest    = 80.0  // W
	gpuDecode  = 450.0 // W while it decodes, which waits for memory
	gpuPrefill = 690.0 // W while it prefills, which waits for arithmetic

	gpuMemory = 143_771 // MiB
	// vLLM takes its whole share of the memory when it starts (--gpu-memory-utilization, 0.9), however full its cache is.
	gpuUsed = gpuMemory * 9 / 10

	gpuCool   = 32.0             // degrees Celsius without power
	gpuHot    = 74.0             // at gpuLimit
	gpuSlowly = 20 * time.Second // after which two thirds of a change of temperature have come about

	gpuClock     = 1980 // MHz
	gpuRestClock = 345

	// NVML's clock event reasons.
	gpuReasonIdle  = 0x1
	gpuReasonPower = 0x4 // software power cap

	gpuIndexes = 128
)

// gpuMeter makes the figures of one simulated GPU. It is safe for concurrent use.
type gpuMeter struct {
	mu   sync.Mutex // guards below
	at   time.Time  // of the figures; zero = none were made
	seen Stats
	now  gpuFigures
}

// gpuFigures are one reading.
type gpuFigures struct {
	use         float64 // 0 to 1
	power       float64 // W
	temperature float64 // degrees Celsius
}

// gpuRoutes adds GET /sim/dcgm/N for each index N that the engine's GPU may be shown under: several engines on one
// machine have one each. The answer are the metrics of dcgm-exporter that Ramjet reads.
func gpuRoutes(table map[string]endpoint) map[string]endpoint {
	g := &gpuMeter{}
	for index := range gpuIndexes {
		table["/sim/dcgm/"+strconv.Itoa(index)] = endpoint{get: func(s *Server, _ context.Context, w *responder) {
			f := g.read(time.Now(), s.core.Stats(), s.core.Options())
			w.reply(200, "text/plain; version=0.0.4; charset=utf-8", []byte(f.text(index, s.addr)))
		}}
	}
	return table
}

// read returns the figures, new ones if the last are old enough.
func (g *gpuMeter) read(now time.Time, st Stats, o CoreOptions) gpuFigures {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		g.at, g.seen, g.now = now, st, gpuFigures{power: gpuRest, temperature: gpuCool}
		return g.now
	}
	span := now.Sub(g.at)
	if span < gpuEvery {
		return g.now
	}
	if st.Steps < g.seen.Steps || st.OutputTokens < g.seen.OutputTokens || st.PrefillTokens < g.seen.PrefillTokens || st.Drafts < g.seen.Drafts {
		// Another process: its counters began again.
		g.seen = Stats{}
	}
	decode, prefill := busyTimes(g.seen, st, o)
	// A step is counted when it ends; one that began before adds to this span.
	scale := span.Seconds() / max(span.Seconds(), decode+prefill)
	decode, prefill = scale*decode/span.Seconds(), scale*prefill/span.Seconds()
	f := gpuFigures{use: min(decode+prefill, 1)}
	f.power = gpuRest + decode*(gpuDecode-gpuRest) + prefill*(gpuPrefill-gpuRest)
	towards := gpuCool + (gpuHot-gpuCool)*f.power/gpuLimit
	f.temperature = g.now.temperature + (towards-g.now.temperature)*min(span.Seconds()/gpuSlowly.Seconds(), 1)
	g.at, g.seen, g.now = now, st, f
	return f
}

// busyTimes estimates the seconds that a core's steps took between two snapshots, by the clockwork of its profile: what
// prefilled tokens added, and the rest. It takes the batch to have been the same in all of them, and leaves the
// context's part out.
func busyTimes(before, after Stats, o CoreOptions) (decode, prefill float64) {
	steps := float64(after.Steps - before.Steps)
	if steps == 0 {
		return 0, 0
	}
	sequences := float64(after.OutputTokens - before.OutputTokens)
	if o.Profile == ProfileMTP {
		sequences = float64(after.Drafts - before.Drafts)
	}
	step := stepSeconds(o.Profile == ProfileMTP, stepLoad{decodes: int(sequences/steps + 0.5)})
	prefill = float64(after.PrefillTokens-before.PrefillTokens) / prefillRate
	return steps * step / o.Speed, prefill / o.Speed
}

// text is the exporter's answer.
func (f gpuFigures) text(index int, address string) string {
	clock, reason := gpuClock, 0
	switch {
	case f.use == 0:
		clock, reason = gpuRestClock, gpuReasonIdle
	case f.power > 0.95*gpuLimit:
		reason = gpuReasonPower
	}
	p := &page{labels: fmt.Sprintf(`gpu="%d",UUID="simulated-%s-%d",modelName="simulated GPU"`, index, address, index)}
	one := func(name, help string, v float64) { p.one(name, "gauge", help, v) }
	one("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", float64(clock))
	one("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", float64(int(f.temperature+0.5)))
	one("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", float64(int(10*f.power+0.5))/10)
	one("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit (in W).", gpuLimit)
	one("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", float64(int(100*f.use+0.5)))
	one("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", gpuMemory-gpuUsed)
	one("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", gpuUsed)
	one("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Reasons for the present clock.", float64(reason))
	return p.b.String()
}
