package kvevents

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/ports"
	"ramjet/telemetry"
)

// libzmq is a process with real libzmq sockets: testdata/zmq_peer.py.
type libzmq struct {
	t              *testing.T
	events, replay string
	topic          string
	options        []string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startLibzmq starts an engine's sockets on free ports, and skips the test where Python's pyzmq is not installed.
func startLibzmq(t *testing.T, topic string, options ...string) *libzmq {
	t.Helper()
	z := &libzmq{t: t, topic: topic, options: options}
	z.events, z.replay = "tcp://"+ports.Kept(t), "tcp://"+ports.Kept(t)
	z.start()
	t.Cleanup(z.kill)
	return z
}

func (z *libzmq) start() {
	z.t.Helper()
	python, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		z.t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		z.t.Skip("the environment .venv is missing: `make test` makes it")
	}
	z.cmd = exec.Command(python, append([]string{"testdata/zmq_peer.py", z.events, z.replay, z.topic}, z.options...)...)
	z.cmd.Stderr = os.Stderr
	if z.in, err = z.cmd.StdinPipe(); err != nil {
		z.t.Fatal(err)
	}
	out, err := z.cmd.StdoutPipe()
	if err != nil {
		z.t.Fatal(err)
	}
	z.out = bufio.NewReader(out)
	if err := z.cmd.Start(); err != nil {
		z.t.Fatal(err)
	}
	switch line, err := z.out.ReadString('\n'); {
	case strings.HasPrefix(line, "no pyzmq"):
		z.t.Skip("Python's package pyzmq is missing: `make test` installs it")
	case err != nil || !strings.HasPrefix(line, "ready 4"):
		z.t.Fatalf("zmq_peer.py says %q, %v", line, err)
	}
}

// kill ends the process as a crash does.
func (z *libzmq) kill() {
	if z.cmd == nil {
		return
	}
	_ = z.cmd.Process.Kill()
	_ = z.cmd.Wait()
	z.cmd = nil
}

func (z *libzmq) do(command string, args ...any) {
	z.t.Helper()
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			command += " " + hex.EncodeToString(b)
			continue
		}
		command += fmt.Sprint(" ", a)
	}
	if _, err := io.WriteString(z.in, command+"\n"); err != nil {
		z.t.Fatal(err)
	}
	if line, err := z.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ok") {
		z.t.Fatalf("%.40s: %q, %v", command, line, err)
	}
}

func (z *libzmq) signal(s syscall.Signal) {
	z.t.Helper()
	if err := z.cmd.Process.Signal(s); err != nil {
		z.t.Fatal(err)
	}
}

// followLibzmq runs a feed on real sockets until the test ends.
func followLibzmq(t *testing.T, z *libzmq, change func(*Options)) *running {
	t.Helper()
	events, err := ParseEndpoint(z.events)
	if err != nil {
		t.Fatal(err)
	}
	replay, err := ParseEndpoint(z.replay)
	if err != nil {
		t.Fatal(err)
	}
	b := newBook()
	o := Options{Name: "a", Residency: b, Events: events, Replay: replay}
	if change != nil {
		change(&o)
	}
	f := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &running{Feed: f, t: t, store: b}
}

// becomes waits for a condition, which the test's real sockets reach in their own time.
func (r *running) becomes(what string, limit time.Duration, ok func() bool) {
	r.t.Helper()
	end := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(end) {
			trust, reason, _ := r.Trust()
			r.t.Fatalf("not within %s: %s; trust %s: %s; %+v", limit, what, trust, reason, r.Stats())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (r *running) trusts(want telemetry.Trust, words string) func() bool {
	return func() bool {
		trust, reason, _ := r.Trust()
		return trust == want && strings.Contains(reason, words)
	}
}

func (r *running) has(hashes ...uint64) func() bool {
	return func() bool { return r.store.equal(hashes) == "" }
}

// patient is ten times what any of these steps takes here.
const patient = 20 * time.Second

func TestLibzmqLateSubscriber(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"framing=3", "framing=4"} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			z := startLibzmq(t, "kv", framing)
			for h := range uint64(20) {
				z.do("pub", stored(h))
			}
			r := followLibzmq(t, z, nil)
			r.becomes("exact", patient, r.trusts(exact, ""))
			r.becomes("the record", patient, r.has(upTo(20)...))
			z.do("pub", removed(3))
			z.do("lose", removed(4))
			z.do("pub", removed(5))
			r.becomes("live and repaired", patient, r.has(append(upTo(3), upTo(20)[6:]...)...))
			r.becomes("exact", patient, r.trusts(exact, ""))
			if s := r.Stats(); s.Gaps > 1 || s.Restarts != 0 || s.Dials != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestLibzmqPublisherKilledAndBack(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{time.Second, 6 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			if away > time.Second && testing.Short() {
				t.Skip("takes seconds")
			}
			z := startLibzmq(t, "kv")
			r := followLibzmq(t, z, nil)
			r.becomes("exact", patient, r.trusts(exact, ""))
			z.do("pub", stored(1))
			z.do("pub", stored(2))
			r.becomes("live", patient, r.has(1, 2))
			z.kill()
			killed := time.Now()
			r.becomes("told of the loss", patient, r.trusts(degraded, "connection was lost"))
			if told := time.Since(killed); told > 5*time.Second {
				t.Errorf("the loss was told after %s", told)
			}
			time.Sleep(away) // an outage as users have them; the length is the test
			dials := r.Stats().Dials
			z.start()
			z.do("pub", stored(10))
			r.becomes("back", patient, func() bool { return r.has(10)() && r.trusts(exact, "")() })
			if s := r.Stats(); s.Restarts != 1 || dials > 12 {
				t.Errorf("%d dials while away: %+v", dials, s)
			}
		})
	}
}

