package gpu

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Row is what a line of nvidia-smi's output is.
type Row uint8

// What a line can be.
const (
	RowOther  Row = iota // a message, a cut line, or nothing
	RowHeader            // the names of the columns
	RowSample            // a GPU
)

// Table reads the output of nvidia-smi --query-gpu=.. --format=csv line by line
// (nvidia-smi(1), "--format" and --help-query-gpu). Columns are found by the
// header's names, so their order, number and units are whatever they are. The
// zero value waits for a header; a later header replaces it.
type Table struct {
	columns []column
}

type column struct {
	set  func(r *row, text, unit string)
	unit string // of the header, "" = none
}

// row is a sample and what decides between columns that say the same.
type row struct {
	Sample
	mig                   bool
	average, instant      float64 // W
	limit, enforced       float64 // W
	indexKnown, maskKnown bool
}

// columnsByName are the columns that are read, by the name that nvidia-smi
// prints. Two names are one thing where a driver renamed it.
var columnsByName = map[string]func(r *row, text, unit string){
	"timestamp":        func(r *row, text, _ string) { r.At = parseStamp(text) },
	"index":            func(r *row, text, _ string) { r.setIndex(text) },
	"uuid":             func(r *row, text, _ string) { r.UUID = word(text) },
	"gpu_uuid":         func(r *row, text, _ string) { r.UUID = word(text) },
	"name":             func(r *row, text, _ string) { r.Name = word(text) },
	"gpu_name":         func(r *row, text, _ string) { r.Name = word(text) },
	"mig.mode.current": func(r *row, text, _ string) { r.mig = strings.EqualFold(text, "Enabled") },
	"utilization.gpu": func(r *row, text, unit string) {
		r.Utilization = within(quantity(text, unit, "%", percents), 0, 1)
	},
	"memory.used":          func(r *row, text, unit string) { r.MemoryUsedBytes = count(quantity(text, unit, "MiB", sizes)) },
	"memory.total":         func(r *row, text, unit string) { r.MemoryTotalBytes = count(quantity(text, unit, "MiB", sizes)) },
	"power.draw":           func(r *row, text, unit string) { r.average = power(text, unit) },
	"power.draw.average":   func(r *row, text, unit string) { r.average = power(text, unit) },
	"power.draw.instant":   func(r *row, text, unit string) { r.instant = power(text, unit) },
	"power.limit":          func(r *row, text, unit string) { r.limit = power(text, unit) },
	"enforced.power.limit": func(r *row, text, unit string) { r.enforced = power(text, unit) },
	"temperature.gpu": func(r *row, text, unit string) {
		r.TemperatureC = within(quantity(text, unit, "C", temperatures), -100, maxTemperature)
	},
	"clocks.current.sm":              func(r *row, text, unit string) { r.SMClockHz = clock(text, unit) },
	"clocks.sm":                      func(r *row, text, unit string) { r.SMClockHz = clock(text, unit) },
	"clocks_event_reasons.active":    (*row).setMask,
	"clocks_throttle_reasons.active": (*row).setMask,
}

