package rig

import (
	"bufio"
	wirebin "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Scripted starts Ramjet in front of two scripted engines whose events are the
// publishers'.
func Scripted(t testing.TB, blocks int, flags ...string) (r *Ramjet, engines [2]*Told, pubs [2]*Publisher) {
	t.Helper()
	s := Setup{Loose: true, Flags: append([]string{"--tokens.source=auto", "--tokenizer=" + SimModelFolder(t), PatientTokens}, flags...)}
	for i, name := range []string{"a", "b"} {
		engines[i], pubs[i] = NewTold(t, name, blocks), NewPublisher(t)
		s.URLs = append(s.URLs, name+"="+engines[i].URL()+pubs[i].flag())
	}
	r = StartWith(t, s)
	for i, p := range pubs {
		p.Audience()
		r.TrustIs(t, 2*Patience, engines[i].Name, "exact")
	}
	r.ClosesLater(t)
	return r, engines, pubs
}

// Publisher is an engine's event and replay socket under the test's control,
// byte for byte: ZMTP 3.1 (RFC 37) with the NULL mechanism, a PUB and a ROUTER.
type Publisher struct {
	t      testing.TB
	Live   net.Listener
	Replay net.Listener

	Mu    sync.Mutex // guards the following
	subs  map[net.Conn]struct{}
	conns map[net.Conn]struct{}
	ring  []Frames // what a replay answers
	mute  bool     // replay is not answered
	asked int      // replays
	Dials int      // of subscribers, each counted as it subscribes
}

// Frames is one batch of events.
type Frames struct {
	Topic   string
	Seq     uint64
	Payload []byte
}

// NewPublisher starts one on free ports of 127.0.0.1; it ends with the test.
func NewPublisher(t testing.TB) *Publisher {
	t.Helper()
	p := &Publisher{t: t, subs: map[net.Conn]struct{}{}, conns: map[net.Conn]struct{}{}}
	for _, ln := range []*net.Listener{&p.Live, &p.Replay} {
		var err error
		if *ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatalf("cannot listen: %v", err)
		}
	}
	go p.accept(p.Live, "PUB", p.subscriber)
	go p.accept(p.Replay, "ROUTER", p.dealer)
	t.Cleanup(func() {
		_ = p.Live.Close()
		_ = p.Replay.Close()
		p.cut()
	})
	return p
}

// flag is the setting of an engine whose events these are.
func (p *Publisher) flag() string {
	return fmt.Sprintf(",events=tcp://%s,replay=tcp://%s", p.Live.Addr(), p.Replay.Addr())
}

func (p *Publisher) accept(ln net.Listener, kind string, serve func(net.Conn, *bufio.Reader)) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		p.Mu.Lock()
		p.conns[conn] = struct{}{}
		p.Mu.Unlock()
		go func() {
			defer func() {
				_ = conn.Close()
				p.Mu.Lock()
				delete(p.conns, conn)
				p.Mu.Unlock()
			}()
			if r, err := greet(conn, kind); err == nil {
				serve(conn, r)
			}
		}()
	}
}

// cut ends every connection, as the end of a process does.
func (p *Publisher) cut() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// greet does the handshake.
func greet(conn net.Conn, kind string) (*bufio.Reader, error) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10], greeting[11] = 0xff, 0x7f, 3, 1
	copy(greeting[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type" + string(wirebin.BigEndian.AppendUint32(nil, uint32(len(kind)))) + kind
	if _, err := conn.Write(slices.Concat(greeting, zmtpCommand(ready))); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if _, err := io.ReadFull(r, greeting); err != nil {
		return nil, err
	}
	_, _, err := readFrame(r) // READY
	return r, err
}

func zmtpCommand(body string) []byte { return append([]byte{4, byte(len(body))}, body...) }

func zmtpFrame(dst []byte, more bool, body []byte) []byte {
	flags := byte(0)
	if more {
		flags = 1
	}
	if len(body) < 256 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = append(dst, flags|2)
		dst = wirebin.BigEndian.AppendUint64(dst, uint64(len(body)))
	}
	return append(dst, body...)
}

