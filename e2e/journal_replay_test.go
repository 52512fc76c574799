package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"ramjet/e2e/rig"
)

// replayOutcome is what these tests read of `ramjet replay --json`.
type replayOutcome struct {
	Changes    []string `json:"changes"`
	Cut        []string `json:"cut_files"`
	Records    int      `json:"records"`
	Decisions  int      `json:"decisions"`
	Reproduced int      `json:"reproduced"`
	Moved      int      `json:"moved"`
	Gained     int      `json:"cached_tokens_gained"`
	Lost       int      `json:"cached_tokens_lost"`
	Cost       struct {
		Before float64 `json:"before"`
		After  float64 `json:"after"`
	} `json:"recorded_cost_s"`
	Moves []json.RawMessage `json:"moves"`
}

// ramjetCommand runs a command of the binary to its end.
func ramjetCommand(t testing.TB, args ...string) (out string, code int) {
	t.Helper()
	text, err := exec.Command(rig.Binary(t, ""), args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(text), exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("cannot run ramjet: %v", err)
	}
	return string(text), 0
}

// replay replays a journal; the exit code must be the one given.
func replay(t testing.TB, code int, args ...string) (v replayOutcome) {
	t.Helper()
	out, got := ramjetCommand(t, append([]string{"replay", "--json"}, args...)...)
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&v); err != nil || got != code {
		t.Fatalf("replay %v: exit %d, %v: %.500s", args, got, err, out)
	}
	return v
}

// journalLine is what these tests read of a line.
type journalLine struct {
	ID       string            `json:"request_id"`
	Engine   string            `json:"engine"`
	Reason   string            `json:"reason"`
	Attempts []json.RawMessage `json:"attempts"`
	Rotation *int              `json:"rotation"`
	raw      string
}

// journalLines reads a journal without any of Ramjet's code, up to where each
// file ends.
func journalLines(t testing.TB, dir string) (lines []journalLine) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // the oldest one goes while we look
		}
		if err != nil {
			t.Fatal(err)
		}
		plain, err := zstd.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(plain) // the last file may end early
		plain.Close()
		_ = f.Close()
		for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
			l := journalLine{raw: s.Text()}
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v: %.200s", name, err, s.Text())
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// secret is in every text, key and session of the load; none of it may be in a
// journal.
const secret = "CANARY"