// Units of the figures, as factors to the base unit.
var (
	percents     = map[string]float64{"%": 0.01}
	temperatures = map[string]float64{"C": 1, "°C": 1}
	watts        = map[string]float64{"mW": 1e-3, "W": 1, "kW": 1e3}
	hertz        = map[string]float64{"Hz": 1, "kHz": 1e3, "KHz": 1e3, "MHz": 1e6, "GHz": 1e9}
	sizes        = map[string]float64{
		"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}
)

// Bounds beyond which a figure is a mistake, far above any device.
const (
	maxPower       = 1e5  // W
	maxClock       = 1e11 // Hz
	maxMemory      = 1e15 // bytes
	maxTemperature = 1000 // degrees Celsius
	maxIndex       = 1023 // as the configuration bounds it
)

// Line reads one line, without its end. The sample is whole only with
// RowSample.
func (t *Table) Line(line string) (Sample, Row) {
	fields := strings.Split(strings.TrimRight(line, "\r"), ",")
	if columns := header(fields); columns != nil {
		t.columns = columns
		return Sample{}, RowHeader
	}
	if len(t.columns) == 0 || len(fields) != len(t.columns) {
		return Sample{}, RowOther
	}
	r := row{Sample: absent(), average: math.NaN(), instant: math.NaN(), limit: math.NaN(), enforced: math.NaN()}
	for i, c := range t.columns {
		if c.set != nil {
			c.set(&r, strings.TrimSpace(fields[i]), c.unit)
		}
	}
	if !r.indexKnown {
		return Sample{}, RowOther
	}
	return r.sample(), RowSample
}

// header returns the columns that fields name, nil if they are no header: one
// has an index and another name that is known.
func header(fields []string) []column {
	columns := make([]column, len(fields))
	known, index := 0, false
	for i, f := range fields {
		name, unit, _ := strings.Cut(strings.TrimSpace(f), " ")
		if set := columnsByName[name]; set != nil {
			columns[i] = column{set: set, unit: strings.Trim(unit, "[] ")}
			known++
			index = index || name == "index"
		}
	}
	if known < 2 || !index {
		return nil
	}
	return columns
}

// sample decides between columns: the power of this moment before the one
// averaged over a second, since bursts are what is looked for, and the limit
// that holds before the one that was asked for.
func (r *row) sample() Sample {
	s := r.Sample
	if s.PowerW = r.instant; math.IsNaN(s.PowerW) {
		s.PowerW = r.average
	}
	if s.PowerLimitW = r.enforced; math.IsNaN(s.PowerLimitW) {
		s.PowerLimitW = r.limit
	}
	if r.mig {
		s.Name = strings.TrimSpace(s.Name + " (MIG)")
	}
	return s
}

func (r *row) setIndex(text string) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n <= maxIndex {
		r.Index, r.indexKnown = int(n), true
	}
}

// setMask reads 0x0000000000000004. A driver that renamed the column may print
// both, one of them without a value.
func (r *row) setMask(text, _ string) {
	digits, ok := strings.CutPrefix(text, "0x")
	if mask, err := strconv.ParseUint(digits, 16, 64); ok && err == nil && !r.maskKnown {
		r.Throttle, r.maskKnown = throttleWords(mask), true
	}
}

// word returns a text, "" where there is none.
func word(text string) string {
	if none(text) {
		return ""
	}
	return text
}

// none reports whether a field says that it has no value: [N/A],
// [Not Supported], [Unknown Error], [GPU requires reset], N/A, ERR! and what
// else stands in brackets.
func none(text string) bool {
	return text == "" || text[0] == '[' || strings.EqualFold(text, "N/A") || strings.HasPrefix(text, "ERR")
}

// quantity reads a number with a unit: its own, else the header's, else the
// one that nvidia-smi documents. NaN if there is none or the unit is unknown.
func quantity(text, unit, usual string, units map[string]float64) float64 {
	if none(text) {
		return math.NaN()
	}
	number, own, _ := strings.Cut(text, " ")
	if own = strings.TrimSpace(own); own != "" {
		unit = own
	}
	if unit == "" {
		unit = usual
	}
	factor, known := units[unit]
	v, ok := decimal(number)
	if !known || !ok {
		return math.NaN()
	}
	return v * factor
}

// decimal reads digits with a point, and nothing of what else strconv takes.
func decimal(text string) (float64, bool) {
	for i, c := range []byte(text) {
		if (c < '0' || c > '9') && c != '.' && (c != '-' || i > 0) {
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

func within(v, least, most float64) float64 {
	if v >= least && v <= most {
		return v
	}
	return math.NaN()
}

func power(text, unit string) float64 {
	return within(quantity(text, unit, "W", watts), 0, maxPower)
}

func clock(text, unit string) int64 {
	return whole(within(quantity(text, unit, "MHz", hertz), 0, maxClock))
}

// count is a number of bytes, -1 if unknown.
func count(v float64) int64 { return whole(within(v, 0, maxMemory)) }

func whole(v float64) int64 {
	if math.IsNaN(v) {
		return -1
	}
	return int64(math.Round(v))
}

// stampForm is how nvidia-smi writes the time of a query, in local time.
const stampForm = "2006/01/02 15:04:05.000"

// parseStamp returns the zero time for what is no time.
func parseStamp(text string) time.Time {
	at, err := time.ParseInLocation(stampForm, text, time.Local)
	if err != nil {
		return time.Time{}
	}
	return at
}
