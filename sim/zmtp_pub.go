package sim

import (
	"errors"
	"strings"
	"sync"
)

// pubSocket is a ZeroMQ PUB socket: every message goes to every subscriber whose subscriptions hold a prefix of its
// topic, and to nobody later. Safe for concurrent use.
type pubSocket struct {
	*zmtpSocket
	hwm int // of each subscriber

	mu   sync.Mutex // guards subs
	subs map[*subscriber]struct{}
}

// subscriber is the far side of a PUB socket.
type subscriber struct {
	out *zmtpOutbox

	mu     sync.Mutex // guards topics
	topics map[string]struct{}
}

func newPubSocket(hwm int) *pubSocket {
	return &pubSocket{zmtpSocket: newZMTPSocket("PUB", "SUB", "XSUB"), hwm: hwm, subs: map[*subscriber]struct{}{}}
}

// open binds the endpoint, or connects to what stands behind a ">". It returns the endpoint with its port.
func (p *pubSocket) open(endpoint string) (string, error) {
	if to, out := strings.CutPrefix(endpoint, ">"); out {
		return endpoint, p.connect(to)
	}
	return p.bind(endpoint)
}

// bind listens for subscribers and returns the endpoint with its port.
func (p *pubSocket) bind(endpoint string) (string, error) {
	return p.listen(endpoint, func(c *zmtpConn) {
		s := p.add()
		p.serve(c, s)
		p.remove(s)
	})
}

// connect dials a subscriber that listens. As in libzmq the other side outlives its connections: once it has
// subscribed, messages wait for it, up to the high-water mark, while it is away.
func (p *pubSocket) connect(endpoint string) error {
	s := p.add()
	return p.dial(endpoint, func(c *zmtpConn) { p.serve(c, s) })
}

func (p *pubSocket) add() *subscriber {
	s := &subscriber{out: newOutbox(p.hwm), topics: map[string]struct{}{}}
	p.mu.Lock()
	p.subs[s] = struct{}{}
	p.mu.Unlock()
	return s
}

func (p *pubSocket) remove(s *subscriber) {
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
}

// serve reads subscriptions and writes messages until the connection ends.
func (p *pubSocket) serve(c *zmtpConn, s *subscriber) {
	serveBoth(c, s.out, func() error {
		inside := false // in a message of more than one frame, of which none can be a subscription
		for {
			flags, body, err := c.read(s.out.putUrgent)
			if err != nil {
				return err
			}
			switch {
			case flags&zmtpCommand != 0:
				err = s.command(body)
			case !inside && flags&zmtpMore == 0:
				err = s.message(body)
			}
			if err != nil {
				return err
			}
			inside = flags&zmtpMore != 0
		}
	})
}

// command takes a subscription of ZMTP 3.1. Unknown commands are ignored.
func (s *subscriber) command(body []byte) error {
	name, topic, err := cutCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case "SUBSCRIBE":
		return s.subscribe(string(topic))
	case "CANCEL":
		s.cancel(string(topic))
	}
	return nil
}

// message takes a subscription of ZMTP 3.0: a first byte of 1 subscribes, of 0 cancels. Others are ignored: a PUB
// socket receives nothing.
func (s *subscriber) message(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	switch body[0] {
	case 1:
		return s.subscribe(string(body[1:]))
	case 0:
		s.cancel(string(body[1:]))
	}
	return nil
}

// subscriberTopics bounds what one subscriber can make us keep and compare.
const subscriberTopics = 1024

func (s *subscriber) subscribe(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.topics) >= subscriberTopics {
		return errors.New("too many subscriptions")
	}
	s.topics[topic] = struct{}{}
	return nil
}

// cancel ends a subscription. The peer counts equal ones and cancels with the last, so they need no counting here.
func (s *subscriber) cancel(topic string) {
	s.mu.Lock()
	delete(s.topics, topic)
	s.mu.Unlock()
}

// wants reports whether a subscription is a prefix of topic.
func (s *subscriber) wants(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.topics {
		if strings.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

// send queues m for everybody who wants it. It never blocks.
func (p *pubSocket) send(topic string, m zmtpMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		if s.wants(topic) {
			s.out.put(m)
		}
	}
}

// audience is how many peers have subscribed to topic.
func (p *pubSocket) audience(topic string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.subs {
		if s.wants(topic) {
			n++
		}
	}
	return n
}

// drops is how many messages the present subscribers did not get because their queues were full.
func (p *pubSocket) drops() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n uint64
	for s := range p.subs {
		n += s.out.drops()
	}
	return n
}
