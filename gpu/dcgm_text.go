package gpu

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// figure is a metric of dcgm-exporter that is read (its shipped
// default-counters.csv and dcp-metrics-included.csv; the rest of DCGM's fields
// can be added there).
type figure uint8

const (
	figUtilization  figure = iota // %
	figActive                     // 0..1, the only one that MIG instances have
	figUsed                       // MiB
	figFree                       // MiB
	figReserved                   // MiB
	figTotal                      // MiB
	figPower                      // W
	figPowerInstant               // W
	figLimit                      // W
	figEnforced                   // W
	figTemperature                // degrees Celsius
	figClock                      // MHz
	figMask                       // NVML's bits
	figures
)

// figureByName holds each metric with the most that it can be. DCGM writes
// blanks (no value, not supported, not permitted) as 2^31-16, 2^47 or 2^63-16
// and what follows, all of which lie beyond.
var figureByName = map[string]struct {
	figure figure
	most   float64
}{
	"DCGM_FI_DEV_GPU_UTIL":               {figUtilization, 100},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":      {figActive, 1},
	"DCGM_FI_DEV_FB_USED":                {figUsed, 1e9},
	"DCGM_FI_DEV_FB_FREE":                {figFree, 1e9},
	"DCGM_FI_DEV_FB_RESERVED":            {figReserved, 1e9},
	"DCGM_FI_DEV_FB_TOTAL":               {figTotal, 1e9},
	"DCGM_FI_DEV_POWER_USAGE":            {figPower, maxPower},
	"DCGM_FI_DEV_POWER_USAGE_INSTANT":    {figPowerInstant, maxPower},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT":       {figLimit, maxPower},
	"DCGM_FI_DEV_ENFORCED_POWER_LIMIT":   {figEnforced, maxPower},
	"DCGM_FI_DEV_GPU_TEMP":               {figTemperature, maxTemperature},
	"DCGM_FI_DEV_SM_CLOCK":               {figClock, maxClock / 1e6},
	"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": {figMask, 1 << 40},
	"DCGM_FI_DEV_CLOCKS_EVENT_REASONS":   {figMask, 1 << 40},
}

// part is a GPU, or one MIG instance of it, as an exporter lists it.
type part struct {
	uuid     string
	index    int
	name     string
	instance string // GPU_I_ID, "" = the whole GPU
	profile  string // GPU_I_PROFILE
	values   [figures]float64
}

// maxParts bounds what one exporter can make of its answer: 64 GPUs with seven
// instances each.
const maxParts = 64 * 8

// ParseDCGM reads the answer of a dcgm-exporter (Prometheus text format 0.0.4)
// into one sample for each GPU, sorted by index. MIG instances of a GPU are
// one sample: memory is their sum, all else the most of any. Lines that it does
// not know, or that are no metric, are passed over.
func ParseDCGM(text []byte) []Sample {
	parts := map[string]*part{}
	for line := range bytes.Lines(text) {
		if bytes.HasSuffix(line, []byte("\n")) { // the format ends each line; half a number is another number
			readMetric(parts, string(bytes.TrimSpace(line)))
		}
	}
	gpus := map[string][]*part{}
	for _, p := range parts {
		gpus[p.gpu()] = append(gpus[p.gpu()], p)
	}
	list := make([]Sample, 0, len(gpus))
	for _, g := range gpus {
		list = append(list, merge(g))
	}
	slices.SortFunc(list, func(a, b Sample) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID)) })
	return list
}

func (p *part) gpu() string { return strconv.Itoa(p.index) + "\x00" + p.uuid }

// readMetric takes one line in.
func readMetric(parts map[string]*part, line string) {
	name, rest, ok := strings.Cut(line, "{")
	f, known := figureByName[name]
	if !ok || !known {
		return
	}
	p := part{index: -1}
	rest, ok = labels(rest, p.label)
	if !ok || p.index < 0 {
		return
	}
	number, _, _ := strings.Cut(strings.TrimLeft(rest, " \t"), " ") // a time stamp may follow
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return
	}
	key := p.gpu() + "\x00" + p.instance
	kept := parts[key]
	if kept == nil {
		if len(parts) >= maxParts {
			return
		}
		for i := range p.values {
			p.values[i] = math.NaN()
		}
		kept = &p
		parts[key] = kept
	}
	kept.values[f.figure] = within(v, 0, f.most)
}

