package kvevents

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// endMarker is the sequence number behind the last batch of a replay (vllm/distributed/kv_events.py END_SEQ, -1 in 8
// bytes).
const endMarker = math.MaxUint64

// replayer asks the engine's ring for what was missed. Each attempt has a connection of its own, so that what an
// abandoned one still sends cannot mix with the next.
type replayer struct {
	endpoint   Endpoint
	timing     Timing
	patience   time.Duration // the longest silence within an answer
	maxMessage int
	dial       DialFunc
}

// attempt asks for all batches from start on and pushes them into q, then itemEnd, or itemDown with the reason. It
// returns when the answer ended or ctx did.
func (r *replayer) attempt(ctx context.Context, start uint64, q *queue) {
	err := r.ask(ctx, start, q)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		q.push(ctx, item{kind: itemDown, err: err})
		return
	}
	q.push(ctx, item{kind: itemEnd})
}

func (r *replayer) ask(ctx context.Context, start uint64, q *queue) error {
	dctx, cancel := context.WithTimeout(ctx, r.timing.Dial)
	conn, err := r.dial(dctx, r.endpoint.Network, r.endpoint.Address)
	cancel()
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", r.endpoint, err)
	}
	timing := r.timing
	// The answer itself is the sign of life: the engine looks for requests ten times a second, between sends.
	timing.Silence = r.patience
	// Silence is also the TTL of our PINGs, and libzmq lets nothing but bytes from us end it: it would cut an answer that
	// takes longer than the first PING and its TTL, however lively.
	timing.Heartbeat = min(timing.Heartbeat, r.patience/3)
	l, err := open(ctx, conn, Dealer, timing, r.maxMessage, func(byte) []byte {
		// A DEALER writes the empty frame itself that a REQ would put in front (RFC 28).
		return appendMessage(nil, nil, binary.BigEndian.AppendUint64(nil, start))
	})
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", r.endpoint, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	defer l.close()
	// PONGs must not pass for an answer: silence is measured between messages.
	timer := time.AfterFunc(r.patience, func() { _ = l.conn.Close() })
	defer timer.Stop()
	late := time.Now().Add(r.patience)
	for {
		m := q.message()
		if err := l.next(m); err != nil {
			q.recycle(m)
			if !time.Now().Before(late) {
				return fmt.Errorf("no answer from %s within %s", r.endpoint, r.patience)
			}
			return fmt.Errorf("the answer from %s broke off: %w", r.endpoint, err)
		}
		seq, payload, err := sequenced(m)
		switch {
		case err != nil:
			q.recycle(m)
			return fmt.Errorf("cannot read the answer from %s: %w", r.endpoint, err)
		case seq == endMarker && len(payload) == 0:
			q.recycle(m)
			return nil
		}
		// Time in which the feed does not take what is here is not the engine's.
		timer.Stop()
		if !q.push(ctx, item{kind: itemMessage, m: m}) {
			return ctx.Err()
		}
		late = time.Now().Add(r.patience)
		timer.Reset(r.patience)
	}
}

var errFrames = errors.New("a message without a sequence number")

// sequenced returns a message's sequence number and payload, which are its last two frames in every framing: live with
// the topic in front, replayed with an empty frame, since vLLM 0.26 with the topic too.
func sequenced(m *Message) (seq uint64, payload []byte, err error) {
	n := len(m.Frames)
	if n < 2 || len(m.Frames[n-2]) != 8 {
		return 0, nil, errFrames
	}
	return binary.BigEndian.Uint64(m.Frames[n-2]), m.Frames[n-1], nil
}

// replayedTopic returns the topic that a replayed message names, if its framing has one.
func replayedTopic(m *Message) (topic []byte, ok bool) {
	if len(m.Frames) != 4 {
		return nil, false
	}
	return m.Frames[1], true
}

// topicMatches is ZeroMQ's rule: a subscription is a prefix.
func topicMatches(topic []byte, subscription string) bool {
	return bytes.HasPrefix(topic, []byte(subscription))
}
