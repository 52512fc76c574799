package kvevents

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
)

// Batch is what stands around the events of one message: one step of the engine's scheduler.
type Batch struct {
	Time    float64 // when the engine made it, Unix seconds on its clock; 0 if it said nothing
	Rank    int     // data-parallel rank
	Events  int     // all of them
	Odd     int     // of known types, with fields that cannot be read
	Unknown int     // of unknown types
}

// Decoder reads payloads of events. It keeps scratch memory between calls, in proportion to the largest event seen.
type Decoder struct {
	event Event
}

// Decode calls each for every event of a payload, in order, odd and unknown ones included. An error means that the
// payload ends early or is not msgpack: events in front of the fault were given to each. The envelope may be an array or
// a map, and so may every event, independently (vLLM has changed the one and not the other).
func (d *Decoder) Decode(payload []byte, each func(*Event)) (Batch, error) {
	var batch Batch
	rest, err := d.envelope(payload, &batch, each)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes behind the batch", len(rest))
	}
	if err != nil {
		return batch, fmt.Errorf("cannot read a batch of events: %w", err)
	}
	return batch, nil
}

var envelopeFields = []string{"ts", "events", "data_parallel_rank"}

func (d *Decoder) envelope(b []byte, batch *Batch, each func(*Event)) ([]byte, error) {
	return readFields(b, envelopeFields, func(field int, b []byte) ([]byte, error) {
		switch field {
		case 0:
			t, rest, err := readNumber(b)
			if err != nil {
				return nil, err
			}
			batch.Time = t
			return rest, nil
		case 1:
			return d.events(b, batch, each)
		default:
			rank, rest, err := readInt(b)
			batch.Rank = int(rank)
			return rest, err
		}
	})
}

// readFields reads an array whose elements are fields by position, or a map of fields by name, and calls read for each
// that is known; the rest is skipped.
func readFields(b []byte, names []string, read func(field int, b []byte) ([]byte, error)) ([]byte, error) {
	isMap, n, b, err := readHeader(b)
	for i := 0; err == nil && i < n; i++ {
		field := i
		if isMap {
			var key []byte
			if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
				break
			}
			field = slices.Index(names, string(key))
		}
		if field < 0 || field >= len(names) {
			b, err = msgp.Skip(b)
			continue
		}
		b, err = read(field, b)
	}
	return b, err
}

var errShape = errors.New("neither an array nor a map")

func readHeader(b []byte) (isMap bool, n int, rest []byte, err error) {
	var size uint32
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		size, rest, err = msgp.ReadArrayHeaderBytes(b)
	case msgp.MapType:
		isMap = true
		size, rest, err = msgp.ReadMapHeaderBytes(b)
	default:
		if len(b) == 0 {
			return false, 0, nil, msgp.ErrShortBytes
		}
		return false, 0, nil, errShape
	}
	return isMap, int(size), rest, err
}

// events reads the list of events. One that cannot be read costs itself and not its neighbours.
func (d *Decoder) events(b []byte, batch *Batch, each func(*Event)) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	e := &d.event
	for range n {
		e.reset()
		rest, err := e.read(b)
		if err != nil {
			if rest, err = msgp.Skip(b); err != nil {
				return nil, err
			}
			e.Kind = EventOdd
		}
		b = rest
		batch.Events++
		switch e.Kind {
		case EventOdd:
			batch.Odd++
		case EventUnknown:
			batch.Unknown++
		default:
		}
		each(e)
	}
	return b, nil
}

// field names what an event may hold.
type field uint8

const (
	fieldNone field = iota
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoraID
	fieldMedium
	fieldLoraName
	fieldExtra
	fieldGroup
	fieldSpec
	fieldWindow
	fieldLookahead
	fieldSession
)

// storedFields and removedFields are the fields behind the tag in array events, in the order of their declaration
// (vllm/distributed/kv_events.py); trailing ones may be cut. fieldNone is skipped: locality and ownership, which belong
// to tiers.
var (
	storedFields = []field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoraID, fieldMedium, fieldLoraName,
		fieldExtra, fieldGroup, fieldSpec, fieldWindow, fieldNone, fieldNone, fieldSession, fieldLookahead}
	removedFields = []field{fieldHashes, fieldMedium, fieldGroup}
)

