package policy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"ramjet/kvevents"
)

// publisher is an engine's PUB socket (RFC 23, RFC 29) at the other end of a pipe. It speaks ZMTP 3.0, whose peers send
// no heartbeats: wall time must mean nothing here.
type publisher struct {
	next    uint64
	applied chan float64 // lag in seconds of each batch that the feed has applied

	mu   sync.Mutex // guards conn and cut
	conn net.Conn
	cut  bool
	up   chan struct{} // closed when greeted
}

func newPublisher() *publisher {
	return &publisher{applied: make(chan float64, 1), up: make(chan struct{})}
}

var errCut = errors.New("the network is cut")

// dial is the feed's way to connect.
func (p *publisher) dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return nil, errCut
	}
	ours, theirs := net.Pipe()
	p.conn = ours
	go func() { _, _ = io.Copy(io.Discard, ours) }() // its greeting and subscription
	go func() {
		if _, err := ours.Write(greeting()); err == nil {
			close(p.up)
		}
	}()
	return theirs, nil
}

// greeting is ZMTP 3.0's with the NULL mechanism, and READY (RFC 23 section "The NULL Security Mechanism").
func greeting() []byte {
	b := []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0}
	b = append(b, "NULL"...)
	b = append(b, make([]byte, 64-len(b))...)
	ready := append([]byte{5}, "READY"...)
	ready = append(ready, 11)
	ready = append(ready, "Socket-Type"...)
	ready = append(ready, 0, 0, 0, 3)
	ready = append(ready, "PUB"...)
	return append(append(b, 4, byte(len(ready))), ready...)
}

// send publishes one payload and waits until the feed has applied it.
func (p *publisher) send(payload []byte) {
	p.mu.Lock()
	conn, cut := p.conn, p.cut
	p.mu.Unlock()
	seq := p.next
	p.next++
	if cut {
		return // PUB sockets drop what nobody receives
	}
	b := append(make([]byte, 0, len(payload)+32), 1, 0) // the empty topic, more follows
	b = append(b, 1, 8)
	b = binary.BigEndian.AppendUint64(b, seq)
	b = append(b, 2)
	b = binary.BigEndian.AppendUint64(b, uint64(len(payload)))
	b = append(b, payload...)
	if _, err := conn.Write(b); err == nil {
		<-p.applied
	}
}

// sever ends the connection for good.
func (p *publisher) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

// Events, Gap and Lag implement kvevents.Metrics.
func (p *publisher) Events(kvevents.EventKind, int) {}

// Gap implements kvevents.Metrics.
func (p *publisher) Gap() {}

// Lag implements kvevents.Metrics: the feed calls it last of all that a batch does to the index.
func (p *publisher) Lag(seconds float64) { p.applied <- seconds }

// payload encodes what one step did as vLLM 0.32 publishes it: one map an event (vllm/distributed/kv_events.py).
func payload(stamp float64, salt uint64, evicted []uint64, stored []run, size int) []byte {
	events := len(stored)
	if len(evicted) > 0 {
		events++
	}
	b := msgp.AppendArrayHeader(make([]byte, 0, 64), 3)
	b = msgp.AppendFloat64(b, stamp)
	b = msgp.AppendArrayHeader(b, uint32(events)) //nolint:gosec // few
	if len(evicted) > 0 {
		b = msgp.AppendMapHeader(b, 4)
		b = field(b, "type", "BlockRemoved")
		b = hashes(msgp.AppendString(b, "block_hashes"), salt, evicted)
		b = field(b, "medium", "GPU")
		b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	}
	for _, s := range stored {
		b = appendStored(b, salt, s, size)
	}
	return msgp.AppendInt(b, 0)
}

func appendStored(b []byte, salt uint64, s run, size int) []byte {
	keys := s.f.job.keys(size)
	b = msgp.AppendMapHeader(b, 8)
	b = field(b, "type", "BlockStored")
	b = hashes(msgp.AppendString(b, "block_hashes"), salt, keys[s.from:s.to])
	b = msgp.AppendString(b, "parent_block_hash")
	if s.from == 0 {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendUint64(b, mix(keys[s.from-1]^salt))
	}
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32((s.to-s.from)*size)) //nolint:gosec // of one step
	for _, word := range s.f.job.words[s.from:s.to] {
		b = msgp.AppendUint32(msgp.AppendUint32(b, uint32(word)), uint32(word>>32)) //nolint:gosec // the two halves
		for range size - 2 {
			b = append(b, 0) // the id 0
		}
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), size)
	b = msgp.AppendNil(msgp.AppendString(b, "lora_id"))
	b = field(b, "medium", "GPU")
	return msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
}

// hashes encodes an engine's own hashes of blocks, which no other engine shares.
func hashes(b []byte, salt uint64, keys []uint64) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(keys))) //nolint:gosec // of one step
	for _, key := range keys {
		b = msgp.AppendUint64(b, mix(key^salt))
	}
	return b
}

func field(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}

// mix spreads every bit over the word (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
