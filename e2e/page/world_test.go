package page

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// world makes up what a Ramjet would tell, from a seed: so many engines, each
// with its own habits, and records of decisions. The shapes are those of
// CONTRACT sections 4 and 5; TestRecordedShapesAreRamjets compares them with the
// binary's own.
type world struct {
	engines []worldEngine
	models  []string
	gpus    int // of each engine
	started time.Time
	note    any // gpu_note
	rate    float64
	random  *rand.Rand
	changes []fields
	made    int

	reportedAge float64 // of what engines said of themselves; 0 = a second
	source      string  // of GPU figures
	twins       bool    // an engine's GPUs are in machines of their own, and have one index
}

type worldEngine struct {
	name, profile, state, reason, trust, trustReason string
	since                                            time.Time
	load                                             float64 // 0..1
	leases                                           fields  // nil = by the load
	habit                                            string  // busy, idle, saturated, waits, bursts
}

const stampForm = "2006-01-02T15:04:05.000Z"

func stampOf(t time.Time) string { return t.UTC().Format(stampForm) }

// newWorld has n engines that are ready.
func newWorld(n int) *world {
	w := &world{models: []string{"qwen3.8-flash-next"}, gpus: 2, source: "nvidia-smi", started: time.Now().Add(-3 * time.Hour), rate: 4, random: rand.New(rand.NewPCG(1, uint64(n)))}
	habits := []string{"bursts", "saturated", "waits", "idle", "busy"}
	for i := range n {
		e := worldEngine{name: fmt.Sprintf("engine-%03d", i), profile: []string{"mtp", "standard"}[i%2], state: "ready",
			reason: "three good checks and 30 s since the first", trust: "exact", trustReason: "every batch since the engine started",
			since: w.started.Add(time.Duration(i) * time.Minute / 2), load: 0.1 + 0.9*w.random.Float64(), habit: habits[i%len(habits)]}
		if n <= 26 {
			e.name = string(rune('a' + i))
		}
		w.engines = append(w.engines, e)
	}
	return w
}

func (w *world) topology(now time.Time) fields {
	list := []fields{}
	sum, inFlight := 0.0, 0
	for i := range w.engines {
		e := w.engine(&w.engines[i], i, now)
		list = append(list, e)
		sum += w.engines[i].load
		leases := e["leases"].(fields)
		inFlight += leases["prefill"].(int) + leases["decode"].(int)
	}
	transitions := w.changes
	if transitions == nil {
		transitions = []fields{}
	}
	return fields{
		"time": stampOf(now), "version": "0.7.0", "uptime_s": int(now.Sub(w.started).Seconds()), "start_time": stampOf(w.started), "status": "ok",
		"models": w.models, "policy": "latency", "exact": fields{"mode": "percent", "percent": 100},
		"traffic":   fields{"in_flight": inFlight, "requests_per_s": w.rate, "prompt_tokens_per_s": w.rate * 5100, "cached_tokens_per_s": w.rate * 3900, "output_tokens_per_s": w.rate * 180},
		"agreement": fields{"agree": 9800, "would-move": 41, "tie": 120, "cold": 300, "untrusted": 12},
		"lately": fields{"span_s": 60.2, "prompt_tokens": int(w.rate * 306000), "cached_tokens": int(w.rate * 234000), "duplicate_prefill_tokens": int(w.rate * 2200), "forgone_cached_tokens": int(w.rate * 900),
			"reasons":   fields{"exact": int(w.rate * 31), "approximate": 0, "single-flight": int(w.rate * 4), "load": int(w.rate * 16), "profile": int(w.rate * 7), "session": 0, "stored-response": 0, "rotation": int(w.rate * 2), "only-one": 0, "fail-open": 0},
			"agreement": fields{"agree": int(w.rate * 55), "would-move": int(w.rate), "tie": int(w.rate * 2), "cold": int(w.rate * 2), "untrusted": 0},
			"ends":      fields{"done": int(w.rate * 58), "client-gone-streaming": int(w.rate), "client-gone-waiting": 0, "client-stalled": 0, "rejected": 1, "shed": 0, "timed-out": 0, "engine-unreachable": 0, "engine-error": 0, "engine-died": 0, "engine-stalled": 0, "engine-bad-response": 0, "drained": 0, "internal": 0}},
		"engines": list, "transitions": transitions, "gpu_note": w.note,
	}
}

