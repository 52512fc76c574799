// Package radix says which engine holds which blocks of tokens.
//
// Blocks are named by a chain of hashes (Root, Key, AppendKeys): a block's key says which tokens it holds and what stands
// before it, so that equal keys mean equal prompts up to there. The engines' own block hashes are not reproduced, as
// they differ between versions, settings and, before vLLM 0.29, processes: they only join an engine's removals to its
// stores.
//
// Index holds what engines announce of themselves, exactly: one radix tree for every block size (model, LoRA adapter
// and cache salt are in the root's key), whose edges are runs of keys, and on every edge who holds which of its
// positions. Memory is the guess for engines that announce nothing.
//
// The keys are functions and may be called from any number of goroutines; so may all methods of Index, Residency and
// Memory. A match in the Index waits for nobody: what readers see is atomic words and things that are replaced and
// never changed. Writers wait for each other.
//
// The package has no I/O, clock, log or goroutine. It does not judge whether what it was told is whole or true: it
// counts what does not fit and leaves trust to others.
//
// github.com/armon/go-radix, which finds paths and model aliases elsewhere, cannot hold residency. It maps strings, so
// that each of a prompt's 6,250 blocks would be a leaf of its own with a copy of the whole way to it (50 KB for the
// last); a leaf is one value for all engines, so that the longest match per engine would be as many look-ups, or a map
// in every leaf; inserting splits edges in place, so that a reader needs a lock against every event; and dropping an
// engine would visit every leaf.
package radix
