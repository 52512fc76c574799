package sim

import "fmt"

// kvLayout is how one event is written, which changed with vLLM's releases (distributed/kv_events.py).
type kvLayout uint8

const (
	kvMaps    kvLayout = iota // since 0.24: a map, tagged "type"
	kvArrays                  // 0.22 and 0.23: an array, 11 fields after the tag
	kvArrays5                 // 0.10: an array, BlockStored with 5 fields after the tag, BlockRemoved with 1
)

// kvForm is how a batch is written. Its zero value is what vLLM 0.32 sends.
type kvForm struct {
	layout kvLayout
	// cut leaves out the fields at the end of an array that are null, from the first that has a default on. No release
	// with arrays was run here, so clients must bear both.
	cut         bool
	mapEnvelope bool // the batch itself as a map: seen in one branch of vLLM, in no release
}

// appendBatch appends the payload of a message: the time in Unix seconds, the events, the rank. Integer and byte hashes
// may stand side by side; an engine uses one of them.
func (f kvForm) appendBatch(dst []byte, ts float64, events []kvEvent, rank int) []byte {
	if f.mapEnvelope {
		dst = appendStr(appendMap(dst, 3), "ts")
		dst = appendStr(appendFloat(dst, ts), "events")
		dst = f.appendEvents(dst, events)
		return appendUint(appendStr(dst, "data_parallel_rank"), uint64(rank))
	}
	dst = appendFloat(appendArray(dst, 3), ts)
	dst = f.appendEvents(dst, events)
	return appendUint(dst, uint64(rank))
}

func (f kvForm) appendEvents(dst []byte, events []kvEvent) []byte {
	dst = appendArray(dst, len(events))
	for i := range events {
		e := &events[i]
		if f.layout == kvMaps {
			dst = appendEventMap(dst, e)
		} else {
			dst = f.appendEventArray(dst, e)
		}
	}
	return dst
}

// kvTag is the word that names the kind of an event.
func kvTag(k kvKind) string {
	switch k {
	case kvStored:
		return "BlockStored"
	case kvRemoved:
		return "BlockRemoved"
	case kvCleared:
		return "AllBlocksCleared"
	}
	panic(fmt.Sprintf("BUG: no such kind of event: %d", k))
}

// kvField is a field behind the hashes. Without a default it is always there, as null if need be.
type kvField struct {
	name     string
	required bool
	absent   func(*kvEvent) bool
	value    func([]byte, *kvEvent) []byte
}

// kvStoredFields and kvRemovedFields are in the order of the declarations, which is that of the wire in both layouts.
var kvStoredFields = []kvField{
	{"parent_block_hash", true, func(e *kvEvent) bool { return e.parent == nil }, func(b []byte, e *kvEvent) []byte { return appendHash(b, *e.parent) }},
	{"token_ids", true, func(*kvEvent) bool { return false }, func(b []byte, e *kvEvent) []byte { return appendTokens(b, e.tokenIDs) }},
	{"block_size", true, func(*kvEvent) bool { return false }, func(b []byte, e *kvEvent) []byte { return appendUint(b, uint64(e.blockSize)) }},
	{"lora_id", true, func(e *kvEvent) bool { return e.loraID == nil }, func(b []byte, e *kvEvent) []byte { return appendUint(b, uint64(*e.loraID)) }},
	{"medium", true, func(e *kvEvent) bool { return e.medium == nil }, func(b []byte, e *kvEvent) []byte { return appendStr(b, *e.medium) }},
	{"lora_name", true, func(e *kvEvent) bool { return e.loraName == nil }, func(b []byte, e *kvEvent) []byte { return appendStr(b, *e.loraName) }},
	{"extra_keys", false, func(e *kvEvent) bool { return e.extraKeys == nil }, appendExtraKeys},
	{"group_idx", false, func(e *kvEvent) bool { return e.groupIdx == nil }, func(b []byte, e *kvEvent) []byte { return appendUint(b, uint64(*e.groupIdx)) }},
	{"kv_cache_spec_kind", false, func(e *kvEvent) bool { return e.specKind == "" }, func(b []byte, e *kvEvent) []byte { return appendStr(b, e.specKind) }},
	{"kv_cache_spec_sliding_window", false, func(e *kvEvent) bool { return e.slidingWindow == nil }, func(b []byte, e *kvEvent) []byte { return appendUint(b, uint64(*e.slidingWindow)) }},
	kvLocality,
	kvOwnership,
	{"session_id", false, func(e *kvEvent) bool { return e.sessionID == "" }, func(b []byte, e *kvEvent) []byte { return appendStr(b, e.sessionID) }},
	{"lookahead_token_ids", false, func(e *kvEvent) bool { return e.lookahead == nil }, appendLookahead},
}

