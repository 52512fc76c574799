package sim

import (
	"encoding/binary"
)

// kvWriter is the Observer that turns what the core tells into vLLM's events and hands them to a sink once a step. It
// belongs to the scheduler's goroutine.
type kvWriter struct {
	sink  kvSink
	bytes bool // hashes of 32 bytes instead of integers

	pending []kvEvent
	// What the pending events point into. A buffer that grows leaves the old one to the events that have it.
	hashes  []blockHash
	digests []byte
	keys    [][]string
	ahead   [][]uint32
	indices []int // of the groups, so that each event can point to its own

	names   []string // of adapters
	adapter int      // vLLM numbers them from 1; the number is not part of the hash

	medium, cpu string
}

// newKVWriter makes a writer for so many cache groups.
func newKVWriter(sink kvSink, groups int, bytes bool) *kvWriter {
	w := &kvWriter{sink: sink, bytes: bytes, medium: "GPU", cpu: "CPU", adapter: 1}
	for g := range groups {
		w.indices = append(w.indices, g)
	}
	return w
}

// Stored implements Observer.
func (w *kvWriter) Stored(b StoredBlocks) {
	e := kvEvent{
		kind: kvStored, hashes: w.wire(b.Hashes...), tokenIDs: b.Tokens, blockSize: b.BlockTokens, medium: &w.medium,
		groupIdx: &w.indices[b.Group], specKind: b.Kind, sessionID: b.Session,
	}
	if b.HasParent {
		e.parent = &w.wire(b.Parent)[0]
	}
	if b.LoRA != "" {
		w.names = append(w.names, b.LoRA)
		e.loraID, e.loraName = &w.adapter, &w.names[len(w.names)-1]
	}
	if len(b.Hashes) > 0 {
		e.extraKeys = w.extra(b)
	}
	if b.Lookahead > 0 {
		from := len(w.ahead)
		for i := range b.Hashes {
			at := i * b.BlockTokens
			w.ahead = append(w.ahead, b.Behind[at:at+b.Lookahead])
		}
		e.lookahead = w.ahead[from:]
	}
	w.pending = append(w.pending, e)
}

// extra are the parts of each block's hash that are no tokens: the adapter's name in every block, the salt in the
// sequence's first.
func (w *kvWriter) extra(b StoredBlocks) [][]string {
	from := len(w.keys)
	for i := range b.Hashes {
		var keys []string
		if b.LoRA != "" {
			keys = append(keys, b.LoRA)
		}
		if i == 0 && b.First && b.Salt != "" && len(b.Hashes)*b.BlockTokens == len(b.Tokens) {
			keys = append(keys, b.Salt)
		}
		w.keys = append(w.keys, keys)
	}
	return w.keys[from:]
}

// wire gives hashes their form.
func (w *kvWriter) wire(hashes ...uint64) []blockHash {
	from := len(w.hashes)
	for _, h := range hashes {
		out := blockHash{num: h}
		if w.bytes {
			out.bytes = w.digest(h)
		}
		w.hashes = append(w.hashes, out)
	}
	return w.hashes[from:len(w.hashes):len(w.hashes)]
}

// digest makes 32 bytes of a hash, of which the integer form is the last eight.
func (w *kvWriter) digest(h uint64) []byte {
	from := len(w.digests)
	for i := range uint64(3) {
		w.digests = binary.BigEndian.AppendUint64(w.digests, mix(h, i))
	}
	w.digests = binary.BigEndian.AppendUint64(w.digests, h)
	return w.digests[from:len(w.digests):len(w.digests)]
}

// Removed implements Observer: vLLM makes an event for every block.
func (w *kvWriter) Removed(group int, hash uint64) {
	w.pending = append(w.pending, kvEvent{kind: kvRemoved, hashes: w.wire(hash), medium: &w.medium, groupIdx: &w.indices[group]})
}

// Offloaded implements Observer: the connector's events have no tokens, no parent and no group.
func (w *kvWriter) Offloaded(stored, removed []uint64) {
	for _, h := range removed {
		w.pending = append(w.pending, kvEvent{kind: kvRemoved, hashes: w.wire(h), medium: &w.cpu})
	}
	w.pending = append(w.pending, kvEvent{kind: kvStored, hashes: w.wire(stored...), medium: &w.cpu})
}

// Cleared implements Observer.
func (w *kvWriter) Cleared() { w.pending = append(w.pending, kvEvent{kind: kvCleared}) }

// StepEnd implements Observer: a step without changes publishes nothing.
func (w *kvWriter) StepEnd() {
	if len(w.pending) > 0 {
		w.sink.publish(w.pending)
		w.forget()
	}
}

// Restarted implements Observer.
func (w *kvWriter) Restarted() {
	w.forget()
	w.sink.reset()
}

func (w *kvWriter) forget() {
	clear(w.pending)
	clear(w.ahead)
	clear(w.names)
	w.pending, w.hashes, w.digests, w.keys, w.ahead, w.names = w.pending[:0], w.hashes[:0], w.digests[:0], w.keys[:0], w.ahead[:0], w.names[:0]
}
