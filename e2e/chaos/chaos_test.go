package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestChaos runs one scenario and judges it by the ledger.
func TestChaos(t *testing.T) {
	usual := 10 * time.Second
	if testing.Short() {
		usual = 4 * time.Second
	}
	length := duration(t, "RAMJET_CHAOS", usual)
	seed := rand.Uint64()
	if text := os.Getenv("RAMJET_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("cannot read RAMJET_CHAOS_SEED: %v", err)
		}
	}
	s := fullScenario(seed, length)
	t.Logf("%v", s)
	found := run(t, s)
	if len(found) == 0 {
		return
	}
	t.Errorf("seed %d broke %d promises:", seed, len(found))
	for _, v := range found[:min(len(found), 20)] {
		t.Errorf("  %v", v)
	}
	rules := map[string]bool{}
	for _, v := range found {
		rules[v.rule] = true
	}
	least := shrink(s, shrinkTries(), func(smaller scenario) bool {
		if end, ok := t.Deadline(); ok && time.Until(end) < smaller.length+shrinkRoom {
			return false // the process would end before the report
		}
		again := run(t, smaller)
		return slices.ContainsFunc(again, func(v violation) bool { return rules[v.rule] })
	})
	t.Errorf("the least scenario that still failed:\n%v", least)
}

// world is one run.
type world struct {
	testing.TB
	scenario
	sims  []*sim
	wires []*wire
	r     *ramjet
	truth *oracle
	notes *witness

	mu       sync.Mutex // guards the following
	outcomes []outcome
	done     map[string]int // deeds by kind
}

// run plays a scenario from an empty world to the ledger.
func run(t testing.TB, s scenario) []violation {
	t.Helper()
	w := &world{TB: t, scenario: s, notes: newWitness(), done: map[string]int{}}
	defer w.tearDown()
	w.truth = newOracle(t)
	f := newFates(s)
	for i := range s.engines {
		flags := []string{"--speed=25", "--kv-blocks=2000", "--profile=" + []string{"mtp", "standard"}[i%2]}
		e := newSim(t, string(rune('a'+i)), true, flags...)
		p, err := newWire(e, f, w.notes)
		if err != nil {
			t.Fatalf("cannot make a wire: %v", err)
		}
		w.sims, w.wires = append(w.sims, e), append(w.wires, p)
	}
	w.r = startRamjet(t, binary(t, os.Getenv("RAMJET_CHAOS_RACE") == "1"), w.addresses(), modelFolder(t), "info")
	if last := w.r.awaitAll(30 * time.Second); last != "" {
		t.Fatalf("ramjet does not become ready: %s\n%s", last, w.r.text())
	}
	w.calm("before")
	before := w.r.figures(w.addresses())
	before.upstream = 2 * s.engines // one pooled and one of the prober each

	var load sync.WaitGroup
	sdks := w.startSDKs()
	ctx, cancel := context.WithTimeout(context.Background(), s.length)
	defer cancel()
	w.clients(ctx, &load)
	load.Go(func() { sdks.run(ctx, w.keep) })
	w.play(ctx)
	<-ctx.Done()
	load.Wait()
	w.heal()
	return w.judge(before)
}

func (w *world) addresses() (list []string) {
	for _, p := range w.wires {
		list = append(list, p.addr())
	}
	return list
}

func (w *world) tearDown() {
	for _, s := range w.sims {
		s.signal(syscall.SIGCONT)
	}
	if w.r != nil {
		w.r.stopOnce()
	}
	for _, p := range w.wires {
		p.close()
	}
}

// modelFolder returns a folder with the files of the engines' model.
func modelFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if out, err := exec.Command(binary(t, false), "sim", "--write-model", dir).CombinedOutput(); err != nil {
		t.Fatalf("cannot write the model: %v\n%s", err, out)
	}
	return dir
}

// calm sends some requests one after another, each of which must succeed.
func (w *world) calm(when string) {
	w.Helper()
	quiet := w.scenario
	quiet.leaves = nil
	c := &client{address: w.r.public}
	defer c.close()
	for i := range 4 * w.engines {
		a := newAsk(quiet, fmt.Sprintf("%s%s-%d", idPrefix, when, i))
		a.slow = false
		o := c.do(a)
		w.keep(o)
		if !o.Success {
			w.Errorf("%s the storm: %s", when, &o)
		}
	}
}

