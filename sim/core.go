// Package sim is a simulated vLLM engine: what a client of a real one sees, without a model and without a GPU.
//
// Its core (Core, Sequence) is the scheduler, the block prefix cache and the clockwork of two decoding profiles; text.go
// and model.go are the built-in model: a tokenizer, a chat template and words to say. The HTTP server in front of it
// speaks as vLLM does. A Core's methods are safe for concurrent use; its state belongs to the goroutine of Run.
//
// Apart from the plain BPE it shares no code with the packages that it tests: block hashes, cache rules and the chat
// rendering are its own. It refuses to be an engine of anything but its own model, and it draws nothing at random: text,
// lengths and acceptance are functions of the seed and the prompt.
package sim

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Profile names a decoding profile of CoreOptions. The list is closed.
const (
	ProfileStandard = "standard" // one token per sequence and step
	ProfileMTP      = "mtp"      // three tokens predicted ahead, one to four tokens per sequence and step
)

// Finish reasons that the core itself gives. AbortAll may give others.
const (
	FinishLength = "length" // the cap or the model's length was reached
	FinishStop   = "stop"   // the end-of-turn token or a stop token was produced
	FinishAbort  = "abort"  // Abort or AbortAll
)

// Errors that Sequence.Next returns.
var (
	// ErrStopped says that the core ended or restarted while the sequence was unfinished: what a client of a killed
	// engine process sees.
	ErrStopped = errors.New("engine core stopped")
	// ErrPromptTooLong says that the prompt can never be scheduled: CoreOptions.MaxModelLen leaves no room for one
	// token behind it.
	ErrPromptTooLong = errors.New("prompt is longer than the model's context")
	// ErrEmptyPrompt says that the job has no prompt token.
	ErrEmptyPrompt = errors.New("prompt has no tokens")
)

// CoreOptions are the geometry and speed of one simulated engine. The zero value of a field means its default.
type CoreOptions struct {
	Profile        string  // ProfileStandard (default) or ProfileMTP
	BlockTokens    int     // tokens in a KV-cache block; default 16, vLLM's default
	KVBlocks       int     // blocks of KV cache; default 8192
	Speed          float64 // 1 (default) is the calibrated speed, 10 is ten times as fast
	Seed           uint64  // seed of text and acceptance; engines with equal seeds give equal text
	MaxBatchTokens int     // tokens that one step may prefill and decode; default 4096
	MaxSeqs        int     // sequences that may run at once; default 256
	MaxModelLen    int     // prompt plus output tokens of one sequence; default (and at most) what the cache holds

	// Hybrid names the model's cache groups in their order, a letter each: m for mamba, a for the one of full
	// attention, as in mmma. "" is a plain model.
	Hybrid string
	// Lookahead is how many tokens behind a block its hash covers too: vLLM 0.33 with MTP, which then drops no block of
	// a hit.
	Lookahead int
	// OffloadBlocks is the size of a CPU tier behind the cache, in blocks; 0 = none. Plain models only.
	OffloadBlocks int
	// HashSeed is the seed of the block hashes, which a restart changes; 0 = Seed. Processes of vLLM before 0.29 have
	// each their own. FixedHashes makes them the same for all processes, as they are since 0.29.
	HashSeed    uint64
	FixedHashes bool

	Observer Observer
	// Lie, if not nil, is asked whenever a sequence ends, on the scheduler's goroutine. If it says yes, what the
	// sequence has cached is lost and the observer is not told.
	Lie func() bool
	// LastCopy, if not nil, is asked whenever a copy of a block is evicted and another one stays, on the scheduler's
	// goroutine. If it says yes, the observer is not told.
	LastCopy func() bool
}

// Observer is told of every change of the prefix cache, on the scheduler's goroutine, inside the step and in the
// order in which the changes happen. It must not call the core. The slices that it gets stay as they are until the next
// StepEnd, Cleared or Restarted has returned.
type Observer interface {
	Stored(StoredBlocks)
	Removed(group int, hash uint64) // one copy of one block was evicted
	Cleared()                       // everything was dropped
	// Offloaded tells of blocks that were copied into the CPU tier, and of those that had to go there for them.
	Offloaded(stored, removed []uint64)
	StepEnd()   // a step ends: vLLM publishes its batch of events here, after the model's pass
	Restarted() // the process died: what was not published never will be
}

// StoredBlocks is one run of blocks that became hit-able together in one group.
type StoredBlocks struct {
	Group       int
	Kind        string // the group's kind, by vLLM's name
	BlockTokens int
	Parent      uint64 // hash of the block before the first one; meaningless without HasParent
	HasParent   bool
	// Hashes are of all blocks of the span, or in a mamba group of the last one alone, or of none.
	Hashes              []uint64
	Tokens              []uint32 // of the whole span
	First               bool     // the span begins at the sequence's first token
	Salt, LoRA, Session string
	// Behind begins with the Lookahead tokens behind the first of Hashes; those behind the next follow BlockTokens later.
	Behind    []uint32
	Lookahead int
}

