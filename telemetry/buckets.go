package telemetry

// The bounds hold every bound that vLLM itself uses for the same quantity
// (vllm/v1/metrics/loggers.py), so that a histogram of an engine and one of
// Ramjet can be laid over each other, extended upward because a proxy also
// waits, and downward for the time per token, where vLLM's first bound of
// 10 ms is above what speculative decoding reaches. One table serves all
// engines: sums over different bounds would be wrong. All are seconds.
var (
	ttftBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5,
		10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120}
	tpotBounds = []float64{0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
		0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160}
	durationBounds = []float64{0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60,
		120, 240, 480, 960, 1920, 3840, 7680, 15360}
	queueBounds = []float64{0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60,
		120, 240, 480, 960, 1920, 3840, 7680, 15360}
	// vLLM has no such step; the bounds go from a cached decision to the
	// limit of the tokenizer (20 ms) and beyond.
	routeBounds = []float64{0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
		0.01, 0.025, 0.05, 0.1, 0.25, 1}
)