func (w *world) engine(e *worldEngine, i int, now time.Time) fields {
	usable := e.state == "ready" || e.state == "slow-start" || e.state == "suspect"
	phase := now.Sub(w.started).Seconds()/7 + float64(i)
	wave := 0.5 + 0.5*math.Sin(phase)
	prefill, decode := 0, 0
	if usable && e.habit != "idle" {
		prefill, decode = int(e.load*3*wave), 1+int(e.load*14*wave)
	}
	leases := e.leases
	if leases == nil {
		leases = fields{"prefill": prefill, "decode": decode}
	}
	share := e.load / max(w.total(), 0.01)
	rates := fields{"requests_per_s": w.rate * share, "prompt_tokens_per_s": w.rate * share * 5100, "cached_tokens_per_s": w.rate * share * 3900, "output_tokens_per_s": w.rate * share * 180}
	if !usable {
		rates = fields{"requests_per_s": 0, "prompt_tokens_per_s": 0, "cached_tokens_per_s": 0, "output_tokens_per_s": 0}
	}
	var gpus any
	if w.gpus > 0 {
		var list []fields
		for g := range w.gpus {
			u, p := w.device(e, i, g, now)
			index, source := w.place(i, g)
			throttle := []string{}
			if e.habit == "saturated" && g == 0 {
				throttle = []string{"sw_power_cap"}
			}
			list = append(list, fields{"index": index, "name": "NVIDIA H200", "utilization": u, "memory_used_bytes": int64(118) << 30, "memory_total_bytes": int64(141) << 30,
				"power_w": p, "power_limit_w": 700, "temperature_c": 44 + 30*u, "sm_clock_hz": int64(1.98e9), "throttle": throttle, "age_s": 0.3, "source": source, "interval_s": 0.5})
		}
		gpus = list
	}
	return fields{
		"name": e.name, "url": "http://10.0.0." + fmt.Sprint(i%250+1) + ":8000", "profile": e.profile, "state": e.state, "state_reason": e.reason, "state_since": stampOf(e.since),
		"trust": e.trust, "trust_reason": e.trustReason, "models": w.models, "block_tokens": 784, "kv_blocks": 1913, "kv_capacity_tokens": 1499792, "index_blocks": 950 + i,
		"leases": leases, "lease_tokens": 2210 * decode, "queue_tokens": prefill * 1800, "prefill_tokens_per_s": 10100,
		"seconds_per_token":  fields{"1": 0.0054, "8": 0.008, "16": 0.0101},
		"match_tokens_total": 81000000 + int(phase*1000), "cached_tokens_total": 80500000 + int(phase*990), "ttft_p50_s": 0.12 + 0.1*wave, "ttft_p99_s": 1.1 + wave, "tpot_p50_s": 0.009 + 0.003*wave,
		"errors_per_s": 0, "totals": fields{"prompt_tokens": 120000000, "output_tokens": 4000000, "duplicate_prefill_tokens": 31000, "forgone_cached_tokens": 9000},
		"rates": rates, "match_share": 0.55 + 0.4*e.load, "cached_share": 0.53 + 0.4*e.load,
		"reported": fields{"running": decode, "waiting": prefill, "kv_usage": 0.2 + 0.7*e.load, "age_s": max(w.reportedAge, 1.2)}, "gpus": gpus,
	}
}

func (w *world) total() float64 {
	sum := 0.0
	for i := range w.engines {
		sum += w.engines[i].load
	}
	return sum
}

// device is what one GPU does at a moment: a pure function of time.
func (w *world) device(e *worldEngine, i, g int, at time.Time) (utilization, power float64) {
	s := float64(at.UnixMilli()) / 1000
	noise := 0.04 * math.Sin(s*3.1+float64(7*i+g))
	switch e.habit {
	case "idle":
		utilization = 0
	case "saturated":
		utilization = 0.96 + noise
	case "waits":
		utilization = 0.05 + noise
	case "bursts":
		utilization = 0.08
		if math.Mod(s+float64(i*3), 40) < 14 {
			utilization = 0.9 + noise
		}
	default:
		utilization = 0.6 + 0.25*math.Sin(s/23) + noise
	}
	utilization = math.Round(min(max(utilization, 0), 1)*100) / 100
	return utilization, math.Round(110 + 570*utilization)
}

// place is what tells a GPU of an engine from its others.
func (w *world) place(i, g int) (index int, source string) {
	if w.twins {
		return 0, fmt.Sprint("dcgm node", g)
	}
	return i*w.gpus%8 + g, w.source
}

func (w *world) tokens(e *worldEngine, i int, at time.Time) (prefill, decode float64) {
	u, _ := w.device(e, i, 0, at)
	s := float64(at.UnixMilli()) / 1000
	decode = math.Round(900 * u * (0.9 + 0.1*math.Sin(s*2)))
	if u > 0.3 && math.Mod(s+float64(i), 6) < 1.5 {
		prefill = math.Round(9000 * u)
	}
	if e.habit == "waits" {
		decode, prefill = 20, 0
	}
	return prefill, decode
}

