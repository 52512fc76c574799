package sim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// eventServer starts a server with events on free ports.
func eventServer(t *testing.T, change func(*ServerOptions)) *Server {
	t.Helper()
	o := fast()
	o.DevMode = true
	o.Events = EventOptions{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Topic: "kv"}
	if change != nil {
		change(&o)
	}
	return start(t, o)
}

// sent are the batches in the replay buffer, once all that the engine has published are there.
func sent(t *testing.T, s *Server) []kvBatch {
	t.Helper()
	eventually(t, "the batches", func() bool {
		list := s.events.since(0)
		return s.events.sequence() == 0 || len(list) > 0 && list[len(list)-1].seq+1 == s.events.sequence()
	})
	return s.events.since(0)
}

// view is an index of one plain engine's events as a client would keep it: copies of each hash by the tokens up to its
// block's end.
type view struct {
	size   int
	copies map[uint64]int
	text   map[uint64]string
	next   uint64
}

func newView() *view { return &view{copies: map[uint64]int{}, text: map[uint64]string{}} }

// eventsOf decodes a batch.
func eventsOf(b kvBatch) (out []map[string]any) {
	payload, _, err := mpDecode(b.payload)
	if err != nil {
		panic(err)
	}
	for _, e := range payload.([]any)[1].([]any) {
		out = append(out, e.(*mpMap).values)
	}
	return out
}

// take brings the view up to date.
func (v *view) take(batches []kvBatch) {
	for _, b := range batches {
		if b.seq < v.next {
			continue
		}
		v.next = b.seq + 1
		for _, e := range eventsOf(b) {
			v.apply(e)
		}
	}
}

func (v *view) apply(e map[string]any) {
	hashes, _ := e["block_hashes"].([]any)
	switch e["type"] {
	case "AllBlocksCleared":
		clear(v.copies)
	case "BlockRemoved":
		v.copies[hashes[0].(uint64)]--
	default:
		text := ""
		if parent, ok := e["parent_block_hash"].(uint64); ok {
			text = v.text[parent]
		}
		ids := e["token_ids"].([]any)
		v.size = int(e["block_size"].(uint64))
		for i, h := range hashes {
			text += fmt.Sprint(ids[i*v.size : (i+1)*v.size])
			v.text[h.(uint64)] = text
			v.copies[h.(uint64)]++
		}
	}
}

// match is how many of a prompt's tokens are resident.
func (v *view) match(ids []uint32) int {
	held := map[string]bool{}
	for h, n := range v.copies {
		held[v.text[h]] = held[v.text[h]] || n > 0
	}
	text, n := "", 0
	for ; v.size > 0 && (n+1)*v.size < len(ids); n++ {
		var part []any
		for _, id := range ids[n*v.size : (n+1)*v.size] {
			part = append(part, uint64(id))
		}
		if text += fmt.Sprint(part); !held[text] {
			break
		}
	}
	return n * v.size
}

// ask sends a completion of ids and returns the cached tokens it reports.
func ask(t *testing.T, s *Server, ids []uint32, output int, more string, headers ...string) int {
	t.Helper()
	a := call(t, s, post("/v1/completions", fmt.Sprintf(`{%s"prompt":%s,"max_tokens":%d}`, more, appendIDs(nil, ids), output), headers...))
	var r struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != 200 {
		t.Fatalf("%v, %d %s", err, a.status, a.body)
	}
	return r.Usage.Details.Cached
}