func (w *world) keep(o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, o)
}

// clients send until ctx ends, and end what they began.
func (w *world) clients(ctx context.Context, load *sync.WaitGroup) {
	for k := range w.scenario.clients {
		load.Go(func() {
			c := &client{address: w.r.public}
			defer c.close()
			for n := 0; ctx.Err() == nil; n++ {
				o := c.do(newAsk(w.scenario, fmt.Sprintf("%s%d-%d", idPrefix, k, n)))
				w.keep(o)
				if o.Status == 0 || o.Status >= 500 {
					time.Sleep(50 * time.Millisecond) // as a client that backs off
				}
			}
		})
	}
}

// play does what the timetable says.
func (w *world) play(ctx context.Context) {
	began := time.Now()
	var acting sync.WaitGroup
	for _, d := range w.timetable() {
		select {
		case <-time.After(d.at - time.Since(began)):
		case <-ctx.Done():
			acting.Wait()
			return
		}
		acting.Go(func() {
			w.act(d)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.done[d.kind]++
		})
	}
	acting.Wait()
}

// act does one deed and undoes it.
func (w *world) act(d deed) {
	s, p := w.sims[d.engine], w.wires[d.engine]
	name := w.r.engines[d.engine]
	control := func(path, format string, args ...any) { _ = s.control(path, fmt.Sprintf(format, args...)) } // it may be down
	switch d.kind {
	case "kill", "term":
		s.end(map[string]syscall.Signal{"kill": syscall.SIGKILL, "term": syscall.SIGTERM}[d.kind])
		time.Sleep(d.lasts)
		if err := s.start(); err != nil {
			w.Errorf("engine %s does not come back: %v", s.name, err)
		}
	case "freeze":
		s.signal(syscall.SIGSTOP)
		time.Sleep(d.lasts)
		s.signal(syscall.SIGCONT)
	case "restart":
		control("/sim/restart", `{"seconds":%v}`, d.lasts.Seconds())
	case "evict":
		control("/sim/evict", `{"blocks":%d}`, 100*d.count)
	case "gap":
		control("/sim/fault", `{"kind":"event-gap","count":%d}`, d.count)
	case "stop-events":
		control("/sim/fault", `{"kind":"event-stop","seconds":%v}`, d.lasts.Seconds())
	case "lie":
		control("/sim/fault", `{"kind":"event-lie","count":%d}`, d.count)
	case "hold-wire":
		p.stop()
		time.Sleep(d.lasts)
		p.release()
	case "drop-wire":
		p.drop()
	case "drain", "eject":
		w.r.post("/api/v1/engines/" + name + "/" + d.kind)
		time.Sleep(d.lasts)
		w.r.post("/api/v1/engines/" + name + "/ready")
	case "reload":
		w.r.configure(func() { w.r.tie = time.Duration(10+10*d.count) * time.Millisecond })
		w.r.reload()
	case "remove":
		w.remove(d)
	default:
		kind, _ := strings.CutPrefix(d.kind, "fault-")
		control("/sim/fault", `{"kind":%q,"count":%d,"seconds":%v,"after_tokens":%d,"status":%d}`, kind, d.count, d.lasts.Seconds(), d.count*3-4, 500+d.count%4)
		if kind == "die" || kind == "hung" {
			time.Sleep(d.lasts)
			control("/sim/clear", "{}")
			if err := s.start(); err != nil {
				w.Errorf("engine %s does not come back: %v", s.name, err)
			}
		}
	}
}

// remove takes an engine out of the configuration and puts it back. One always
// stays.
func (w *world) remove(d deed) {
	removed := false
	w.r.configure(func() {
		left := 0
		for _, away := range w.r.away {
			if !away {
				left++
			}
		}
		if removed = left > 1 && !w.r.away[d.engine]; removed {
			w.r.away[d.engine] = true
		}
	})
	if !removed {
		return
	}
	w.r.reload()
	time.Sleep(d.lasts)
	w.r.configure(func() { w.r.away[d.engine] = false })
	w.r.reload()
}

