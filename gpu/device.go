package gpu

import "time"

// Device is the newest sample of one GPU, seen from one engine. Floats are NaN
// and counts -1 where nothing is known.
type Device struct {
	Engine string // "" = no engine lists this GPU
	Index  int
	Name   string

	Utilization      float64 // 0..1
	MemoryUsedBytes  int64
	MemoryTotalBytes int64
	PowerW           float64
	PowerLimitW      float64
	TemperatureC     float64
	SMClockHz        int64
	Throttle         []string // see ThrottleReasons; nil = nothing, or unknown
	At               time.Time

	Source   string        // Source.Name
	Interval time.Duration // time between two measurements; 0 = not known yet
}

// Series is the history of one GPU, oldest first; the slices are of one
// length and the caller's own.
type Series struct {
	Engine string
	Index  int

	Times           []time.Time
	Utilization     []float64 // 0..1, NaN = unknown
	PowerW          []float64 // NaN = unknown
	MemoryUsedBytes []int64   // -1 = unknown

	Source   string
	Interval time.Duration
}