// fieldOf returns the field of a key in a map event. A switch and not a map: its cases compare without a hash.
func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoraID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoraName
	case "extra_keys":
		return fieldExtra
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "lookahead_token_ids":
		return fieldLookahead
	case "session_id":
		return fieldSession
	}
	return fieldNone
}

func kindOf(tag []byte) EventKind {
	switch string(tag) {
	case "BlockStored":
		return EventStored
	case "BlockRemoved":
		return EventRemoved
	case "AllBlocksCleared":
		return EventCleared
	}
	return EventUnknown
}

// read reads one event. On an error the event's extent is unknown, and its kind too.
func (e *Event) read(b []byte) ([]byte, error) {
	isMap, n, b, err := readHeader(b)
	switch {
	case err != nil:
		return nil, err
	case isMap:
		return e.readMap(n, b)
	case n == 0:
		return nil, errShape
	}
	return e.readArray(n, b)
}

func (e *Event) readArray(n int, b []byte) ([]byte, error) {
	tag, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return nil, err
	}
	var fields []field
	switch e.Kind = kindOf(tag); e.Kind {
	case EventStored:
		fields = storedFields
	case EventRemoved:
		fields = removedFields
	default:
	}
	for i := range n - 1 {
		f := fieldNone
		if i < len(fields) {
			f = fields[i]
		}
		if b, err = e.readField(f, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// readMap reads fields in any order: the order of keys is no contract, so the tag may come last. A field that cannot be
// read makes the event odd only if its type turns out to be a known one.
func (e *Event) readMap(n int, b []byte) ([]byte, error) {
	odd := false
	for range n {
		key, rest, err := msgp.ReadMapKeyZC(b)
		if err != nil {
			return nil, err
		}
		if b, err = e.readField(fieldOf(key), rest); err != nil {
			odd = true
			if b, err = msgp.Skip(rest); err != nil {
				return nil, err
			}
		}
	}
	if odd && e.Kind != EventUnknown {
		e.Kind = EventOdd
	}
	return b, nil
}

func (e *Event) readField(f field, b []byte) (rest []byte, err error) {
	if f != fieldNone && msgp.NextType(b) == msgp.NilType {
		return msgp.ReadNilBytes(b)
	}
	var n int64
	switch f {
	case fieldType:
		var tag []byte
		if tag, b, err = msgp.ReadStringZC(b); err == nil {
			e.Kind = kindOf(tag)
		}
		return b, err
	case fieldHashes:
		e.Hashes, b, err = readHashes(e.Hashes[:0], b)
	case fieldParent:
		e.Parent, b, err = readHash(b)
		e.HasParent = err == nil
	case fieldTokens:
		e.Tokens, b, err = readTokens(e.Tokens[:0], b)
	case fieldBlockSize:
		e.BlockTokens, b, err = readSmall(b)
	case fieldLoraID:
		n, b, err = readInt(b)
		e.LoraID, e.HasLoraID = n, err == nil
	case fieldMedium:
		e.Medium, b, err = msgp.ReadStringZC(b)
	case fieldLoraName:
		e.LoraName, b, err = msgp.ReadStringZC(b)
	case fieldExtra:
		if rest, err = msgp.Skip(b); err == nil {
			e.Extra = b[:len(b)-len(rest)]
		}
		return rest, err
	case fieldGroup:
		e.Group, b, err = readSmall(b)
	case fieldSpec:
		e.Spec, b, err = msgp.ReadStringZC(b)
	case fieldWindow:
		e.Window, b, err = readSmall(b)
	case fieldLookahead:
		b, err = e.readLookahead(b)
	case fieldSession:
		e.Session, b, err = msgp.ReadStringZC(b)
	default:
		return msgp.Skip(b)
	}
	return b, err
}

// readCount reads the header of a list of n elements, each of which has at least one byte: what a peer announces is
// checked against what is there before anything grows.
func readCount(b []byte) (n int, rest []byte, err error) {
	size, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err == nil && uint64(size) > uint64(len(rest)) {
		err = msgp.ErrShortBytes
	}
	return int(size), rest, err
}

func readHashes(dst []uint64, b []byte) ([]uint64, []byte, error) {
	n, b, err := readCount(b)
	if err != nil {
		return dst, nil, err
	}
	dst = slices.Grow(dst, n)
	for range n {
		var h uint64
		if h, b, err = readHash(b); err != nil {
			return dst, nil, err
		}
		dst = append(dst, h)
	}
	return dst, b, nil
}

// readHash reads a block hash: an unsigned number of 64 bits, or bytes, which vLLM sends for
// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0. A hash is only ever compared with others of the same engine, so bytes are
// folded.
func readHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.BinType:
		v, rest, err := msgp.ReadBytesZC(b)
		return xxh3.Hash(v), rest, err
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(v), rest, err
	default:
		return msgp.ReadUint64Bytes(b)
	}
}

