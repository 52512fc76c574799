package gpu

import (
	"context"
	"math"
	"time"
)

// Source delivers readings of GPUs. A new kind of GPU or tool is one type with
// these three methods, handed to New.
type Source interface {
	// Name tells people where the figures come from, such as "nvidia-smi" or
	// an exporter's URL.
	Name() string
	// Host is the machine that the GPUs are in, as an engine's URL would name
	// it; "" is the machine that Ramjet runs on. With it indexes that several
	// machines have in common are told apart.
	Host() string
	// Read delivers readings until ctx ends or the source breaks; it then
	// returns why, with nothing left running. The Sampler calls it again after
	// a pause. deliver keeps nothing of its argument.
	Read(ctx context.Context, deliver func(Reading)) error
}

// Reading is what a source saw at one time: some or all of its GPUs.
type Reading struct {
	// Interval is the time between two measurements as far as the source
	// knows it; 0 = unknown.
	Interval time.Duration
	Samples  []Sample
}

// Sample is one GPU at one time. Floats are NaN and counts -1 where the source
// has no figure.
type Sample struct {
	UUID  string // "" = unknown; else it is the same from every source
	Index int    // as nvidia-smi and CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID count
	Name  string
	At    time.Time

	Utilization      float64 // 0..1: the share of time in which a kernel ran
	MemoryUsedBytes  int64
	MemoryTotalBytes int64
	PowerW           float64
	PowerLimitW      float64
	TemperatureC     float64
	SMClockHz        int64
	Throttle         []string // what holds the clock down, see ThrottleReasons
}

// absent is a sample without a figure.
func absent() Sample {
	nan := math.NaN()
	return Sample{
		Index: -1, Utilization: nan, PowerW: nan, PowerLimitW: nan, TemperatureC: nan,
		MemoryUsedBytes: -1, MemoryTotalBytes: -1, SMClockHz: -1,
	}
}
