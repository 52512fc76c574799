package kvevents

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// TestTopic: whoever subscribes to everything hears under which topic an engine publishes, whatever it is, and hears of
// what keeps it from hearing.
func TestTopic(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"", "kv", "kv@10.0.0.1@org/model", strings.Repeat("x", 100)} {
		e := &fakeEngine{topic: topic}
		address := listenUntilEnd(t, "127.0.0.1", func(c net.Conn) {
			e.set(func() { e.subs = append(e.subs, newPeer(c, "PUB", 1, e.subscribed)) })
		})
		t.Cleanup(e.hangUp)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := Topic(ctx, Endpoint{Network: "tcp", Address: address}, Timing{}, func() { e.publish(stored(1)) })
		cancel()
		if err != nil || got != topic {
			t.Errorf("topic %q: heard %q, %v", topic, got, err)
		}
	}
	silent := &fakeEngine{}
	address := listenUntilEnd(t, "127.0.0.1", func(c net.Conn) {
		silent.set(func() { silent.subs = append(silent.subs, newPeer(c, "PUB", 1, silent.subscribed)) })
	})
	t.Cleanup(silent.hangUp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if got, err := Topic(ctx, Endpoint{Network: "tcp", Address: address}, Timing{}, cancel); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a silent engine: %q, %v", got, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dials := 0
	closed := listenUntilEnd(t, "127.0.0.1", func(c net.Conn) {
		_ = c.Close()
		if dials++; dials == 2 { // what became of the first is known by then
			cancel()
		}
	})
	if got, err := Topic(ctx, Endpoint{Network: "tcp", Address: closed}, Timing{}, func() {}); err == nil || errors.Is(err, ErrNoTopic) || got != "" {
		t.Errorf("a peer that hangs up: %q, %v", got, err)
	}
	if !TopicFits("kv@1", "kv") || !TopicFits("kv", "") || TopicFits("kv", "kv@1") || TopicFits("kv", "nope") {
		t.Error("a subscription is a prefix and nothing else")
	}
}