// label takes one of a metric's labels.
func (p *part) label(name, value string) {
	switch name {
	case "gpu":
		if n, err := strconv.ParseUint(value, 10, 16); err == nil && n <= maxIndex {
			p.index = int(n)
		}
	case "UUID", "uuid":
		p.uuid = value
	case "modelName":
		p.name = value
	case "GPU_I_ID":
		p.instance = value
	case "GPU_I_PROFILE":
		p.profile = value
	}
}

// labels reads name="value" pairs up to the closing brace and returns what
// follows it.
func labels(text string, take func(name, value string)) (rest string, ok bool) {
	for {
		text = strings.TrimLeft(text, " \t,")
		if rest, done := strings.CutPrefix(text, "}"); done {
			return rest, true
		}
		name, after, found := strings.Cut(text, `="`)
		if !found {
			return "", false
		}
		value, after, closed := quoted(after)
		if !closed {
			return "", false
		}
		take(strings.TrimSpace(name), value)
		text = after
	}
}

// quoted reads a value up to its closing quote; \\, \" and \n are escaped.
func quoted(text string) (value, rest string, ok bool) {
	end := strings.IndexAny(text, `"\`)
	if end >= 0 && text[end] == '"' {
		return text[:end], text[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// merge makes one sample of a GPU's parts. What the exporter says of the whole
// GPU counts before what it says of instances.
func merge(parts []*part) Sample {
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Compare(a.instance, b.instance) })
	s := absent()
	s.Index, s.UUID, s.Name = parts[0].index, parts[0].uuid, named(parts)
	if s.Utilization = most(parts, figUtilization) / 100; math.IsNaN(s.Utilization) {
		s.Utilization = most(parts, figActive)
	}
	used, total := sum(parts, figUsed), sum(parts, figTotal)
	if math.IsNaN(total) {
		total = used + sum(parts, figFree)
		if r := sum(parts, figReserved); !math.IsNaN(r) {
			total += r
		}
	}
	s.MemoryUsedBytes, s.MemoryTotalBytes = count(used*sizes["MiB"]), count(total*sizes["MiB"])
	if s.PowerW = most(parts, figPowerInstant); math.IsNaN(s.PowerW) {
		s.PowerW = most(parts, figPower)
	}
	if s.PowerLimitW = most(parts, figEnforced); math.IsNaN(s.PowerLimitW) {
		s.PowerLimitW = most(parts, figLimit)
	}
	s.TemperatureC = most(parts, figTemperature)
	s.SMClockHz = whole(most(parts, figClock) * hertz["MHz"])
	if mask := most(parts, figMask); !math.IsNaN(mask) {
		s.Throttle = throttleWords(uint64(mask))
	}
	return s
}

// named is the GPU's name with its MIG profiles.
func named(parts []*part) string {
	var profiles []string
	name := ""
	for _, p := range parts {
		name = cmp.Or(name, p.name)
		if p.profile != "" {
			profiles = append(profiles, p.profile)
		}
	}
	if len(profiles) == 0 {
		return name
	}
	slices.Sort(profiles)
	return strings.TrimSpace(name + " (MIG " + strings.Join(profiles, ", ") + ")")
}

// most returns the figure of the whole GPU, else the most of any instance.
func most(parts []*part, f figure) float64 {
	v := math.NaN()
	for _, p := range parts {
		x := p.values[f]
		if p.instance == "" && !math.IsNaN(x) {
			return x
		}
		if math.IsNaN(v) || x > v {
			v = x
		}
	}
	return v
}

// sum returns the figure of the whole GPU, else the sum of its instances.
func sum(parts []*part, f figure) float64 {
	v := math.NaN()
	for _, p := range parts {
		x := p.values[f]
		switch {
		case math.IsNaN(x):
		case p.instance == "":
			return x
		case math.IsNaN(v):
			v = x
		default:
			v += x
		}
	}
	return v
}
