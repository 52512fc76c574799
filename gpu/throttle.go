package gpu

// throttleBits are NVML's reasons for a clock below what was asked for
// (nvmlClocksEventReason*, the same bits in nvidia-smi's
// clocks_event_reasons.active and DCGM's field 112). Bit 0, idle, is left out:
// a GPU without work is not held back.
var throttleBits = []struct {
	bit  uint64
	word string
}{
	{1 << 1, "application-clocks"},
	{1 << 2, "power-cap"},
	{1 << 3, "hardware-slowdown"},
	{1 << 4, "sync-boost"},
	{1 << 5, "thermal"},
	{1 << 6, "hardware-thermal"},
	{1 << 7, "power-brake"},
	{1 << 8, "display-clocks"},
}

// throttleOther stands for bits that have no name here.
const throttleOther = "other"

// ThrottleReasons is the closed list of words in Throttle.
func ThrottleReasons() []string {
	var words []string
	for _, t := range throttleBits {
		words = append(words, t.word)
	}
	return append(words, throttleOther)
}

// throttleWords reads a mask of NVML's reasons.
func throttleWords(mask uint64) []string {
	var words []string
	mask &^= 1
	for _, t := range throttleBits {
		if mask&t.bit != 0 {
			words = append(words, t.word)
			mask &^= t.bit
		}
	}
	if mask != 0 {
		words = append(words, throttleOther)
	}
	return words
}