// TestServerEventsPredictUsage: over HTTP, what is in the published batches when a request is sent is what its usage
// reports as cached: after forks, evictions (by need and by /sim/evict), a reset and a restart.
func TestServerEventsPredictUsage(t *testing.T) {
	t.Parallel()
	s := eventServer(t, func(o *ServerOptions) {
		o.Core.KVBlocks, o.Listen = 64, ports.Kept(t)
		o.Events.Endpoint, o.Events.Replay = "tcp://"+ports.Kept(t), "tcp://"+ports.Kept(t)
	})
	v, random := newView(), rand.New(rand.NewPCG(1, 2))
	history := [][]uint32{promptOf(0, 60)}
	hits := 0
	for i := range 150 {
		switch i {
		case 60:
			if a := call(t, s, post("/reset_prefix_cache", "{}")); a.body != `{"success":true}` {
				t.Errorf("reset: %+v", a)
			}
			if v.take(sent(t, s)); v.match(history[len(history)-1]) == 0 {
				t.Error("nothing was cached, or the event came before the next step")
			}
			clear(v.copies) // the event comes with the next step only
		case 100:
			s.Restart(0)
			eventually(t, "the restart", func() bool { return !refused(s) && s.State().EventSeq == 0 })
			v = newView()
		}
		base := history[max(0, len(history)-1-random.IntN(5))]
		prompt := append(append([]uint32{}, base[:random.IntN(len(base)+1)]...), promptOf(i, 1+random.IntN(90))...)
		prompt = prompt[:min(len(prompt), 400)]
		v.take(sent(t, s))
		want := v.match(prompt)
		got := ask(t, s, prompt, 1+random.IntN(30), "")
		if got != want {
			t.Fatalf("request %d: %d cached, the events said %d", i, got, want)
		}
		if got > 0 {
			hits++
		}
		if random.IntN(8) == 0 {
			call(t, s, post("/sim/evict", `{"blocks":5}`))
			ask(t, s, promptOf(1000+i, 2), 1, "") // a step, so that the evictions are published
		}
		history = append(history, prompt)
	}
	for h, n := range v.copies {
		if n < 0 {
			t.Errorf("%d copies of %x", n, h)
		}
	}
	if hits < 50 {
		t.Errorf("only %d hits", hits)
	}
}

// TestRestartBeginsTheSequence: number 0 comes again after a restart, on the same ports, with other hashes unless they
// are fixed; while the engine is away the port is closed.
func TestRestartBeginsTheSequence(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		s := eventServer(t, func(o *ServerOptions) {
			o.Core.FixedHashes, o.Listen = fixed, ports.Kept(t)
			o.Events.Endpoint, o.Events.Replay = "tcp://"+ports.Kept(t), "tcp://"+ports.Kept(t)
		})
		live, replay := s.EventsAddr()
		first := func() uint64 {
			ask(t, s, promptOf(1, 40), 1, "")
			return eventsOf(sent(t, s)[0])[0]["block_hashes"].([]any)[0].(uint64)
		}
		before := first()
		if ask(t, s, promptOf(2, 40), 1, ""); s.State().EventSeq != 2 || sent(t, s)[0].seq != 0 {
			t.Errorf("sequence %d", s.State().EventSeq)
		}
		s.Restart(3 * time.Second)
		if _, err := net.DialTimeout("tcp", live, time.Second); err == nil {
			t.Error("the event port is open while the engine is away")
		}
		eventually(t, "the restart", func() bool { return !refused(s) })
		if l, r := s.EventsAddr(); l != live || r != replay || s.State().EventSeq != 0 {
			t.Errorf("after the restart on %s and %s, sequence %d", l, r, s.State().EventSeq)
		}
		for _, addr := range []string{live, replay} {
			c := dial(t, addr)
			if _, err := c.Read(make([]byte, 1)); err != nil { // a ZMTP greeting
				t.Errorf("%s: %v", addr, err)
			}
		}
		if after := first(); (after == before) != fixed {
			t.Errorf("fixed %v: hashes %x and %x", fixed, before, after)
		}
	}
}

// TestEventSources: vLLM's route, with the ports that were bound.
func TestEventSources(t *testing.T) {
	t.Parallel()
	s := eventServer(t, func(o *ServerOptions) { o.Events.Endpoint, o.Events.Buffer = "tcp://*:0", 77 })
	live, replay := s.EventsAddr()
	_, port, err := net.SplitHostPort(live)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:` + port + `","replay_endpoint":"tcp://` + replay +
		`","buffer_steps":77,"hwm":100000,"max_queue_size":100000,"topic":"kv"}}`
	if a := call(t, s, get("/kv_event_sources")); a.status != 200 || a.body != want {
		t.Errorf("%d %s, wanted %s", a.status, a.body, want)
	}
	plain := start(t, fast())
	if a := call(t, plain, get("/kv_event_sources")); a.status != 200 || a.body != "{}" {
		t.Errorf("without events: %+v", a)
	}
	if a := call(t, plain, post("/reset_prefix_cache", "{}")); a.status != 404 {
		t.Errorf("without development mode: %+v", a)
	}
}

