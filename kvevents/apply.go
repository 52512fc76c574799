package kvevents

import (
	"strconv"
	"time"

	"ramjet/radix"
)

// applier gives decoded events to the residency. It belongs to the feed's goroutine.
type applier struct {
	f       *Feed
	decoder Decoder
	each    func(*Event) // bound once: a method value made per batch would be an allocation per batch
	store   radix.Store
	extra   []uint64
	roots   map[string]uint64 // of the LoRA names and salts seen

	// Of the present batch.
	stored, removed, cleared, unfit int
	blocks, tiers, partials         int
	unknownParents, unknownRemoved  int
	older                           bool // a sign of blocks older than the record

	groups map[int]int // block tokens of each group: the largest seen
}

func (a *applier) init(f *Feed) {
	a.f = f
	a.each = a.event
	a.roots = make(map[string]uint64)
	a.groups = make(map[int]int)
}

// dropped forgets what was learnt of the process, and what could not be used of what it said.
func (a *applier) dropped() {
	clear(a.groups)
	a.f.trust.oddAt = time.Time{}
}

// batch applies the events of a payload and accounts for them.
func (a *applier) batch(payload []byte, live bool) error {
	a.stored, a.removed, a.cleared, a.unfit = 0, 0, 0, 0
	a.blocks, a.tiers, a.partials = 0, 0, 0
	a.unknownParents, a.unknownRemoved, a.older = 0, 0, false
	b, err := a.decoder.Decode(payload, a.each)
	f := a.f
	odd := b.Odd + a.unfit
	lag := -1.0
	if live && b.Time > 0 {
		now := f.wall()
		if lag = f.trust.lagged(float64(now.UnixNano())/1e9 - b.Time); lag >= f.limits.Late.Seconds() {
			f.trust.lateAt = now
		}
	}
	if a.cleared > 0 && err == nil {
		f.trust.oddAt = time.Time{} // it was about blocks that are gone
	}
	if odd > 0 {
		f.trust.oddAt = f.o.Now()
		f.o.Log.Warn("events: an event cannot be used", "engine", f.o.Name, "events", odd)
	}
	if b.Rank != 0 && f.o.Ranks <= 1 {
		f.trust.rank = b.Rank
	}
	if a.cleared > 0 && err == nil {
		f.history.complete, f.history.why, f.history.truncated = true, "every batch since the cache was cleared", false
	}
	f.count(func(s *Stats) {
		s.Stored += uint64(a.stored)
		s.Removed += uint64(a.removed)
		s.Cleared += uint64(a.cleared)
		s.Odd += uint64(odd)
		s.Unknown += uint64(b.Unknown)
		s.Tiers += uint64(a.tiers)
		s.Partials += uint64(a.partials)
		s.UnknownParents += uint64(a.unknownParents)
		s.UnknownRemoved += uint64(a.unknownRemoved)
	})
	if m := f.o.Metrics; m != nil {
		for _, c := range [...]struct {
			kind EventKind
			n    int
		}{{EventStored, a.stored}, {EventRemoved, a.removed}, {EventCleared, a.cleared}, {EventOdd, odd}, {EventUnknown, b.Unknown}} {
			if c.n > 0 {
				m.Events(c.kind, c.n)
			}
		}
		if lag >= 0 {
			m.Lag(lag)
		}
	}
	return err
}

// clearedBlocks is what a clear counts as in Mark: more than any prompt has.
const clearedBlocks = 1 << 24

func (a *applier) event(e *Event) {
	switch e.Kind {
	case EventStored:
		a.stored++
		if !e.Resident() {
			a.tiers++
			return
		}
		a.storeEvent(e)
	case EventRemoved:
		a.removed++
		if !e.Resident() {
			a.tiers++
			return
		}
		a.f.removed.Add(uint64(len(e.Hashes)))
		if n := a.f.o.Residency.Remove(e.Group, e.Hashes); n > 0 {
			a.unknownRemoved += n
			a.older = true
		}
	case EventCleared:
		a.cleared++
		a.f.removed.Add(clearedBlocks)
		a.f.o.Residency.Clear()
		a.f.history.forgotten = a.f.o.Residency.Forgotten()
		a.older = false
		a.unknownParents = 0
	default:
	}
}