var kvRemovedFields = []kvField{kvStoredFields[4], kvStoredFields[7], kvLocality, kvOwnership}

var (
	kvLocality  = kvField{"locality", false, func(e *kvEvent) bool { return e.locality == "" }, func(b []byte, e *kvEvent) []byte { return appendStr(b, e.locality) }}
	kvOwnership = kvField{"ownership", false, func(e *kvEvent) bool { return e.ownership == "" }, func(b []byte, e *kvEvent) []byte { return appendStr(b, e.ownership) }}
)

// kvFields are the fields behind the hashes that a kind of event has in a layout.
func kvFields(k kvKind, l kvLayout) []kvField {
	switch {
	case k == kvStored && l == kvMaps:
		return kvStoredFields
	case k == kvStored && l == kvArrays:
		return kvStoredFields[:10]
	case k == kvStored:
		return kvStoredFields[:4]
	case k == kvRemoved && l == kvMaps:
		return kvRemovedFields
	case k == kvRemoved && l == kvArrays:
		return kvRemovedFields[:2]
	default:
		return nil
	}
}

func appendEventMap(dst []byte, e *kvEvent) []byte {
	fields := kvFields(e.kind, kvMaps)
	n := 1
	if e.kind != kvCleared {
		n++
	}
	for _, f := range fields {
		if f.required || !f.absent(e) {
			n++
		}
	}
	dst = appendStr(appendStr(appendMap(dst, n), "type"), kvTag(e.kind))
	if e.kind == kvCleared {
		return dst
	}
	dst = appendHashes(appendStr(dst, "block_hashes"), e.hashes)
	for _, f := range fields {
		switch {
		case !f.absent(e):
			dst = f.value(appendStr(dst, f.name), e)
		case f.required:
			dst = appendNil(appendStr(dst, f.name))
		}
	}
	return dst
}

func (f kvForm) appendEventArray(dst []byte, e *kvEvent) []byte {
	fields := kvFields(e.kind, f.layout)
	if f.cut {
		for n := len(fields); n > 0 && !fields[n-1].required && fields[n-1].absent(e); n-- {
			fields = fields[:n-1]
		}
	}
	if e.kind == kvCleared {
		return appendStr(appendArray(dst, 1), kvTag(e.kind))
	}
	dst = appendStr(appendArray(dst, 2+len(fields)), kvTag(e.kind))
	dst = appendHashes(dst, e.hashes)
	for _, f := range fields {
		if f.absent(e) {
			dst = appendNil(dst)
		} else {
			dst = f.value(dst, e)
		}
	}
	return dst
}

func appendHash(dst []byte, h blockHash) []byte {
	if h.bytes != nil {
		return appendBin(dst, h.bytes)
	}
	return appendUint(dst, h.num)
}

func appendHashes(dst []byte, hashes []blockHash) []byte {
	dst = appendArray(dst, len(hashes))
	for _, h := range hashes {
		dst = appendHash(dst, h)
	}
	return dst
}

func appendTokens(dst []byte, ids []uint32) []byte {
	dst = appendArray(dst, len(ids))
	for _, id := range ids {
		dst = appendUint(dst, uint64(id))
	}
	return dst
}

func appendExtraKeys(dst []byte, e *kvEvent) []byte {
	dst = appendArray(dst, len(e.extraKeys))
	for _, keys := range e.extraKeys {
		if keys == nil {
			dst = appendNil(dst)
			continue
		}
		dst = appendArray(dst, len(keys))
		for _, k := range keys {
			dst = appendStr(dst, k)
		}
	}
	return dst
}

func appendLookahead(dst []byte, e *kvEvent) []byte {
	dst = appendArray(dst, len(e.lookahead))
	for _, ids := range e.lookahead {
		dst = appendTokens(dst, ids)
	}
	return dst
}