// gpu is the half seconds after from, up to now.
func (w *world) gpu(from, now time.Time) fields { return w.gpuOf("", from, now) }

// gpuOf is the same of one engine.
func (w *world) gpuOf(only string, from, now time.Time) fields {
	const step = 500 * time.Millisecond
	var times []time.Time
	for at := from.Truncate(step).Add(step); !at.After(now); at = at.Add(step) {
		times = append(times, at)
	}
	stamps := []string{}
	for _, at := range times {
		stamps = append(stamps, stampOf(at))
	}
	series, lines := []fields{}, []fields{}
	for i := range w.engines {
		e := &w.engines[i]
		if only != "" && e.name != only {
			continue
		}
		prefill, decode := []float64{}, []float64{}
		for _, at := range times {
			p, d := w.tokens(e, i, at)
			prefill, decode = append(prefill, p), append(decode, d)
		}
		lines = append(lines, fields{"engine": e.name, "prefill_tokens_per_s": prefill, "decode_tokens_per_s": decode})
		for g := range w.gpus {
			utilization, power, memory := []float64{}, []float64{}, []int64{}
			for _, at := range times {
				u, p := w.device(e, i, g, at)
				utilization, power, memory = append(utilization, u), append(power, p), append(memory, 118<<30)
			}
			index, source := w.place(i, g)
			series = append(series, fields{"engine": e.name, "index": index, "source": source, "interval_s": 0.5, "time": stamps, "utilization": utilization, "power_w": power, "memory_used_bytes": memory})
		}
	}
	return fields{"interval_s": 0.5, "note": w.note, "series": series, "tokens": fields{"time": stamps, "engines": lines}}
}

var (
	someReasons = []string{"exact", "exact", "exact", "load", "profile", "single-flight", "rotation"}
	someEnds    = []string{"done", "done", "done", "done", "done", "done", "client-gone-streaming", "engine-died", "rejected"}
)

// decision is one record that ended now.
func (w *world) decision(now time.Time) fields {
	w.made++
	r := w.random
	n := len(w.engines)
	first, second := r.IntN(n), r.IntN(n)
	if second == first {
		second = (first + 1) % n
	}
	end := someEnds[r.IntN(len(someEnds))]
	prompt := 200 + r.IntN(90000)
	match := prompt / 16 * 16 * r.IntN(10) / 10
	x := fields{
		"request_id": fmt.Sprintf("req-%08x", w.made*7919), "time": stampOf(now.Add(-2 * time.Second)), "path": "/v1/chat/completions", "model": w.models[0], "dialect": "openai", "stream": true,
		"session": fmt.Sprintf("%016x", r.Uint64()), "prompt_tokens": prompt, "keys": "exact", "keys_note": nil, "output_cap": 256, "expected_output_tokens": 180, "handoff": r.IntN(2) == 0,
		"policy": "latency", "cohort": fields{"percent": 100, "in": true},
		"candidates": []fields{w.candidate(first, prompt, match, 0.7), w.candidate(second, prompt, match/2, 1.02)},
		"engine":     w.engines[first].name, "reason": someReasons[r.IntN(len(someReasons))], "runner_up": w.engines[second].name, "margin_s": 0.31, "forgone_tokens": 0,
		"shadow":   fields{"engine": w.engines[first].name, "reason": "approximate", "agreement": "agree"},
		"attempts": []fields{{"engine": w.engines[first].name, "outcome": end}},
		"result": fields{"status": 200, "end": end, "prompt_tokens": prompt, "cached_tokens": match, "output_tokens": 20 + r.IntN(400),
			"route_s": 0.00002 + 0.00001*r.Float64(), "ttft_s": 0.05 + r.Float64(), "duration_s": 2 + 0.001*float64(w.made%1000)},
	}
	return x
}

func (w *world) candidate(i, prompt, match int, cost float64) fields {
	e := &w.engines[i]
	return fields{"engine": e.name, "profile": e.profile, "state": e.state, "trust": e.trust, "usable": true, "note": nil,
		"match_tokens": match, "match_exact_tokens": match, "match_approximate_tokens": match * 9 / 10, "match_in_flight_tokens": 0, "uncached_tokens": prompt - match, "queue_tokens": 1200,
		"prefill_requests": 1, "decode_requests": 3, "prefill_tokens_per_s": 10000, "seconds_per_token": 0.0089, "wait_s": 0.12, "prefill_s": float64(prompt-match) / 10000,
		"decode_s": 1.602, "delay_s": 0.0, "cost_s": cost}
}