// secretly sends a chat that is full of it.
func secretly(a *rig.Asker, r *rig.Ramjet, n, words, limit int) (status int, err error) {
	body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"user":"%s-user","messages":[{"role":"system","content":"%s rules %d"},{"role":"user","content":%q}]}`,
		limit, secret, secret, n%9, strings.Repeat(secret+" says more. ", words))
	req, err := http.NewRequest("POST", a.Base+"/v1/chat/completions?key="+secret, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-"+secret)
	req.Header.Set("X-Session-Id", fmt.Sprintf("%s-session-%d", secret, n%9))
	req.Header.Set("X-Request-Id", r.ID("journal"))
	resp, err := a.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// journalLoad sends n requests, a few at a time, through all that makes decisions
// differ: conversations by one after another, many new ones at once, and an
// engine that refuses and one that restarts meanwhile.
func journalLoad(t testing.TB, r *rig.Ramjet, sims []*rig.SimEngine, n int) {
	t.Helper()
	var wg sync.WaitGroup
	jobs := make(chan int)
	for range 6 {
		a := r.Asker(t)
		wg.Go(func() {
			defer a.Close()
			for i := range jobs {
				if _, err := secretly(a, r, i, 1+i%40, []int{16, 300, 8, 64}[i%4]); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		switch i {
		case n / 4:
			sims[0].Control(t, "/sim/fault", `{"kind":"status","status":503,"after_tokens":-1,"count":10}`)
		case n / 2:
			sims[1].Control(t, "/sim/restart", `{"seconds":0.3}`)
		}
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	a := r.Asker(t)
	defer a.Close()
	load := rig.NewTalkLoad(5, 40)
	for range n / 4 {
		body, tell := load.Next()
		p := a.Chat(r.ID("talk"), body)
		if !p.Ok() {
			t.Errorf("a request failed: %v", &p)
		}
		tell(p.Text)
	}
}

// TestJournalReplaysEveryChoice: what a Ramjet decided, with ties, rotation,
// retries, restarts of engines and a restart of its own under other settings, is
// decided again as it was; other settings move requests; and nothing that a
// client said is kept.
func TestJournalReplaysEveryChoice(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{
		rig.StartSim(t, "a", append([]string{"--profile=mtp"}, append(simFast, rig.Publishing...)...)...),
		rig.StartSim(t, "b", append(simFast, rig.Publishing...)...),
	}
	dir := filepath.Join(t.TempDir(), "made", "journal")
	model, sent := rig.SimModelFolder(t), 0
	for i, flags := range [][]string{{}, {"--route.profile=learned", "--route.exact=50%", "--route.delay-weight=0.1"}} {
		r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: model, Settled: rig.Trusted,
			Flags: append(append(flags, "--journal.path="+dir), rig.QuickHealth...)})
		journalLoad(t, r, sims, 240)
		sent += 300
		if got := journalLines(t, dir); i == 0 && len(got) > 0 && len(got) < 100 {
			t.Errorf("only %d records after a first run of many seconds", len(got))
		}
		r.Closing()
		r.Signal(syscall.SIGTERM)
		if code := r.AwaitExit(3 * rig.Patience); code != 0 {
			t.Fatalf("exit %d", code)
		}
	}
	lines := journalLines(t, dir)
	reasons, moved, loaded := map[string]int{}, 0, 0
	for _, l := range lines {
		reasons[l.Reason]++
		if strings.HasPrefix(l.ID, "journal-") || strings.HasPrefix(l.ID, "talk-") {
			loaded++
		}
		if len(l.Attempts) > 1 {
			moved++
		}
		if l.Rotation == nil {
			t.Fatalf("no rotation in %s", l.raw)
		}
		if i := strings.Index(l.raw, secret); i >= 0 {
			t.Fatalf("the journal holds %.60q", l.raw[max(i-20, 0):])
		}
	}
	t.Logf("%d records, %v, %d of requests that moved", len(lines), reasons, moved)
	if loaded < sent*9/10 || loaded > sent || moved == 0 {
		t.Errorf("%d records of %d requests, %d of requests that moved", loaded, sent, moved)
	}
	for _, want := range []string{"exact", "rotation", "only-one"} {
		if reasons[want] == 0 {
			t.Errorf("nothing was decided for the reason %s: the load proves little", want)
		}
	}
	same := replay(t, 0, dir)
	if same.Records != len(lines) || same.Reproduced != same.Decisions || same.Moved != 0 || len(same.Moves) != 0 || len(same.Cut) != 0 || same.Decisions < loaded*9/10 {
		t.Errorf("%d records, reproduced %d of %d, moved %d: %.1000s", same.Records, same.Reproduced, same.Decisions, same.Moved, same.Moves)
	}
	turns := replay(t, 0, dir, "--route.policy=round-robin")
	if turns.Moved < turns.Decisions/10 || turns.Lost == 0 || turns.Cost.After <= turns.Cost.Before || turns.Changes[0] != "route.policy=round-robin" {
		t.Errorf("round robin: %+v", turns)
	}
	weighed := replay(t, 0, dir, "--set", "route.delay_weight=50", "--set", "route.tie=0s")
	if weighed.Moved == 0 || weighed.Moved == turns.Moved || len(weighed.Changes) != 2 {
		t.Errorf("weight 50: %d moved, %v", weighed.Moved, weighed.Changes)
	}
}

// TestJournalOfAKilledProcess is read up to its last whole record.
func TestJournalOfAKilledProcess(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", simFast...), rig.StartSim(t, "b", simFast...)}
	dir := t.TempDir()
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "off", Flags: []string{"--journal.path=" + dir}})
	a := r.Asker(t)
	const sent = 40
	for i := range sent {
		if _, err := secretly(a, r, i, 3, 8); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, rig.Patience, "records on disk", func() string {
		if n := len(journalLines(t, dir)); n < sent {
			return fmt.Sprintf("%d of %d", n, sent)
		}
		return ""
	})
	_, _ = secretly(a, r, sent, 3, 8)
	_ = r.Cmd.Process.Signal(syscall.SIGKILL)
	<-r.Exited
	got := replay(t, 0, dir)
	if got.Records < sent || got.Reproduced != got.Decisions || len(got.Cut) != 1 {
		t.Errorf("%+v", got)
	}
	out, code := ramjetCommand(t, "replay", dir)
	if code != 0 || !strings.Contains(out, "ends early") || !strings.Contains(out, fmt.Sprintf("reproduced %d/%d", got.Decisions, got.Decisions)) {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// TestJournalIsBounded by what the configuration says; the newest are kept.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", simFast...), rig.StartSim(t, "b", simFast...)}
	dir := t.TempDir()
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "off", Flags: []string{"--journal.path=" + dir, "--journal.max-bytes=4KiB", "--journal.files=2"}})
	a := r.Asker(t)
	const sent = 120
	last := ""
	for i := range sent {
		p := a.Chat(r.ID("bound"), rig.ChatBody(true))
		if p.Err != nil || p.Status != 200 {
			t.Fatal(&p)
		}
		if last = p.ID; i%40 == 39 {
			rig.Eventually(t, rig.Patience, "the last record on disk", func() string {
				lines := journalLines(t, dir)
				if len(lines) == 0 || lines[len(lines)-1].ID != last {
					return fmt.Sprintf("%d records without %s", len(lines), last)
				}
				return ""
			})
		}
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(names) != 2 {
		t.Errorf("%d files are kept: %q", len(names), names)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > 4096 {
			t.Errorf("%s: %v, %v", name, info.Size(), err)
		}
	}
	if n := len(journalLines(t, dir)); n >= sent {
		t.Errorf("all %d records fit: the bound was not met", n)
	}
	a.Close()
}

// TestJournalOffDisk: a folder that cannot be had is said at the start.
func TestJournalOffDisk(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	out, code := ramjetCommand(t, "serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--engine=a=http://127.0.0.1:9", "--journal.path="+file)
	if code != 1 || !strings.Contains(out, "journal") || time.Since(start) > rig.Patience {
		t.Errorf("exit %d: %s", code, out)
	}
}

// TestReplayUsage: what cannot be replayed is said, with the exit code of a
// command line that cannot be read.
func TestReplayUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{dir}, 1, "holds no record"},
		{[]string{dir + "/none"}, 1, "no such file"},
		{nil, 2, "journal"},
		{[]string{dir, "--set", "route.tye=1s"}, 2, "route.tie"},
		{[]string{dir, "--set", "route.tie"}, 2, "KEY=VALUE"},
		{[]string{dir, "--set", "limits.queue=3"}, 2, "limits.queue cannot be replayed"},
		{[]string{dir, "--route.memory-tokens=5"}, 2, "route.memory_tokens cannot be replayed"},
		{[]string{dir, "--route.policy=best"}, 1, "round-robin"},
		{[]string{dir, "--sett", "route.tie=1s"}, 2, "--set"},
	} {
		out, code := ramjetCommand(t, append([]string{"replay"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) {
			t.Errorf("replay %v: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.out, out)
		}
	}
}
