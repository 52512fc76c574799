package faults

import (
	wirebin "encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// abused is an engine whose events are bad, and what it holds.
type abused struct {
	t   *testing.T
	r   *rig.Ramjet
	p   *rig.Publisher
	seq uint64 // of the next batch
	n   int    // prompts published since the last clear, of two blocks each
	k   int    // the first of them
}

// next is the next batch: a prompt of two blocks.
func (a *abused) next() rig.Frames {
	f := rig.Frames{Seq: a.seq, Payload: rig.Batch(a.prompt(a.k + a.n))}
	a.seq++
	a.n++
	return f
}

func (a *abused) prompt(k int) rig.Pairs {
	return rig.Stored(nil, rig.HashesOf(k, 2), rig.PromptIDs(k, 32))
}

// exact waits until the engine is believed and holds what was published.
func (a *abused) exact(what string) {
	a.t.Helper()
	rig.Eventually(a.t, 2*rig.Patience, what, func() string {
		if e := a.r.EngineView("a"); e.Trust != "exact" || e.Blocks() != 2*a.n {
			return fmt.Sprintf("%s (%s), %d blocks, want %d", e.Trust, e.TrustReason, e.Blocks(), 2*a.n)
		}
		return ""
	})
}

// doubted waits until it is not, and returns the reason.
func (a *abused) doubted(what string) (reason string) {
	a.t.Helper()
	rig.Eventually(a.t, 2*rig.Patience, what, func() string {
		e := a.r.EngineView("a")
		if reason = e.TrustReason; e.Trust == "exact" {
			return "exact: " + reason
		}
		return ""
	})
	a.served(false)
	return reason
}

// served sends a request, and says whether it went by exact keys.
func (a *abused) served(exact bool) {
	a.t.Helper()
	c := a.r.Asker(a.t)
	defer c.Close()
	p := c.Post("/v1/completions", a.r.ID("ids"), rig.IdsBody(rig.PromptIDs(a.k, 40)))
	d := a.r.Explain(a.t, p.ID)
	if !p.Ok() || (d.Keys == "exact") != exact {
		a.t.Errorf("%v; keys %s (%s)", &p, d.Keys, d.Note())
	}
	if want := 32; exact && p.Match != want {
		a.t.Errorf("match %d, want %d", p.Match, want)
	}
}

// clear publishes that the cache is empty, which proves any record.
func (a *abused) clear() {
	a.t.Helper()
	a.p.Send(rig.Frames{Seq: a.seq, Payload: rig.Batch(allCleared)})
	a.seq++
	a.k, a.n = a.k+a.n+1, 0
	a.p.Send(a.next())
	a.exact("exact after a clear")
	a.served(true)
}

func (a *abused) counted(name string, labels ...string) int {
	return int(a.r.Metrics().Sum(name, append([]string{"engine", "a"}, labels...)...))
}

// TestB7Row36Events sends what events must not be: gaps, reordering, duplicates,
// an old epoch, garbage, cut and huge messages. Nothing of it ends Ramjet or a
// request; the engine is not believed while its record may be wrong, and is
// again when the replay has what was missed or its cache was cleared.
func TestB7Row36Events(t *testing.T) {
	t.Parallel()
	r, engines, pubs := rig.Scripted(t, 1<<16, rig.QuickHealth...)
	pubs[1].Send(rig.Frames{Seq: 0, Payload: rig.Batch(rig.Stored(nil, rig.HashesOf(900_000, 1), rig.PromptIDs(900_000, 16)))})
	a := &abused{r: r, p: pubs[0], k: 1}
	engines[0].Hits(func([]int) int { return 32 }) // only prompts whose first two blocks it has are sent
	a.t = t
	a.p.Send(a.next())
	a.p.Send(a.next())
	a.exact("the first batches")
	a.served(true)
	for _, c := range []struct {
		name string
		play func(a *abused)
	}{
		{"a duplicate is passed over", func(a *abused) {
			f := a.next()
			a.p.Send(f)
			a.p.Raw(f.Message())
			a.p.Send(a.next())
			a.exact("after a duplicate")
		}},
		{"a gap is healed by the replay", func(a *abused) {
			gaps := a.counted("ramjet_kv_gaps_total")
			a.p.Keep(a.next())
			a.p.Send(a.next())
			a.exact("healed")
			if n := a.counted("ramjet_kv_gaps_total"); n != gaps+1 {
				a.t.Errorf("%d gaps counted, want 1", n-gaps)
			}
		}},
		{"two batches in the wrong order", func(a *abused) {
			first, second := a.next(), a.next()
			a.p.Keep(first)
			a.p.Keep(second)
			a.p.Raw(second.Message())
			a.p.Raw(first.Message())
			a.exact("in order")
		}},
		{"a gap that nothing heals", func(a *abused) {
			a.p.Set(nil, true)
			a.next()
			a.p.Send(a.next())
			if reason := a.doubted("a gap"); !strings.Contains(reason, "gap") && !strings.Contains(reason, "lost") && !strings.Contains(reason, "unanswered") {
				a.t.Errorf("the reason is %q", reason)
			}
			a.p.Set(nil, false)
		}},
		{"garbage for a payload", func(a *abused) {
			odd := a.counted("ramjet_kv_events_total", "kind", "odd")
			a.p.Send(rig.Frames{Seq: a.seq, Payload: []byte("\xc1 is no msgpack")})
			a.seq++
			a.doubted("garbage")
			if n := a.counted("ramjet_kv_events_total", "kind", "odd"); n != odd+1 {
				a.t.Errorf("%d odd events counted, want 1", n-odd)
			}
		}},
		{"a payload that is cut", func(a *abused) {
			f := a.next()
			f.Payload = f.Payload[:len(f.Payload)-9]
			a.p.Send(f)
			a.doubted("a cut payload")
		}},
		{"a list that claims four billion events", func(a *abused) {
			a.p.Send(rig.Frames{Seq: a.seq, Payload: []byte{0x93, 0xcb, 0x41, 0xd9, 0, 0, 0, 0, 0, 0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0}})
			a.seq++
			a.doubted("a list too long")
		}},
		{"an odd event costs itself alone", func(a *abused) {
			unknown := a.counted("ramjet_kv_events_total", "kind", "unknown")
			bad := rig.Pairs{"type", "BlockStored", "block_hashes", "none", "block_size", 16}
			first, second := a.prompt(a.k+a.n), a.prompt(a.k+a.n+1)
			a.p.Send(rig.Frames{Seq: a.seq, Payload: rig.Batch(first, rig.Pairs{"type", "BlockMoved", "to", 7}, bad, second)})
			a.seq++
			a.n += 2
			a.doubted("an odd event")
			if e := a.r.EngineView("a"); e.Blocks() != 2*a.n {
				a.t.Errorf("%d blocks, want %d: the rest of the batch", e.Blocks(), 2*a.n)
			}
			if n := a.counted("ramjet_kv_events_total", "kind", "unknown"); n != unknown+1 {
				a.t.Errorf("%d unknown events counted, want 1", n-unknown)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.t = t
			c.play(a)
			if c.name != "an odd event costs itself alone" { // that holds trust down for a while
				a.clear()
			}
		})
	}
	if n := r.RSS(); n > 300<<20 {
		t.Errorf("%d MB resident", n>>20)
	}
}

// TestB7Row36Frames sends what is no ZMTP: a frame of 1 GB, bytes that are no
// frame, a second part that never comes. The connection ends and another one
// begins; the record is whole again by replay.
func TestB7Row36Frames(t *testing.T) {
	t.Parallel()
	r, engines, pubs := rig.Scripted(t, 1<<16, rig.QuickHealth...)
	pubs[1].Send(rig.Frames{Seq: 0, Payload: rig.Batch(rig.Stored(nil, rig.HashesOf(900_000, 1), rig.PromptIDs(900_000, 16)))})
	a := &abused{t: t, r: r, p: pubs[0], k: 1}
	engines[0].Hits(func([]int) int { return 32 })
	a.p.Send(a.next())
	a.exact("the first batch")
	for _, c := range []struct{ name, bytes string }{
		{"a frame of 1 GB", "\x02\x00\x00\x00\x00\x40\x00\x00\x00abc"},
		{"a frame of 2^63 bytes", "\x03\x80\x00\x00\x00\x00\x00\x00\x00abc"},
		{"flags that do not exist", "\xf8\x05hello"},
		{"another protocol", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"},
		{"a command that ends too early", "\x04\x05\x09SUBS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.t = t
			a.p.Audience()
			before := subscribed(a.p)
			a.p.Raw([]byte(c.bytes))
			a.p.Keep(a.next())
			rig.Eventually(t, 2*rig.Patience, "a new connection", func() string {
				if subscribed(a.p) == before {
					return "none"
				}
				return ""
			})
			a.exact("again")
			a.served(true)
		})
	}
	t.Run("an old epoch", func(t *testing.T) {
		a.t = t
		// The process is another one: its numbers begin anew, on the same connection as behind a forwarder.
		a.p.Audience()
		before := a.p.Replays()
		a.p.Send(a.next()) // live on this connection: what a replay brought has no place in its sequence
		// The first live batch behind a replay is looked for in a second one, which the new process would deny.
		rig.Eventually(t, 2*rig.Patience, "the batch is confirmed", func() string {
			if a.p.Replays() == before {
				return "not asked"
			}
			return ""
		})
		a.exact("before")
		a.seq, a.k, a.n = 0, a.k+a.n+1, 0
		a.p.Set(nil, false)
		a.p.Send(a.next())
		rig.Eventually(t, 2*rig.Patience, "the restart is seen", func() string {
			if !r.Logged("what was known of the engine's cache is dropped", `"engine":"a"`) {
				return "not logged"
			}
			return ""
		})
		a.exact("the new process")
		rig.Eventually(t, 4*rig.Patience, "ready again", func() string { return map[bool]string{false: "not ready"}[r.EngineState("a") == "ready"] })
		a.served(true)
	})
	if n := r.RSS(); n > 300<<20 {
		t.Errorf("%d MB resident", n>>20)
	}
}

// subscribed is how many subscribers have come, with those that left.
func subscribed(p *rig.Publisher) int {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Dials
}

func removed(hashes ...uint64) rig.Pairs {
	h := make([]any, len(hashes))
	for i := range hashes {
		h[i] = hashes[i]
	}
	return rig.Pairs{"type", "BlockRemoved", "block_hashes", h, "medium", "GPU"}
}

var allCleared = rig.Pairs{"type", "AllBlocksCleared"}

// stamp writes the present time into a message made of a batch without a topic:
// its payload begins with the list's head and the float's.
func stamp(message []byte) {
	const at = 2 + 2 + 8 + 1 + 8 + 3 + 1 // of topic, number, the payload's head and what is in front of the time
	if message[at-1] != 0xcb || message[12] != 2 {
		panic("BUG: not a long batch without a topic")
	}
	wirebin.BigEndian.PutUint64(message[at:], math.Float64bits(float64(time.Now().UnixNano())/1e9))
}