// Job asks for one sequence: a prompt and the rules for its end.
type Job struct {
	Prompt      []uint32
	MaxTokens   int    // output cap in tokens; 0 or less means as many as the model's length allows
	Salt        string // cache_salt: sequences with different salts share no cache
	LoRA        string // adapter name, part of the cache key like Salt
	Session     string // name that events about the sequence's blocks carry
	NaturalStop bool   // the model ends its turn after NaturalLength tokens; without it only MaxTokens ends a sequence
	MinTokens   int    // with NaturalStop: no end of turn before so many tokens
	IgnoreEOS   bool   // with NaturalStop: the end of turn is not produced
	StopTokens  []uint32
}

// Output is what Next hands over.
type Output struct {
	Tokens       []uint32 // new tokens since the last call, all steps together; valid until the next call
	First        bool     // these begin with the sequence's first token
	Finished     bool     // nothing follows
	FinishReason string   // set with Finished
}

// Stats is a consistent snapshot of a core. Counters grow from NewCore or the last Restart.
type Stats struct {
	Running, Waiting int
	Hung             bool

	Requests, Finished, Aborted, Preempted uint64 // sequences
	Steps                                  uint64
	PromptTokens                           uint64 // prompt tokens of sequences that were admitted
	PrefillTokens                          uint64 // tokens computed by prefill (recomputation after a preemption included)
	QueryTokens, CachedTokens              uint64 // prefix cache: tokens asked for, tokens hit
	LoadedTokens                           uint64 // tokens taken from the CPU tier, beside those hit
	OutputTokens                           uint64

	Drafts, DraftTokens, AcceptedTokens uint64    // speculative decoding
	AcceptedPerPos                      [3]uint64 // accepted drafts by position

	Slipped time.Duration // time by which steps were late beyond repair: above zero the machine was too slow for Speed

	KVBlocks, KVBlocksUsed, KVBlocksCached int // all; referenced by sequences; holding cached content (referenced or not)
}

// KVUsage is the share of blocks that sequences reference, 0 to 1: vllm:kv_cache_usage_perc.
func (s Stats) KVUsage() float64 { return float64(s.KVBlocksUsed) / float64(max(s.KVBlocks, 1)) }

// Core is the scheduler of one simulated engine. All methods may be called from any goroutine, except from an Observer.
//
// Run's goroutine owns everything below the line; the others hand it functions to call. While Run is not running, mu
// guards it in its place.
type Core struct {
	o       CoreOptions
	mtp     bool
	drafts  int           // tokens that a step looks ahead
	wake    chan struct{} // capacity 1: inbox is not empty
	running atomic.Int32  // notStarted, started, ended

	mu    sync.Mutex // guards inbox and changes of running
	inbox []func()

	statsMu sync.Mutex // guards snap
	snap    Stats

	// ---
	spare     []func() // the inbox before, emptied
	cache     *blockCache
	waiting   []*Sequence // first come, first served; preempted ones in front
	active    []*Sequence // in the order of admission
	hung      bool
	restarts  uint64
	root      uint64   // seed of the block hashes
	cpu       *offload // nil without a CPU tier
	kinds     []string // of the cache groups, in their order; never changes
	attention int      // the group of full attention
	stats     Stats
}

// fixedRoot stands for the constant that vLLM since 0.29 seeds its block hashes with.
const fixedRoot = 0x766c6c6d2d6e6f6e

const (
	notStarted = iota
	started
	ended
)

// NewCore makes a core; it does nothing until Run. It panics on an unknown profile or a negative option.
func NewCore(o CoreOptions) *Core {
	switch {
	case o.Profile != "" && o.Profile != ProfileStandard && o.Profile != ProfileMTP:
		panic("BUG: profile " + o.Profile)
	case min(o.BlockTokens, o.KVBlocks, o.MaxBatchTokens, o.MaxSeqs, o.MaxModelLen, o.Lookahead, o.OffloadBlocks) < 0 || o.Speed < 0:
		panic("BUG: negative core option")
	}
	kinds, attention, ok := groupsOf(o.Hybrid)
	if !ok || len(kinds) > 1 && o.OffloadBlocks > 0 {
		panic("BUG: cache groups " + o.Hybrid)
	}
	o.Profile = cmp.Or(o.Profile, ProfileStandard)
	o.BlockTokens = cmp.Or(o.BlockTokens, 16)
	o.KVBlocks = cmp.Or(o.KVBlocks, 8192)
	o.Speed = cmp.Or(o.Speed, 1)
	c := &Core{mtp: o.Profile == ProfileMTP, wake: make(chan struct{}, 1), kinds: kinds, attention: attention}
	if c.mtp {
		c.drafts = draftTokens
	}
	// One sequence alone must always find room, and every running sequence a place in the step.
	// A mamba group needs the checkpoint that was hit, the running state and the one before it.
	states := 3 * (len(kinds) - 1)
	holds := max(o.BlockTokens*(o.KVBlocks-states)-c.drafts, 0)
	o.MaxModelLen = min(cmp.Or(o.MaxModelLen, holds), holds)
	o.MaxBatchTokens = max(cmp.Or(o.MaxBatchTokens, 4096), 1+c.drafts)
	if c.hybrid() {
		o.MaxBatchTokens = max(o.MaxBatchTokens, o.BlockTokens+1+c.drafts) // a prompt goes on by whole blocks
	}
	o.MaxSeqs = min(cmp.Or(o.MaxSeqs, 256), o.MaxBatchTokens/(1+c.drafts))
	c.o = o
	c.startAnew()
	return c
}

