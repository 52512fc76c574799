package proxy

import (
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/telemetry"
)

// TestDepartureBehindTheEnd: who leaves behind the dialect's own end and in
// front of the last chunk has the whole answer. Several SDKs do so.
func TestDepartureBehindTheEnd(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		transport string
		twin      bool
	}{{"tcp", false}, {"tcp", true}, {"tls", false}, {"unix", false}} {
		for _, b := range dialectBodies {
			for _, d := range departures {
				name := way.transport + "/" + b.name + "/" + d.name
				if way.twin {
					name = "twin/" + name
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f, dial := startOn(t, way.transport, []script{func(x *exchange) {
						x.write(streamHead)
						for _, e := range b.events {
							x.write(chunk(e))
						}
						x.gone()
					}}, func(s *setup) { s.StreamRelay = way.twin })
					nc := dial()
					c := newClient(t, nc)
					c.send(post(b.path, strings.Replace(chatSBody, `"messages"`, `"max_tokens":9,"messages"`, 1)))
					resp := c.head("POST")
					for _, want := range b.events {
						if got := c.event(resp); got != want {
							t.Fatalf("event %q, want %q", got, want)
						}
					}
					d.leave(nc)
					if r := f.ends(append([]telemetry.End{telemetry.EndDone}, d.also...)...)[0]; r.Status != 200 {
						t.Errorf("status %d, want 200", r.Status)
					}
					f.outcomes(verdictOn{"a", engine.OutcomeOK})
				})
			}
		}
	}
}

// TestDepartureBeforeTheEnd: a terminal event that is not whole was not
// delivered.
func TestDepartureBeforeTheEnd(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 1)
	f := start(t, []script{func(x *exchange) {
		x.write(streamHead, chunk(roleEvent), chunk(tokenEvent), chunk(doneEvent[:len(doneEvent)-1]))
		x.taken()
		reached <- struct{}{}
		x.gone()
	}})
	c := f.dial()
	c.send(post(chatPath, chatSBody))
	resp := c.head("POST")
	c.event(resp)
	c.event(resp)
	<-reached
	c.close()
	f.ends(telemetry.EndClientGoneStreaming)
}