func TestLibzmqReplayOf30MB(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv")
	payload := batchOf(1, storedMap([]uint64{1}, nil, span(100_000, 1200), 1200), removedMap(1))
	n := 30<<20/len(payload) + 1
	z.do("fill", n, payload)
	r := followLibzmq(t, z, nil)
	r.becomes("exact", 3*patient, r.trusts(exact, ""))
	r.becomes("replayed", patient, func() bool { return r.Stats().Replayed == uint64(n) })
	if s := r.Stats(); s.Stored != uint64(n) || s.Removed != uint64(n) || s.Odd != 0 {
		t.Errorf("%+v", s)
	}
}

// The ROUTER of vLLM up to 0.32 keeps the default high-water mark and drops the rest of an answer, its end too.
func TestLibzmqReplayThroughALowWaterMark(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv", "hwm=50")
	payload := batchOf(1, storedMap([]uint64{1}, nil, span(100_000, 2000), 2000), removedMap(1))
	z.do("fill", 3000, payload)
	r := followLibzmq(t, z, func(o *Options) { o.Limits.ReplayPatience = 500 * time.Millisecond })
	r.becomes("exact", 3*patient, func() bool { return r.trusts(exact, "")() && r.Stats().Replayed == 3000 })
}

func TestLibzmqHalfOpen(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv")
	r := followLibzmq(t, z, func(o *Options) {
		o.Timing = Timing{Heartbeat: time.Second, Silence: 6 * time.Second, Handshake: 5 * time.Second}
	})
	r.becomes("exact", patient, r.trusts(exact, ""))
	time.Sleep(8 * time.Second) // longer than the limit: PONGs alone hold an idle connection up
	if s := r.Stats(); s.Dials != 1 || !s.Connected {
		t.Errorf("idle: %+v", s)
	}
	z.signal(syscall.SIGSTOP)
	r.becomes("silence found", patient, r.trusts(degraded, "no sign of life"))
	z.signal(syscall.SIGCONT)
	z.do("pub", stored(1))
	r.becomes("back", patient, func() bool { return r.has(1)() && r.trusts(exact, "")() })
	if s := r.Stats(); s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// A publisher with heartbeats of its own cuts whoever does not answer: 4 s after the handshake here. Ours, which would
// count as a sign of life, come later than that.
func TestLibzmqHeartbeatsOfThePeer(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv", "beat=1000")
	r := followLibzmq(t, z, func(o *Options) {
		o.Timing = Timing{Heartbeat: time.Minute, Silence: 2 * time.Minute, Handshake: 5 * time.Second}
	})
	r.becomes("exact", patient, r.trusts(exact, ""))
	time.Sleep(6 * time.Second)
	z.do("pub", stored(1))
	r.becomes("live", patient, r.has(1))
	if s := r.Stats(); s.Dials != 1 {
		t.Errorf("%+v", s)
	}
}

// vLLM connects out when its endpoint has no `*`; what it published before we listened is in its ring.
func TestLibzmqWeBind(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv", "connect=1")
	z.do("pub", stored(1))
	r := followLibzmq(t, z, func(o *Options) { o.Events.Bind = true })
	r.becomes("exact", patient, func() bool { return r.trusts(exact, "")() && r.has(1)() })
	z.do("pub", stored(2))
	r.becomes("live", patient, r.has(1, 2))
	z.kill()
	r.becomes("told of the loss", patient, r.trusts(degraded, "connection was lost"))
	z.start()
	z.do("pub", stored(3))
	r.becomes("back", patient, func() bool { return r.trusts(exact, "")() && r.has(3)() })
}

// Case C22 on real sockets.
func TestC22TopicsOfLibzmq(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ topic, subscription, want string }{
		{"", "", "exact"}, {"test-topic", "", "exact"}, {"kv@10.0.0.10@m", "", "exact"},
		{"test-topic", "test-topic", "exact"}, {"kv@10.0.0.10@m", "kv@10.0.0.1", "exact"},
		{"test-topic", "nope", "blind"}, {"test-topic", "test-topic-longer", "blind"},
	} {
		t.Run(c.topic+"/"+c.subscription, func(t *testing.T) {
			t.Parallel()
			z := startLibzmq(t, c.topic)
			r := followLibzmq(t, z, func(o *Options) { o.Topic = c.subscription })
			r.becomes("ready", patient, r.trusts(exact, ""))
			for h := range uint64(3) {
				z.do("pub", stored(h))
				if c.want == "blind" {
					r.Answered(Answer{Prompt: 64, Output: 10, Reported: Unreported, Other: -1, Received: r.Received()})
				}
			}
			if c.want == "blind" {
				r.becomes("blind", patient, r.trusts(blind, "nothing received"))
				return
			}
			r.becomes("live", patient, func() bool { return r.Stats().Batches == 3 && r.trusts(exact, "")() })
		})
	}
	t.Run("two publishers", func(t *testing.T) {
		t.Parallel()
		z := startLibzmq(t, "kv@10.0.0.1@m")
		r := followLibzmq(t, z, func(o *Options) { o.Topic = "kv@10.0.0.1" })
		r.becomes("exact", patient, r.trusts(exact, ""))
		z.do("pub", stored(1))
		z.do("topic", "kv@10.0.0.10@m")
		z.do("pub", stored(2))
		r.becomes("blind", patient, r.trusts(blind, "two topics on one subscription"))
	})
}

// An engine's replay endpoint where its events are expected, and the reverse.
func TestLibzmqSwappedSockets(t *testing.T) {
	t.Parallel()
	z := startLibzmq(t, "kv")
	z.events, z.replay = z.replay, z.events
	r := followLibzmq(t, z, nil)
	r.becomes("the reason", patient, r.trusts(blind, "are the events and replay endpoints swapped?"))
}
