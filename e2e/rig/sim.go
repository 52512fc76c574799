package rig

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// QuickHealth shortens what an engine waits for after a restart.
var QuickHealth = []string{"--health.interval=100ms", "--health.successes=2", "--health.stable=200ms", "--health.slow-start=200ms", "--eject.base=200ms"}

// Publishing lets a sim publish on ports of its own choice; the star says that
// it binds, as in vLLM.
var Publishing = []string{"--events", "tcp://*:0", "--replay", "tcp://*:0"}

// SimEngine is a running `ramjet sim`: an engine that tokenizes, caches and
// publishes as vLLM does, where the scripted engines only talk.
type SimEngine struct {
	Name string
	Addr string
	live string // endpoints of its events, "" for none
	past string
	More string // further settings of the engine, each behind a comma
	Cmd  *exec.Cmd
	Done chan struct{}
}

// StartSim starts one that serves the model m; it ends with the test. Its ports
// stay its own until then, also while it is away.
func StartSim(t testing.TB, name string, flags ...string) *SimEngine {
	t.Helper()
	s := &SimEngine{Name: name, Done: make(chan struct{})}
	flags = keepPorts(t, flags)
	s.Cmd = exec.Command(Binary(t, ""), append([]string{"sim", "--listen", ports.Kept(t), "--model", "m"}, flags...)...)
	s.Cmd.Stderr = os.Stderr
	out, err := s.Cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("cannot make a pipe: %v", err)
	}
	if err := s.Cmd.Start(); err != nil {
		t.Fatalf("cannot start a sim: %v", err)
	}
	t.Cleanup(s.Stop)
	lines := bufio.NewReader(out)
	stuck := time.AfterFunc(2*Patience, func() { _ = s.Cmd.Process.Kill() })
	defer stuck.Stop()
	var untold error
	told := func(from string) string {
		line, err := lines.ReadString('\n')
		_, value, ok := strings.Cut(strings.TrimSpace(line), from)
		if (err != nil || !ok) && untold == nil {
			untold = fmt.Errorf("it did not say %q but %q (%w)", from, line, err)
		}
		return value
	}
	s.Addr = told("http://")
	if hasPrefix(flags, "--events=") {
		s.live = told("events on ")
	}
	if hasPrefix(flags, "--replay=") {
		s.past = told("replay on ")
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		close(s.Done)
	}()
	if untold != nil { // not before: Stop waits for Done
		t.Fatalf("the sim does not start: %v", untold)
	}
	return s
}

func hasPrefix(flags []string, prefix string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, prefix) })
}

// Stop ends the process; a second call does nothing.
func (s *SimEngine) Stop() {
	if s.Cmd.ProcessState != nil {
		return
	}
	_ = s.Cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(Patience, func() { _ = s.Cmd.Process.Kill() })
	defer kill.Stop()
	<-s.Done
	_ = s.Cmd.Wait()
}

// URL is the sim's base URL.
func (s *SimEngine) URL() string { return "http://" + s.Addr }

// EventFlags are the engine's settings for its events.
func (s *SimEngine) EventFlags(events string) string {
	switch {
	case events == "auto":
		return "events=auto"
	case events == "off", s.live == "":
		return "events=off"
	}
	if s.past == "" {
		return "events=" + s.live + ",replay=off"
	}
	return "events=" + s.live + ",replay=" + s.past
}

// SimModelFolder returns a new folder with the files of the sims' model.
func SimModelFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if out, err := exec.Command(Binary(t, ""), "sim", "--write-model", dir).CombinedOutput(); err != nil {
		t.Fatalf("cannot write the model: %v\n%s", err, out)
	}
	return dir
}

// SimSetup says what to start.
type SimSetup struct {
	Sims   []*SimEngine
	Flags  []string // of Ramjet
	Events string   // auto: Ramjet asks the engines where their events are; off; "" = it is told
	Model  string   // folder; "" = no tokenizer is named
	// settled waits further, after every engine is ready; "" = settled.
	Settled func(r *Ramjet) string
}

// StartSims runs Ramjet in front of sims and waits until it has found out what
// there is to find out about them, so that what is held open then is the base
// of the closing assertions.
func StartSims(t testing.TB, s SimSetup) *Ramjet {
	t.Helper()
	// A busy machine must not make prompts too slow to be known.
	up := Setup{Loose: true, Flags: []string{"--tokens.source=auto", "--tokens.max-time=5s"}}
	for _, e := range s.Sims {
		up.URLs = append(up.URLs, e.Name+"="+e.URL()+","+e.EventFlags(s.Events)+e.More)
	}
	if s.Model != "" {
		up.Flags = append(up.Flags, "--tokenizer="+s.Model)
	}
	up.Flags = append(up.Flags, s.Flags...)
	r := StartWith(t, up)
	if s.Settled != nil {
		if last := Poll(3*Patience, func() string { return s.Settled(r) }); last != "" {
			t.Fatalf("ramjet does not settle: %s", last)
		}
	}
	r.Rebase()
	t.Cleanup(func() { // before the process is stopped
		if !r.HasExited() {
			r.Closing()
		}
	})
	return r
}

// Rebase takes the base of the closing assertions anew.
func (r *Ramjet) Rebase() {
	r.T.Helper()
	r.Served(r.ID(AutoID+"base"), false)
	r.base = r.resources()
	for range 4 { // the least of several looks, as warmUp
		time.Sleep(10 * time.Millisecond)
		now := r.resources()
		r.base = Resources{min(r.base.goroutines, now.goroutines), min(r.base.fds, now.fds), max(r.base.upstream, now.upstream)}
	}
}

// Trusted waits until every engine's record is exact.
func Trusted(r *Ramjet) string {
	for _, e := range r.Topology().Engines {
		if e.Trust != "exact" {
			return e.Name + " is " + e.Trust + ": " + e.TrustReason
		}
	}
	return ""
}

// Said waits until the log has a line with all the words for each engine.
func Said(words ...string) func(r *Ramjet) string {
	return func(r *Ramjet) string {
		for _, name := range r.EngineNames() {
			if !r.Logged(append([]string{`"engine":"` + name + `"`}, words...)...) {
				return fmt.Sprintf("nothing of %q for engine %s", words, name)
			}
		}
		return ""
	}
}

// Both waits for two things.
func Both(a, b func(r *Ramjet) string) func(r *Ramjet) string {
	return func(r *Ramjet) string {
		if s := a(r); s != "" {
			return s
		}
		return b(r)
	}
}