func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&2 != 0 {
		var b [8]byte
		if _, err = io.ReadFull(r, b[:]); err != nil {
			return 0, nil, err
		}
		size = wirebin.BigEndian.Uint64(b[:])
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(b)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return flags, body, err
}

// subscriber reads what a subscriber says; it belongs to the audience from its
// subscription on.
func (p *Publisher) subscriber(conn net.Conn, r *bufio.Reader) {
	for {
		flags, body, err := readFrame(r)
		if err != nil {
			p.Mu.Lock()
			delete(p.subs, conn)
			p.Mu.Unlock()
			return
		}
		p.Mu.Lock()
		switch {
		case flags&4 != 0 && len(body) >= 7 && string(body[1:5]) == "PING":
			_, _ = conn.Write(zmtpCommand("\x04PONG" + string(body[7:])))
		default: // SUBSCRIBE as a command (3.1) or a message (3.0)
			if _, known := p.subs[conn]; !known {
				p.subs[conn] = struct{}{}
				p.Dials++
			}
		}
		p.Mu.Unlock()
	}
}

// dealer answers replays: from a number on, then the end marker.
func (p *Publisher) dealer(conn net.Conn, r *bufio.Reader) {
	var request [][]byte
	for {
		flags, body, err := readFrame(r)
		if err != nil {
			return
		}
		if flags&4 != 0 {
			if len(body) >= 7 && string(body[1:5]) == "PING" {
				_, _ = conn.Write(zmtpCommand("\x04PONG" + string(body[7:])))
			}
			continue
		}
		if request = append(request, body); flags&1 != 0 {
			continue
		}
		from := uint64(0)
		if last := request[len(request)-1]; len(last) == 8 {
			from = wirebin.BigEndian.Uint64(last)
		}
		request = nil
		p.Mu.Lock()
		p.asked++
		ring, mute := append([]Frames(nil), p.ring...), p.mute
		p.Mu.Unlock()
		if mute {
			continue
		}
		out := bufio.NewWriterSize(conn, 1<<16)
		for _, f := range append(ring, Frames{Seq: math.MaxUint64}) {
			if f.Seq >= from {
				_, _ = out.Write(zmtpFrame(append(zmtpFrame(nil, true, nil), zmtpFrame(nil, true, []byte(f.Topic))...), true, wirebin.BigEndian.AppendUint64(nil, f.Seq)))
				_, _ = out.Write(zmtpFrame(nil, false, f.Payload))
			}
		}
		if out.Flush() != nil {
			return
		}
	}
}

// Message is a batch as subscribers get it.
func (f Frames) Message() []byte {
	b := zmtpFrame(nil, true, []byte(f.Topic))
	b = zmtpFrame(b, true, wirebin.BigEndian.AppendUint64(nil, f.Seq))
	return zmtpFrame(b, false, f.Payload)
}

// Raw sends bytes to all subscribers, as fast as they take them.
func (p *Publisher) Raw(b []byte) {
	p.Mu.Lock()
	subs := make([]net.Conn, 0, len(p.subs))
	for c := range p.subs {
		subs = append(subs, c)
	}
	p.Mu.Unlock()
	for _, c := range subs {
		_ = c.SetWriteDeadline(time.Now().Add(4 * Patience))
		_, _ = c.Write(b)
	}
}

// Send publishes a batch and keeps it for replays.
func (p *Publisher) Send(f Frames) {
	p.Keep(f)
	p.Raw(f.Message())
}

// Keep puts a batch into the ring without sending it.
func (p *Publisher) Keep(f Frames) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.ring = append(p.ring, f)
}

// Set changes what replays answer.
func (p *Publisher) Set(ring []Frames, mute bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.ring, p.mute = ring, mute
}

// Replays is how many replays were asked for.
func (p *Publisher) Replays() int {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.asked
}

// Audience waits until somebody has subscribed.
func (p *Publisher) Audience() {
	p.t.Helper()
	Eventually(p.t, 2*Patience, "a subscriber", func() string {
		p.Mu.Lock()
		defer p.Mu.Unlock()
		if len(p.subs) == 0 {
			return "none"
		}
		return ""
	})
}