func readTokens(dst []uint32, b []byte) ([]uint32, []byte, error) {
	n, b, err := readCount(b)
	if err != nil {
		return dst, nil, err
	}
	dst = slices.Grow(dst, n)
	for range n {
		// Most of a payload is here, so the two commonest forms are read in place: ids up to 127, and of 16 bits.
		switch {
		case len(b) > 0 && b[0] < 0x80:
			dst, b = append(dst, uint32(b[0])), b[1:]
			continue
		case len(b) > 2 && b[0] == 0xcd:
			dst, b = append(dst, uint32(b[1])<<8|uint32(b[2])), b[3:]
			continue
		}
		var id uint32
		if id, b, err = msgp.ReadUint32Bytes(b); err != nil {
			return dst, nil, err
		}
		dst = append(dst, id)
	}
	return dst, b, nil
}

var errLookahead = errors.New("lookahead token ids differ in number")

// readLookahead reads one list of ids a hash, all of one length, or one id a hash.
func (e *Event) readLookahead(b []byte) ([]byte, error) {
	n, b, err := readCount(b)
	if err != nil {
		return nil, err
	}
	e.Lookahead, e.LookaheadTokens = e.Lookahead[:0], 0
	for i := range n {
		from := len(e.Lookahead)
		if msgp.NextType(b) == msgp.ArrayType {
			var ids []uint32
			if ids, b, err = readTokens(e.Lookahead[from:], b); err != nil {
				return nil, err
			}
			e.Lookahead = append(e.Lookahead[:from], ids...)
		} else {
			var id uint32
			if id, b, err = msgp.ReadUint32Bytes(b); err != nil {
				return nil, err
			}
			e.Lookahead = append(e.Lookahead, id)
		}
		switch got := len(e.Lookahead) - from; {
		case i == 0:
			e.LookaheadTokens = got
		case got != e.LookaheadTokens:
			return nil, errLookahead
		}
	}
	return b, nil
}

// readInt reads a whole number of any width.
func readInt(b []byte) (int64, []byte, error) {
	if msgp.NextType(b) == msgp.NilType {
		rest, err := msgp.ReadNilBytes(b)
		return 0, rest, err
	}
	return msgp.ReadInt64Bytes(b)
}

var errRange = errors.New("a size out of range")

// readSmall reads a size or an index: nothing that is one is negative or beyond 31 bits.
func readSmall(b []byte) (int, []byte, error) {
	v, rest, err := msgp.ReadInt64Bytes(b)
	if err == nil && (v < 0 || v > math.MaxInt32) {
		return 0, nil, errRange
	}
	return int(v), rest, err
}

// readNumber reads a number of any type as a float.
func readNumber(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.NilType:
		rest, err := msgp.ReadNilBytes(b)
		return 0, rest, err
	case msgp.IntType, msgp.UintType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		return float64(v), rest, err
	default:
		return msgp.ReadFloat64Bytes(b)
	}
}
