package sim

import "context"

// kvKind says what a kvEvent tells.
type kvKind uint8

const (
	kvStored  kvKind = iota // BlockStored
	kvRemoved               // BlockRemoved: hashes, medium and groupIdx only
	kvCleared               // AllBlocksCleared: no field at all
)

// blockHash is one block's hash in the form that goes over the wire: 32 bytes, or the low 64 bits of a digest
// (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES, which is vLLM's default).
type blockHash struct {
	num   uint64
	bytes []byte // 32 bytes; nil for the integer form
}

// kvEvent is one change of the block cache as vLLM tells it. Pointers and slices that are nil stand for fields that
// are null where the wire form always has them (parent, loraID, medium, loraName), and for fields that are left out
// where it has them only sometimes (extraKeys, groupIdx, lookahead and everything behind them). The order of the
// fields here is the order on the wire (vLLM 0.32 and 0.33, distributed/kv_events.py).
type kvEvent struct {
	kind      kvKind
	hashes    []blockHash // empty, not absent, where no block of the span can be hit
	parent    *blockHash
	tokenIDs  []uint32
	blockSize int // tokens
	loraID    *int
	medium    *string // "GPU", "CPU"
	loraName  *string
	extraKeys [][]string // one per hash, nil elements are null; vLLM leaves the field out without hashes

	groupIdx      *int
	specKind      string // full_attention, mamba ..; "" = absent
	slidingWindow *int

	locality  string // "" = absent, as the two below
	ownership string
	sessionID string

	lookahead [][]uint32 // vLLM 0.33 with MTP: the token ids behind each block, one list per hash
}

// kvSink takes the events of one engine step. The core calls it inside the step, so it must not block. The events,
// and every slice and pointer in them, are valid during the call only.
type kvSink interface {
	// publish makes one batch with the next sequence number of events, at least one.
	publish(events []kvEvent)
	// reset is a restart of the engine process: what was buffered is gone and the sequence starts at 0 again.
	reset()
}

// kvFate is what the armed event faults make of a batch.
type kvFate uint8

const (
	kvSend    kvFate = iota
	kvLose           // event-gap: the batch has its number and is in the replay buffer, but is not sent live (as at a full PUB queue)
	kvStalled        // event-stop: the publisher's thread stands still; batches take numbers and wait in the replay buffer unsent, replay requests are not answered
)

// kvPublisherOptions describe one publisher: a PUB socket and, if replay is given, a ROUTER.
type kvPublisherOptions struct {
	endpoint string // tcp://HOST:PORT or tcp://*:PORT, bound; port 0 = any
	replay   string // likewise; "" = none
	topic    string
	array    bool // inner events as positional arrays (vLLM up to 0.23) instead of maps
	frames   int  // of a replay answer at a DEALER: 4 with the topic (0 = default, vLLM since 0.26), or 3
	ring     int  // batches kept for replay; 0 = 10,000, vLLM's buffer_steps
	rank     int  // data_parallel_rank, third element of the envelope

	// fate is asked once for every batch, before it goes out, and uses up one hit of an event-gap fault. nil = always kvSend.
	fate func() kvFate
	// stalled says whether an event-stop fault is armed, without using anything up: replay is not answered while it is.
	// nil = never.
	stalled func() bool
}

// kvPublisher is a kvSink with sockets. It is made by newKVPublisher(kvPublisherOptions) (kvPublisher, error), which
// binds; run serves until ctx ends, closes everything and returns once its goroutines are gone. All methods may be
// called from any goroutine.
type kvPublisher interface {
	kvSink
	run(ctx context.Context)
	// endpoints are the bound addresses, tcp://HOST:PORT with the real port; replay is "" without one.
	endpoints() (live, replay string)
	// sequence is the number of batches published since the last reset: the number that the next one gets.
	sequence() uint64
	// suspend closes every connection and the ports, as the end of a process does: connects are refused until resume.
	suspend()
	resume() error
}
