package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// topology is what of CONTRACT section 5 is printed.
type topology struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	UptimeS int64     `json:"uptime_s"`
	Status  string    `json:"status"`
	Models  []string  `json:"models"`
	Policy  *string   `json:"policy"`
	Exact   *struct {
		Mode    string  `json:"mode"`
		Percent float64 `json:"percent"`
	} `json:"exact"`
	Traffic struct {
		InFlight *int     `json:"in_flight"`
		Requests *float64 `json:"requests_per_s"`
		Prompt   *float64 `json:"prompt_tokens_per_s"`
		Cached   *float64 `json:"cached_tokens_per_s"`
		Output   *float64 `json:"output_tokens_per_s"`
	} `json:"traffic"`
	Agreement map[string]int64 `json:"agreement"`
	Engines   []topEngine      `json:"engines"`
}

type topEngine struct {
	Name        string    `json:"name"`
	Profile     string    `json:"profile"`
	State       string    `json:"state"`
	StateReason string    `json:"state_reason"`
	StateSince  time.Time `json:"state_since"`
	Trust       *string   `json:"trust"`
	TrustReason *string   `json:"trust_reason"`
	Leases      *struct {
		Prefill int `json:"prefill"`
		Decode  int `json:"decode"`
	} `json:"leases"`
	Queue      *float64 `json:"queue_tokens"`
	MatchShare *float64 `json:"match_share"`
	CacheShare *float64 `json:"cached_share"`
	TTFT       *float64 `json:"ttft_p50_s"`
	TPOT       *float64 `json:"tpot_p50_s"`
	Errors     *float64 `json:"errors_per_s"`
	Reported   *struct {
		Running *float64 `json:"running"`
		Waiting *float64 `json:"waiting"`
		KV      *float64 `json:"kv_usage"`
	} `json:"reported"`
	GPUs []topGPU `json:"gpus"`
}

type topGPU struct {
	Index       int      `json:"index"`
	Utilization *float64 `json:"utilization"`
	Used        *float64 `json:"memory_used_bytes"`
	Total       *float64 `json:"memory_total_bytes"`
	Power       *float64 `json:"power_w"`
	Limit       *float64 `json:"power_limit_w"`
	Temperature *float64 `json:"temperature_c"`
	Throttle    []string `json:"throttle"`
}

// decision is what of CONTRACT section 4 fits a row.
type decision struct {
	Time       time.Time   `json:"time"`
	RequestID  *string     `json:"request_id"`
	Keys       string      `json:"keys"`
	Engine     *string     `json:"engine"`
	Reason     *string     `json:"reason"`
	Prompt     *float64    `json:"prompt_tokens"`
	Candidates []candidate `json:"candidates"`
	Result     *struct {
		End    string   `json:"end"`
		Prompt *float64 `json:"prompt_tokens"`
		Cached *float64 `json:"cached_tokens"`
		TTFT   *float64 `json:"ttft_s"`
	} `json:"result"`
}

// picture is what one look at a Ramjet shows.
type picture struct {
	topology  topology
	decisions []decision
	stale     string // why it is not of this moment, "" = it is
	zone      *time.Location
}

// engineColumns and decisionColumns are the tables; the first column of the
// engines' takes what width is left.
var engineColumns = []topColumn{
	{"ENGINE", 11, false, 0}, {"PROFILE", 8, false, 0}, {"STATE", 10, false, 0}, {"TRUST", 8, false, 0}, {"LEASES", 8, false, 0},
	{"QUEUE", 6, true, 0}, {"KV", 5, true, 0}, {"MATCH", 8, true, 0}, {"TTFT", 8, true, 0}, {"TPOT", 8, true, 96}, {"ERR/s", 6, true, 96},
}

var decisionColumns = []topColumn{
	{"TIME", 8, false, 0}, {"ENGINE", 10, false, 0}, {"REASON", 15, false, 0}, {"KEYS", 11, false, 98}, {"PROMPT", 6, true, 0}, {"MATCH", 6, true, 0},
	{"CACHED", 6, true, 0}, {"TTFT", 7, true, 0}, {"END", 15, false, 0}, {"REQUEST", 32, false, 132},
}

// lines draws the picture, width wide and height high; height 0 = as high as
// it becomes. No line holds a control character, whatever the names in it are.
func (p *picture) lines(width, height int) []string {
	out := p.head(width)
	engines := tableOf(engineColumns, p.engineRows(), width)
	details := p.details(width)
	decisions := tableOf(decisionColumns, p.decisionRows(), width)
	if height > 0 {
		// The engines come first, then why they are not well, then decisions; a
		// few of the last stay even where there are many engines.
		room := max(height-len(out)-2, 0)
		engines = cut(engines, max(room-min(len(decisions), 5), 2), width)
		room -= len(engines)
		details = details[:min(len(details), max(room-min(len(decisions), 5), 0))]
		room -= len(details)
		decisions = decisions[:min(len(decisions), max(room, 0))]
	}
	out = append(out, "")
	out = append(out, engines...)
	out = append(out, details...)
	out = append(out, "")
	out = append(out, decisions...)
	if height > 0 && len(out) > height {
		out = out[:height]
	}
	return out
}

