package kvevents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Source is what one data-parallel rank of an engine says about its events.
type Source struct {
	Rank   int
	Events Endpoint
	Replay Endpoint // zero if there is none
	Topic  string   // what it publishes under; a subscription to it takes its events and those of longer topics
	// ConnectsOut says that the publisher connects to Endpoint, where somebody has to listen: vLLM binds only an
	// endpoint with `*`, `::`, ipc:// or inproc://, and says nothing when nobody is there. Events is the endpoint to
	// listen at then.
	ConnectsOut bool
	BufferSteps int // batches that the ring holds
}

// ParseSources reads the body of vLLM's GET /kv_event_sources (0.32; one member for each data-parallel rank) as seen
// from engineHost, the host that the engine is reached at: `*` and loopback addresses of an engine mean that host. Ranks
// that publish nothing are left out; the result is in the order of ranks. It is empty if events are off.
func ParseSources(body []byte, engineHost string) ([]Source, error) {
	var ranks map[string]sourceJSON
	if err := json.Unmarshal(body, &ranks); err != nil {
		return nil, fmt.Errorf("cannot read the event sources: %w", err)
	}
	var sources []Source
	for key, v := range ranks {
		rank, err := strconv.Atoi(key)
		if err != nil || rank < 0 {
			return nil, fmt.Errorf("cannot read the event sources: %.40q is no rank", key)
		}
		if !v.Enabled || v.Publisher == "null" {
			continue
		}
		s, err := v.source(rank, engineHost)
		if err != nil {
			return nil, fmt.Errorf("cannot read the event source of rank %d: %w", rank, err)
		}
		sources = append(sources, s)
	}
	slices.SortFunc(sources, func(a, b Source) int { return cmp.Compare(a.Rank, b.Rank) })
	return sources, nil
}

// sourceJSON is what of vLLM's KVEventsConfig (vllm/config/kv_events.py) concerns a subscriber.
type sourceJSON struct {
	Enabled     bool   `json:"enable_kv_cache_events"`
	Publisher   string `json:"publisher"`
	Endpoint    string `json:"endpoint"`
	Replay      string `json:"replay_endpoint"`
	Topic       string `json:"topic"`
	BufferSteps int    `json:"buffer_steps"`
}

func (v *sourceJSON) source(rank int, engineHost string) (s Source, err error) {
	s = Source{Rank: rank, Topic: v.Topic, BufferSteps: v.BufferSteps}
	s.ConnectsOut = !strings.Contains(v.Endpoint, "*") && !strings.Contains(v.Endpoint, "::") && !strings.HasPrefix(v.Endpoint, "ipc://")
	if s.Events, err = engineEndpoint(v.Endpoint, engineHost); err != nil {
		return s, err
	}
	if s.ConnectsOut {
		// Where the engine dials to is where somebody has to listen.
		_, port, err := net.SplitHostPort(s.Events.Address)
		if err != nil {
			return s, err
		}
		s.Events = Endpoint{Network: "tcp", Address: net.JoinHostPort("", port), Bind: true}
	}
	if v.Replay != "" {
		// The replay socket always binds (vllm/distributed/kv_events.py).
		s.Replay, err = engineEndpoint(v.Replay, engineHost)
	}
	return s, err
}

// engineEndpoint turns an address that an engine listens at into one that we can dial.
func engineEndpoint(text, engineHost string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil || e.Network != "tcp" {
		return e, err
	}
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return Endpoint{}, err
	}
	if e.Bind || loopback(host) && engineHost != "" {
		host = engineHost
	}
	return Endpoint{Network: "tcp", Address: net.JoinHostPort(host, port)}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
