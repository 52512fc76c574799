package sim

import (
	"math"
	"time"
)

// kvReplayEnd is the number in the message behind the last batch of a replay answer.
const kvReplayEnd = math.MaxUint64

// answer serves one replay request: an empty frame and the number to start from. Anything else is ignored, as by vLLM.
func (p *kvPubSub) answer(router *routerSocket, out *zmtpOutbox, frames [][]byte) {
	if len(frames) != 2 || p.o.stalled != nil && p.o.stalled() {
		return
	}
	patience := time.NewTimer(p.t.patience)
	defer patience.Stop()
	patient := true
	send := func(m zmtpMessage) {
		for patient && out.isFull() {
			select {
			case <-out.room:
			case <-patience.C:
				patient = false
			case <-router.done:
				return
			}
		}
		out.put(m)
	}
	for _, b := range p.since(replayStart(frames[1])) {
		send(p.replayed(b))
	}
	send(p.replayEnd())
}

// replayStart reads the number as vLLM does, by int.from_bytes of whatever length: nothing is 0, and what is longer
// than 64 bits lies beyond every batch.
func replayStart(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if n>>56 != 0 {
			return math.MaxUint64
		}
		n = n<<8 | uint64(c)
	}
	return n
}

// replayed is b as an answer at a DEALER: an empty frame, the topic if frames says so, number, payload.
func (p *kvPubSub) replayed(b kvBatch) zmtpMessage {
	head := make([]byte, 0, 2+len(p.frame)+2+8+1+8)
	head = appendFrame(head, zmtpMore, nil)
	if p.o.frames == 4 {
		head = append(head, p.frame...)
	}
	head = appendSequence(head, b.seq)
	return zmtpMessage{appendFrameHead(head, 0, len(b.payload)), b.payload}
}

// replayEnd is the end of an answer; its topic is empty whatever the batches have.
func (p *kvPubSub) replayEnd() zmtpMessage {
	head := appendFrame(nil, zmtpMore, nil)
	if p.o.frames == 4 {
		head = appendFrame(head, zmtpMore, nil)
	}
	head = appendSequence(head, kvReplayEnd)
	return zmtpMessage{appendFrameHead(head, 0, 0), nil}
}