// cut shortens the engines to most lines and says how many are missing.
func cut(lines []string, most, width int) []string {
	if len(lines) <= most {
		return lines
	}
	keep := max(most-1, 1)
	return append(lines[:keep:keep], fit(fmt.Sprintf("and %d more engines; --once shows all", len(lines)-keep), width))
}

func (p *picture) head(width int) []string {
	t := &p.topology
	first := fmt.Sprintf("Ramjet %s  %s  up %s  policy %s  exact %s", t.Version, t.Status, age(time.Duration(t.UptimeS)*time.Second), orDash(t.Policy), p.exact())
	tr := &t.Traffic
	second := fmt.Sprintf("in flight %s  %s requests/s  tokens/s: prompt %s, cached %s%s, output %s",
		countOr(tr.InFlight), figure(tr.Requests), figure(tr.Prompt), figure(tr.Cached), shareOf(tr.Cached, tr.Prompt), figure(tr.Output))
	third := "models " + strings.Join(t.Models, ", ")
	if a := p.agreement(); a != "" {
		third = "exact against approximate: " + a
	}
	out := []string{fit(first, width), fit(second, width), fit(third, width)}
	if p.stale != "" {
		out[0] = fit("NO ANSWER "+p.stale, width)
	}
	return out
}

func (p *picture) exact() string {
	x := p.topology.Exact
	switch {
	case x == nil:
		return "-"
	case x.Mode == "percent":
		return fmt.Sprintf("%g %%", x.Percent)
	}
	return x.Mode
}

// agreement lists what there is, in the order of the closed list.
func (p *picture) agreement() string {
	var parts []string
	for _, word := range []string{"agree", "would-move", "tie", "cold", "untrusted"} {
		if n := p.topology.Agreement[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *picture) engineRows() (rows [][]string) {
	for i := range p.topology.Engines {
		e := &p.topology.Engines[i]
		leases, kv := "-", "-"
		if e.Leases != nil {
			leases = fmt.Sprintf("p%d d%d", e.Leases.Prefill, e.Leases.Decode)
		}
		if e.Reported != nil {
			kv = percent(e.Reported.KV)
		}
		match := "-"
		if e.MatchShare != nil || e.CacheShare != nil {
			match = strings.TrimSuffix(percent(e.MatchShare), " %") + "/" + percent(e.CacheShare)
		}
		rows = append(rows, []string{e.Name, e.Profile, e.State, orDash(e.Trust), leases, figure(e.Queue), kv, match, seconds(e.TTFT), perToken(e.TPOT), figure(e.Errors)})
	}
	return rows
}

// details say why an engine is not ready or not exact, and what its GPUs do.
func (p *picture) details(width int) (out []string) {
	for i := range p.topology.Engines {
		e := &p.topology.Engines[i]
		if e.State != "ready" {
			out = append(out, fit(fmt.Sprintf("  %s %s for %s: %s", e.Name, e.State, age(p.topology.Time.Sub(e.StateSince)), e.StateReason), width))
		}
		if e.Trust != nil && *e.Trust != "exact" {
			out = append(out, fit(fmt.Sprintf("  %s %s: %s", e.Name, *e.Trust, orDash(e.TrustReason)), width))
		}
	}
	for i := range p.topology.Engines {
		if e := &p.topology.Engines[i]; len(e.GPUs) > 0 {
			out = append(out, fit("  "+e.Name+" "+gpuLine(e.GPUs), width))
		}
	}
	return out
}

// gpuLine sums up the devices of one engine.
func gpuLine(gpus []topGPU) string {
	var indexes, throttle []string
	var busy, power, limit, used, total, hot sum
	for i := range gpus {
		g := &gpus[i]
		indexes = append(indexes, fmt.Sprint(g.Index))
		busy.add(g.Utilization)
		power.add(g.Power)
		limit.add(g.Limit)
		used.add(g.Used)
		total.add(g.Total)
		hot.add(g.Temperature)
		throttle = append(throttle, g.Throttle...)
	}
	text := fmt.Sprintf("GPU %s: %s busy, %s/%s W, %s/%s GiB, %s C", strings.Join(indexes, ","), percent(busy.mean()),
		power.whole(1), limit.whole(1), used.whole(1<<30), total.whole(1<<30), hot.highest())
	if len(throttle) > 0 {
		slices.Sort(throttle)
		text += ", held back: " + strings.Join(slices.Compact(throttle), " ")
	}
	return text
}

func (p *picture) decisionRows() (rows [][]string) {
	for i := range p.decisions {
		d := &p.decisions[i]
		match := "-"
		for k := range d.Candidates {
			if d.Engine != nil && d.Candidates[k].Engine == *d.Engine {
				n := float64(d.Candidates[k].Match)
				match = figure(&n)
			}
		}
		prompt, cached, ttft, end := d.Prompt, "-", "-", "running"
		if r := d.Result; r != nil {
			cached, ttft, end = figure(r.Cached), seconds(r.TTFT), r.End
			if r.Prompt != nil {
				prompt = r.Prompt
			}
		}
		rows = append(rows, []string{d.Time.In(p.zone).Format(time.TimeOnly), orDash(d.Engine), orDash(d.Reason), d.Keys, figure(prompt), match, cached, ttft, end, orDash(d.RequestID)})
	}
	return rows
}
