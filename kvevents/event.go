package kvevents

import (
	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
)

// EventKind says what an event of an engine is.
type EventKind uint8

// The kinds of events. EventUnknown is a type that this program does not know, which newer engines may send; EventOdd is
// a known one whose fields cannot be read.
const (
	EventUnknown EventKind = iota
	EventOdd
	EventStored
	EventRemoved
	EventCleared
)

// Event is one KV-cache event of vLLM (vllm/distributed/kv_events.py). Its slices lie in the payload or in the decoder's
// scratch and hold until the next event. A field that is absent or null has its zero value.
type Event struct {
	Kind      EventKind
	Hashes    []uint64 // the engine's block hashes, in order; byte hashes are folded to 64 bits
	Parent    uint64   // hash of the block in front of the first one
	HasParent bool
	Tokens    []uint32 // ids of the span; block i holds [i*BlockTokens, (i+1)*BlockTokens) only if that covers all
	// BlockTokens is the tokens of one block of this event: of its group, or a shorter span of a partial entry.
	BlockTokens int
	LoraID      int64
	HasLoraID   bool
	LoraName    []byte
	Medium      []byte // GPU or empty is the cache itself; CPU, STORAGE, FS, OBJ are tiers behind it
	Extra       []byte // extra_keys as it came, one element a hash; see Extras
	Group       int    // KV cache group
	Spec        []byte // kv_cache_spec_kind, empty before vLLM 0.21
	Window      int    // tokens of a sliding window
	// Lookahead holds the token ids behind each block that its hash covers too (vLLM 0.33), LookaheadTokens for each
	// hash one after the other.
	Lookahead       []uint32
	LookaheadTokens int
	Session         []byte
}

func (e *Event) reset() {
	*e = Event{Hashes: e.Hashes[:0], Tokens: e.Tokens[:0], Lookahead: e.Lookahead[:0]}
}

// Resident reports whether the event is about the engine's own cache and not about a tier behind it.
func (e *Event) Resident() bool { return len(e.Medium) == 0 || string(e.Medium) == "GPU" }

// Extras calls each for every block that more than its tokens goes into: salt is the cache salt, which only the first
// block of a prompt has, and fold is a hash over what else there is (media, prompt embeddings), 0 if nothing. The LoRA
// adapter's name is left out: LoraName has it. What cannot be read is folded as it is.
func (e *Event) Extras(each func(block int, salt []byte, fold uint64)) {
	b := e.Extra
	if len(b) == 0 || msgp.NextType(b) != msgp.ArrayType {
		return
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for i := 0; err == nil && i < int(n); i++ {
		var rest []byte
		if rest, err = msgp.Skip(b); err != nil {
			return
		}
		if msgp.NextType(b) != msgp.NilType {
			salt, fold := e.extrasOf(b[:len(b)-len(rest)], i == 0 && !e.HasParent)
			if len(salt) > 0 || fold != 0 {
				each(i, salt, fold)
			}
		}
		b = rest
	}
}

// extrasOf reads the extra keys of one block. vLLM puts them in the order LoRA name, media, cache salt, embeddings
// (vllm/v1/core/kv_cache_utils.py generate_block_hash_extra_keys); media are pairs and embeddings bytes, so that a text
// which is not the adapter's name is the salt where a prompt begins.
func (e *Event) extrasOf(b []byte, first bool) (salt []byte, fold uint64) {
	if msgp.NextType(b) != msgp.ArrayType {
		return nil, xxh3.Hash(b) | 1
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for ; err == nil && n > 0; n-- {
		var rest []byte
		if rest, err = msgp.Skip(b); err != nil {
			return salt, fold
		}
		one := b[:len(b)-len(rest)]
		text := []byte(nil)
		if msgp.NextType(one) == msgp.StrType {
			text, _, _ = msgp.ReadStringZC(one)
		}
		switch {
		case text != nil && len(e.LoraName) > 0 && string(text) == string(e.LoraName):
		case text != nil && first && salt == nil:
			salt = text
		default:
			fold = xxh3.HashSeed(one, fold) | 1
		}
		b = rest
	}
	return salt, fold
}