// heal ends all troubles and gives every engine a new process, so that what is
// known of its cache can be compared with it.
func (w *world) heal() {
	for i, s := range w.sims {
		w.wires[i].release()
		s.end(syscall.SIGKILL)
		if err := s.start(); err != nil {
			w.Fatalf("engine %s does not come back: %v", s.name, err)
		}
		w.r.post("/api/v1/engines/" + w.r.engines[i] + "/ready")
	}
	if last := w.r.awaitAll(40 * time.Second); last != "" {
		w.Errorf("after the storm: %s\n%s", last, w.r.text())
	}
	w.calm("after")
	known := 0
	for _, e := range w.r.topology() {
		known += e.Blocks
	}
	if known == 0 {
		w.Errorf("after %d calm requests the index holds nothing", 4*w.engines)
	}
	// Copies of one block count once in the index and twice in a cache, so the
	// two are compared when everything has been evicted.
	for _, s := range w.sims {
		if err := s.control("/sim/evict", `{"blocks":1000000}`); err != nil {
			w.Errorf("engine %s does not evict: %v", s.name, err)
		}
		// Events leave with a step (vLLM 0.32), so there must be one; this
		// prompt fills no block.
		if err := s.control("/v1/completions", `{"model":"m","prompt":"x","max_tokens":1}`); err != nil {
			w.Errorf("engine %s does not answer: %v", s.name, err)
		}
	}
}

// judge takes the last measures and opens the books.
func (w *world) judge(before figures) []violation {
	b := &books{outcomes: w.outcomes, witness: w.notes, expected: w.truth.text, before: before, body: func(o *outcome) []byte {
		if o.SDK {
			return o.Request
		}
		return newAsk(w.scenario, o.ID).body // rather than kept, a million times
	}}
	// What is pooled idles out in 4 s, and the log is written beside.
	_ = poll(12*time.Second, func() string {
		b.after = w.r.figures(w.addresses())
		b.lines, b.output, b.after.linesInLog = w.r.read()
		b.after.cached = map[string]int{}
		for _, s := range w.sims {
			st, err := s.state()
			if err != nil {
				return err.Error()
			}
			b.after.cached[s.name] = st.Blocks
		}
		for _, v := range b.judgeEnd() {
			return v.String()
		}
		return ""
	})
	found := b.judge()
	if len(found) > 0 {
		w.Logf("engines: %+v", w.r.topology())
		w.Logf("the log's end:\n%s", w.r.text())
	}
	w.summary(b)
	return found
}

// judgeEnd is the part of the judgement that may need some seconds to come
// true.
func (b *books) judgeEnd() (found []violation) {
	report := func(rule, format string, args ...any) {
		found = append(found, violation{rule, fmt.Sprintf(format, args...)})
	}
	b.judgeFigures(report)
	b.judgeLines(report)
	return found
}

func (w *world) summary(b *books) {
	ended, codes := map[string]int{}, map[int]int{}
	for _, l := range b.lines {
		ended[l.End]++
	}
	success, sdk, left := 0, 0, 0
	for i := range b.outcomes {
		o := &b.outcomes[i]
		codes[o.Status]++
		if o.Success {
			success++
		}
		if o.SDK {
			sdk++
		}
		if o.Left != "" {
			left++
		}
	}
	w.Logf("%d requests (%d of SDKs), %d succeeded, %d clients left; ends %v; statuses %v", len(b.outcomes), sdk, success, left, ended, codes)
	w.Logf("deeds %v; strikes on the wire %v; %d requests tainted", w.done, w.notes.strikes, len(w.notes.tainted))
	w.Logf("before: %s; after: %s, resident %d MiB", &b.before, &b.after, w.r.rss()>>20)
	if success*4 < len(b.outcomes) {
		w.Errorf("only %d of %d requests succeeded", success, len(b.outcomes))
	}
}

// shrinkRoom is what a run takes beside its length: engines that come back, the
// last answers, the judgement, and as much again for a slow machine.
const shrinkRoom = 3 * time.Minute

// shrinkTries is how many further runs a failure may cost.
func shrinkTries() int {
	if n, err := strconv.Atoi(os.Getenv("RAMJET_CHAOS_SHRINK")); err == nil {
		return n
	}
	return 12
}