// startAnew is what a new process finds: nothing cached, nothing counted, another hash seed.
func (c *Core) startAnew() {
	c.cache = newBlockCache(c.o.KVBlocks, c.o.Observer)
	c.cache.lastOnly = c.o.LastCopy
	c.root = fixedRoot
	if !c.o.FixedHashes {
		c.root = mix(cmp.Or(c.o.HashSeed, c.o.Seed), c.restarts)
	}
	c.stats = Stats{}
	if c.o.OffloadBlocks > 0 {
		c.cpu = newOffload(c.o.OffloadBlocks)
	}
	c.publish()
}

// Options returns the options with defaults filled in and limits applied.
func (c *Core) Options() CoreOptions { return c.o }

// Submit queues a sequence. What is wrong with the job, Next says. The prompt is copied.
func (c *Core) Submit(j Job) *Sequence {
	s := newSequence(c, j)
	switch room := c.o.MaxModelLen - len(j.Prompt); {
	case len(j.Prompt) == 0:
		s.end("", ErrEmptyPrompt)
		return s
	case room < 1:
		s.end("", ErrPromptTooLong)
		return s
	case j.MaxTokens <= 0 || j.MaxTokens > room:
		s.maxTokens = room
	}
	c.post(func() {
		if c.running.Load() == ended {
			s.end("", ErrStopped)
			return
		}
		c.stats.Requests++
		c.waiting = append(c.waiting, s)
	})
	return s
}

// Stats returns a consistent snapshot, at most a step old.
func (c *Core) Stats() Stats {
	c.statsMu.Lock()
	defer c.statsMu.Unlock()
	return c.snap
}

// publish refreshes what Stats returns.
func (c *Core) publish() {
	s := c.stats
	s.Running, s.Waiting, s.Hung = len(c.active), len(c.waiting), c.hung
	s.KVBlocks, s.KVBlocksUsed, s.KVBlocksCached = len(c.cache.blocks), len(c.cache.blocks)-c.cache.free, c.cache.cached
	c.statsMu.Lock()
	c.snap = s
	c.statsMu.Unlock()
}

// Evict drops the content of up to blocks unreferenced blocks, least recently freed first, and says how many went.
// Like every eviction it is published with the next step.
func (c *Core) Evict(blocks int) (evicted int) {
	c.call(func() { evicted = c.cache.evict(blocks) })
	return evicted
}

// ResetCache drops the prefix cache. While a sequence references blocks it drops nothing and returns false, as vLLM's
// reset_prefix_cache does.
func (c *Core) ResetCache() (done bool) {
	c.call(func() {
		done = c.cache.reset()
		if done && c.o.Observer != nil {
			c.o.Observer.Cleared()
		}
	})
	return done
}

// AbortAll ends every sequence with reason (FinishAbort if empty), at once, as vLLM does on SIGTERM. New ones are
// still taken.
func (c *Core) AbortAll(reason string) {
	c.call(func() {
		for _, s := range c.all() {
			c.drop(s, cmp.Or(reason, FinishAbort), nil)
		}
	})
}

// Restart is the death and new start of the engine's process: every sequence ends with ErrStopped, the cache is empty,
// the counters are zero, the block hashes get another seed. vLLM publishes nothing of it.
func (c *Core) Restart() {
	c.call(func() {
		for _, s := range c.all() {
			c.drop(s, "", ErrStopped)
		}
		c.restarts++
		c.startAnew()
		if c.o.Observer != nil {
			c.o.Observer.Restarted()
		}
	})
}

// Hang stops (true) or continues (false) stepping: the engine takes requests and yields nothing.
func (c *Core) Hang(on bool) { c.call(func() { c.hung = on }) }

// all returns the unfinished sequences.
func (c *Core) all() []*Sequence { return slices.Concat(c.active, c.waiting) }