// TestEventFields: what a request brings along is in its events: salt, adapter, session.
func TestEventFields(t *testing.T) {
	t.Parallel()
	s := eventServer(t, func(o *ServerOptions) { o.Adapters, o.Events.ByteHashes = "tuned", true })
	ask(t, s, promptOf(1, 40), 1, `"cache_salt":"tenant","session_id":"body",`)
	ask(t, s, promptOf(2, 40), 1, `"model":"tuned",`, "X-Session-ID: head\r\n")
	var got []string
	for _, b := range sent(t, s) {
		e := eventsOf(b)[0]
		got = append(got, fmt.Sprintf("%v %v %v", e["extra_keys"], e["lora_name"], e["session_id"]))
		h := e["block_hashes"].([]any)[0].([]byte)
		if len(h) != 32 || binary.BigEndian.Uint64(h[24:]) == 0 {
			t.Errorf("hash %x", h)
		}
	}
	if want := "[[[tenant] <nil>] <nil> body [[tuned] [tuned]] tuned head]"; fmt.Sprint(got) != want {
		t.Errorf("%v, wanted %s", got, want)
	}
}

// TestEventFaults: a gap keeps the number and the replay, a stop lasts, a lie is seen in the usage alone.
func TestEventFaults(t *testing.T) {
	t.Parallel()
	s := eventServer(t, nil)
	fates := func() (out []kvFate) {
		for _, b := range sent(t, s) {
			out = append(out, b.fate)
		}
		return out
	}
	arm(t, s, `{"kind":"event-gap","count":2}`)
	for i := range 3 {
		ask(t, s, promptOf(i, 40), 1, "")
	}
	arm(t, s, `{"kind":"event-stop"}`)
	for i := range 2 {
		ask(t, s, promptOf(10+i, 40), 1, "")
	}
	if !s.faults.eventStop() {
		t.Error("the stop was used up")
	}
	call(t, s, post("/sim/clear", ""))
	ask(t, s, promptOf(20, 40), 1, "")
	if got := fmt.Sprint(fates()); got != fmt.Sprint([]kvFate{kvLose, kvLose, kvSend, kvStalled, kvStalled, kvSend}) {
		t.Errorf("fates %s", got)
	}
	arm(t, s, `{"kind":"event-stop","seconds":0.02}`)
	eventually(t, "the end of the stop", func() bool { return !s.faults.eventStop() })
	if f := s.State().Faults; len(f) != 0 {
		t.Errorf("faults %v", f)
	}

	v := newView()
	arm(t, s, `{"kind":"event-lie","count":1}`)
	prompt := promptOf(30, 100)
	ask(t, s, prompt, 1, "")
	v.take(sent(t, s))
	if claimed, got := v.match(prompt), ask(t, s, prompt, 1, ""); claimed != 96 || got != 0 {
		t.Errorf("%d claimed, %d cached: no lie", claimed, got)
	}
	if got := ask(t, s, prompt, 1, ""); got != 96 {
		t.Errorf("%d cached after the lie", got)
	}
}

// TestEventPortsTaken: a server whose event port is taken leaves nothing open.
func TestEventPortsTaken(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := fast()
	o.Listen, o.Control = "127.0.0.1:0", "127.0.0.1:0"
	for _, e := range []EventOptions{
		{Endpoint: "tcp://" + ln.Addr().String()}, {Replay: "tcp://127.0.0.1:0"}, {Endpoint: "tcp://127.0.0.1:0", Form: "xml"},
		{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://" + ln.Addr().String()},
	} {
		o.Events = e
		if s, err := NewServer(o); err == nil || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%+v: %v, %v", e, s, err)
		}
	}
}
