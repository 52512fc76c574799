package sim

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// EventOptions say whether and how a server publishes its KV-cache events. The zero value of a field means its default.
type EventOptions struct {
	Endpoint     string // tcp://HOST:PORT or tcp://*:PORT, bound whatever its host is; port 0 = any; "" = no events
	Replay       string // likewise, for replay requests; "" = none
	Topic        string // frame 0 of every message
	Form         string // EventsMap (default), EventsArray or EventsArray5
	ByteHashes   bool   // hashes of 32 bytes instead of integers
	ReplayFrames int    // of a replay answer at a DEALER: 4 (default, since vLLM 0.26) or 3
	Buffer       int    // batches kept for replay; default 10,000
}

// Forms of the events inside a batch. The list is closed.
const (
	EventsMap    = "map"    // vLLM since 0.24
	EventsArray  = "array"  // vLLM 0.22 and 0.23: 11 fields after the tag
	EventsArray5 = "array5" // vLLM 0.10: 5 fields after the tag
)

// openEvents makes the server's publisher and the core's observer.
func (s *Server) openEvents() error {
	e := s.o.Events
	if e.Endpoint == "" {
		if e.Replay != "" {
			return errors.New("cannot serve the replay of events that are not published: give their endpoint too")
		}
		return nil
	}
	if s.o.Core.Observer != nil {
		panic("BUG: an observer and events")
	}
	form := kvForm{}
	switch e.Form {
	case "", EventsMap:
	case EventsArray:
		form.layout = kvArrays
	case EventsArray5:
		form.layout = kvArrays5
	default:
		return fmt.Errorf("cannot write events as %q: it must be %s, %s or %s", e.Form, EventsMap, EventsArray, EventsArray5)
	}
	pub, err := newTunedPublisher(kvPublisherOptions{
		endpoint: e.Endpoint, replay: e.Replay, topic: e.Topic, frames: e.ReplayFrames, ring: e.Buffer,
		fate: s.faults.eventFate, stalled: s.faults.eventStop,
	}, kvTuning{form: form})
	if err != nil {
		return fmt.Errorf("cannot publish events: %w", err)
	}
	s.events = pub
	if s.o.Core.Lie == nil {
		s.o.Core.Lie = s.faults.eventLie
	}
	if s.o.Core.LastCopy == nil {
		s.o.Core.LastCopy = s.faults.eventLastCopy
	}
	s.o.Core.Observer = newKVWriter(pub, max(len(s.o.Core.Hybrid), 1), e.ByteHashes)
	return nil
}

// hashSeed draws a seed as every process of vLLM before 0.29 does.
func hashSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// EventsAddr are the addresses of the event and the replay socket, HOST:PORT with the real port, "" without one.
func (s *Server) EventsAddr() (live, replay string) {
	if s.events == nil {
		return "", ""
	}
	l, r := s.events.endpoints()
	return strings.TrimPrefix(l, "tcp://"), strings.TrimPrefix(r, "tcp://")
}

// suspendEvents closes the event sockets, as the end of the process does.
func (s *Server) suspendEvents() {
	if s.events != nil {
		s.events.suspend()
	}
}

// resumeEvents opens them again. Ports that are taken are asked for again for a second.
func (s *Server) resumeEvents() {
	if s.events == nil || s.events.resume() == nil {
		return
	}
	s.wg.Go(func() {
		for range 100 {
			if !pause(s.ctx, 10*time.Millisecond) || s.events.resume() == nil {
				return
			}
		}
	})
}

// eventSources answers GET /kv_event_sources as vLLM 0.32 does: by rank, the configuration, in which a client replaces
// the star by the server's host; nothing without events.
func (s *Server) eventSources(_ context.Context, w *responder) {
	if s.events == nil {
		w.json(200, []byte("{}"))
		return
	}
	live, replay := s.events.endpoints()
	b := []byte(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":`)
	b = appendString(b, advertised(s.o.Events.Endpoint, live))
	b = append(b, `,"replay_endpoint":`...)
	b = appendStringOrNull(b, advertised(s.o.Events.Replay, replay))
	b = append(b, `,"buffer_steps":`...)
	buffer := s.o.Events.Buffer
	if buffer == 0 {
		buffer = kvRing
	}
	b = appendInt(b, buffer)
	b = append(b, `,"hwm":100000,"max_queue_size":100000,"topic":`...)
	w.json(200, append(appendString(b, s.o.Events.Topic), "}}"...))
}

// advertised is a configured endpoint with the port that was bound.
func advertised(configured, bound string) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(configured, "tcp://"))
	if err != nil || port != "0" {
		return configured
	}
	_, port, _ = net.SplitHostPort(strings.TrimPrefix(bound, "tcp://"))
	return "tcp://" + net.JoinHostPort(host, port)
}

// resetPrefixCache answers POST /reset_prefix_cache, of vLLM's development mode: a refusal is a 200 too. The event
// comes with the next step that runs.
func (s *Server) resetPrefixCache(_ context.Context, w *responder) {
	switch {
	case !s.o.DevMode:
		w.notFound()
	case s.core.ResetCache():
		w.json(200, []byte(`{"success":true}`))
	default:
		w.json(200, []byte(`{"success":false}`))
	}
}
