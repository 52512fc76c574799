package kvevents

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// ErrNoTopic says that nothing came on a subscription to everything.
var ErrNoTopic = errors.New("no event came")

// Topic subscribes to everything that an endpoint publishes and returns the topic of the first event that comes;
// ErrNoTopic when none had come until ctx ended, or what kept it from connecting. A subscription that
// fits nothing is silent in ZeroMQ, and only one that fits everything tells an engine that publishes another topic from
// one that publishes nothing. The caller makes the engine publish, for as long as connected says so and Topic runs:
// what was published before the subscription is not heard. The record stays as it is: the events are thrown away.
func Topic(ctx context.Context, e Endpoint, timing Timing, connected func()) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last atomic.Pointer[error]
	s := &subscriber{
		endpoint: e, timing: timing.withDefaults(), dial: new(net.Dialer).DialContext, listen: new(net.ListenConfig).Listen, q: newQueue(64, 16<<20),
		state: func(up bool, err error) {
			if up {
				last.Store(nil)
				connected()
			} else if ctx.Err() == nil {
				last.Store(&err)
			}
		},
		refused: func(err error) { last.Store(&err) }, dials: func() {},
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	defer wg.Wait()
	defer cancel()
	for {
		it, ok := s.q.pop()
		switch {
		case ok && it.kind == itemMessage:
			if _, _, err := sequenced(it.m); err != nil || len(it.m.Frames) < 3 { // topic, sequence, batch
				continue
			}
			return string(it.m.Frames[0]), nil
		case ok:
			continue
		}
		select {
		case <-s.q.ready:
		case <-ctx.Done():
			if err := last.Load(); err != nil {
				return "", *err
			}
			return "", ErrNoTopic
		}
	}
}

// TopicFits reports whether a subscription takes a topic: ZeroMQ takes it for a prefix.
func TopicFits(topic, subscription string) bool { return topicMatches([]byte(topic), subscription) }