func (a *applier) storeEvent(e *Event) {
	if len(e.Hashes) == 0 {
		return // all blocks of the span are masked: nothing became resident
	}
	if e.BlockTokens <= 0 {
		a.unfit++
		return
	}
	switch size := a.groups[e.Group]; {
	case e.BlockTokens < size:
		// A partial entry (--prefix-match-unit) holds a short span behind hashes that are not published; it says nothing
		// about whole blocks.
		a.partials += len(e.Hashes)
		return
	case e.BlockTokens > size && size > 0:
		// What came before were partial entries, and the index has taken their length for that of a block.
		a.f.o.Residency.Drop()
		clear(a.groups)
	}
	a.groups[e.Group] = e.BlockTokens
	kind := groupKind(e.Spec)
	if blocks := len(e.Tokens) / e.BlockTokens; blocks*e.BlockTokens != len(e.Tokens) || blocks != len(e.Hashes) && kind == radix.GroupAttention {
		// The index notes the hashes without a key: their removal is no surprise then.
		a.unfit++
	}
	s := &a.store
	*s = radix.Store{Group: e.Group, Kind: kind, BlockTokens: e.BlockTokens, Window: e.Window, Parent: e.Parent, HasParent: e.HasParent,
		Hashes: e.Hashes, IDs: e.Tokens, Lookahead: e.Lookahead}
	salt := a.extras(e)
	if !e.HasParent {
		s.Root = a.root(e, salt)
	}
	if a.f.o.Residency.Store(s) {
		a.unknownParents += len(e.Hashes)
		a.older = true
	}
	if kind != radix.GroupOther {
		a.blocks += len(e.Hashes)
	}
}

// extras puts a word into the store for each block that more than its tokens goes into, and returns the salt. The keys
// come one a block, or, for a single hash at the end of a span, from the span's own first block on.
func (a *applier) extras(e *Event) (salt []byte) {
	a.extra = a.extra[:0]
	blocks := len(e.Tokens) / e.BlockTokens
	e.Extras(func(block int, s []byte, fold uint64) {
		if len(s) > 0 {
			salt = s
		}
		if fold == 0 || block >= blocks {
			return
		}
		if len(a.extra) == 0 {
			a.extra = append(a.extra, make([]uint64, blocks)...)
		}
		a.extra[block] = fold
	})
	if len(a.extra) > 0 {
		a.store.Extra = a.extra
	}
	return salt
}

const (
	// maxRoots bounds the remembered roots; salts may be one a tenant, or one a request.
	maxRoots = 4096
	// maxRootKey bounds the key of each: clients choose salts, of any length. A longer one's root is found anew each time.
	maxRootKey = 256
)

func (a *applier) root(e *Event, salt []byte) uint64 {
	anonymous := e.HasLoraID && e.LoraID != 0 && len(e.LoraName) == 0
	if len(e.LoraName)+len(salt) > maxRootKey-32 { // with room for the separators and a number
		return a.rootOf(e, salt, anonymous)
	}
	var scratch [maxRootKey]byte
	key := append(append(append(scratch[:0], e.LoraName...), 0), salt...)
	if anonymous {
		key = strconv.AppendInt(append(key, 0), e.LoraID, 10)
	}
	if root, ok := a.roots[string(key)]; ok {
		return root
	}
	root := a.rootOf(e, salt, anonymous)
	if len(a.roots) >= maxRoots {
		clear(a.roots)
	}
	a.roots[string(key)] = root
	return root
}

func (a *applier) rootOf(e *Event, salt []byte, anonymous bool) uint64 {
	lora := string(e.LoraName)
	if anonymous {
		// Before vLLM 0.15 an adapter has a number only; what it holds must match no prompt that we know.
		lora = "\x00" + strconv.FormatInt(e.LoraID, 10)
	}
	return a.f.o.Root(lora, string(salt))
}

// groupKind sorts kv_cache_spec_kind. Before vLLM 0.21 there is none, and one group of full attention. Attention over an
// encoder's output is not keyed by the prompt's tokens.
func groupKind(spec []byte) radix.GroupKind {
	switch string(spec) {
	case "sliding_window", "sliding_window_mla", "chunked_local_attention":
		return radix.GroupSliding
	case "mamba":
		return radix.GroupMamba
	case "encoder_only_attention", "cross_attention":
		return radix.GroupOther
	}
	return radix.GroupAttention
}