// msgpack appends a value: nil, bool, int, uint64, float64, string, []byte, and
// lists and maps (pairs, in order) of such.
func msgpack(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case int:
		if v >= 0 {
			return msgpack(b, uint64(v))
		}
		return wirebin.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	case uint64:
		switch {
		case v < 128:
			return append(b, byte(v))
		case v < 1<<16:
			return wirebin.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
		}
		return wirebin.BigEndian.AppendUint64(append(b, 0xcf), v)
	case float64:
		return wirebin.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case string:
		return append(append(b, 0xd9, byte(len(v))), v...)
	case []byte:
		return append(append(b, 0xc4, byte(len(v))), v...)
	case []any:
		b = wirebin.BigEndian.AppendUint16(append(b, 0xdc), uint16(len(v)))
		for _, e := range v {
			b = msgpack(b, e)
		}
		return b
	case Pairs:
		b = wirebin.BigEndian.AppendUint16(append(b, 0xde), uint16(len(v)/2))
		for _, e := range v {
			b = msgpack(b, e)
		}
		return b
	}
	panic(fmt.Sprintf("BUG: no msgpack of %T", v))
}

// Pairs is a map: keys and values in turn.
type Pairs []any

// Batch is a payload with events of now.
func Batch(events ...any) []byte {
	return msgpack(nil, []any{float64(time.Now().UnixNano()) / 1e9, events, 0})
}

// Stored is a BlockStored of consecutive blocks of 16 tokens.
func Stored(parent any, hashes []uint64, ids []int) Pairs {
	h, tokens := make([]any, len(hashes)), make([]any, len(ids))
	for i := range hashes {
		h[i] = hashes[i]
	}
	for i := range ids {
		tokens[i] = ids[i]
	}
	return Pairs{"type", "BlockStored", "block_hashes", h, "parent_block_hash", parent, "token_ids", tokens, "block_size", 16,
		"lora_id", nil, "medium", "GPU", "lora_name", nil}
}

// PromptIDs are n token ids of prompt number k; the first two tell it from all
// others.
func PromptIDs(k, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		switch i {
		case 0:
			ids[i] = 1 + k%20000
		case 1:
			ids[i] = 1 + k/20000
		default:
			ids[i] = 1 + (k*7919+i*31+i*i%97)%20000
		}
	}
	return ids
}

// HashesOf are hashes for the blocks of prompt number k.
func HashesOf(k, n int) []uint64 {
	h := make([]uint64, n)
	for i := range h {
		h[i] = uint64(k)<<32 | uint64(i) | 1<<63
	}
	return h
}

// IdsBody is a completion of token ids.
func IdsBody(ids []int) string {
	b, err := json.Marshal(map[string]any{"model": "m", "prompt": ids, "max_tokens": 1})
	if err != nil {
		panic("BUG: cannot render a request: " + err.Error())
	}
	return string(b)
}

// Told is an engine that answers completions of ids with a usage that the test
// decides.
type Told struct {
	*Engine
	mu     sync.Mutex // guards the following
	cached func(ids []int) int
	blocks int // of its cache, as its metrics say
}

// NewTold starts one whose metrics tell of so many blocks.
func NewTold(t testing.TB, name string, blocks int) *Told {
	e := &Told{Engine: NewEngine(t, name), blocks: blocks}
	e.Get("/metrics", FullResponse(200, "text/plain; version=0.0.4", fmt.Sprintf("vllm:num_requests_running{model_name=\"m\"} 0\n"+
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", blocks)))
	e.On(func(x *Exchange) {
		var q struct {
			Prompt any `json:"prompt"`
		}
		if json.Unmarshal(x.Body, &q) != nil {
			x.Plain()
			return
		}
		list, ok := q.Prompt.([]any)
		if !ok {
			x.Plain()
			return
		}
		ids := make([]int, len(list))
		for i, v := range list {
			f, _ := v.(float64)
			ids[i] = int(f)
		}
		e.mu.Lock()
		cached := 0
		if e.cached != nil {
			cached = e.cached(ids)
		}
		e.mu.Unlock()
		x.Write(JSONResponse(200, fmt.Sprintf(`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" a","finish_reason":"length"}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, len(ids), len(ids)+1, cached)))
	})
	return e
}

// Hits makes the engine report what fn says.
func (e *Told) Hits(fn func(ids []int) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cached = fn
}
