// Package gpu samples the GPUs behind the engines: utilisation, memory, power,
// temperature, clock and what slows it, kept for ten minutes. Where the
// figures come from is a Source: nvidia-smi on this machine, DCGM exporters
// elsewhere, or a third one (docs/ARCHITECTURE.md says how).
//
// A Sampler is safe for concurrent use; a Source is used by one goroutine. The
// package starts nothing before Run and leaves neither goroutine, child nor
// descriptor behind it. It sets nothing on a GPU, never guesses a figure that
// was not reported (NaN or -1 stand for it), and takes no part in the choice
// of an engine.
package gpu
