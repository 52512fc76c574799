package journal

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// decider makes decisions as a proxy would.
type decider struct {
	router *route.Router
	x      route.Explanation
	n      int
}

func newDecider(t testing.TB, engines int) *decider {
	t.Helper()
	set := &route.Set{}
	for i := range engines {
		u, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", 8001+i))
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(engine.Options{Name: fmt.Sprintf("e%d", i), URL: u})
		e.SetState(telemetry.StateReady, "test")
		e.SetTrust(telemetry.TrustExact, "test")
		set.Members = append(set.Members, route.Member{Engine: e, Account: lease.NewAccount(""), Slot: len(set.Members)})
	}
	s := route.Settings{Policy: route.PolicyLatency, Profile: route.ProfileRule, Threshold: 256, Exact: route.ExactPercent, Percent: 100, Tie: 0.02}
	return &decider{router: route.New(lease.NewBook(nil), radix.NewIndex(), radix.NewMemory(), s, set)}
}

// The texts that must never be found in a journal.
const canary = "CANARY-of-a-prompt"

// next makes the next decision; its request is r0, r1 ..
func (d *decider) next(t testing.TB) *route.Explanation {
	t.Helper()
	q := route.Request{Model: []byte("m"), Session: 0xfeedfacecafe, Sequences: 1, Prompt: route.Prompt{
		Tokens: 100 + int64(d.n%7), Exact: true, First: 100, IDs: make([]uint32, 100),
		Chain: []uint64{0x1122334455667788, 0x8877665544332211}, ChainTokens: 16,
	}}
	var l lease.Lease
	if _, err := d.router.Pick(&q, &l, &d.x); err != nil {
		t.Fatal(err)
	}
	l.Release(0)
	d.x.RequestID = fmt.Appendf(d.x.RequestID[:0], "r%d", d.n)
	d.x.Path, d.x.Model, d.x.Time = route.Text("/v1/chat/completions"), route.Text("m"), telemetry.Stamp(time.Now().UnixMilli())
	d.n++
	return &d.x
}

func open(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// ids reads the request ids of a journal.
func ids(t testing.TB, path string) (list []string, sum Summary) {
	t.Helper()
	sum, err := Read(path, func(r *Record) error { list = append(list, string(r.RequestID)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if sum.Records != len(list) {
		t.Fatalf("%d records counted, %d given", sum.Records, len(list))
	}
	return list, sum
}

// upTo are the ids from first to below last.
func upTo(first, last int) (list []string) {
	for i := first; i < last; i++ {
		list = append(list, fmt.Sprintf("r%d", i))
	}
	return list
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	all, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFlushedEachSecondAndAtTheEnd: what is a second old can be read while the
// journal goes on, and all of it when it was closed.
func TestFlushedEachSecondAndAtTheEnd(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when-needed")
	synctest.Test(t, func(t *testing.T) {
		d := newDecider(t, 2)
		j, err := Open(Options{Dir: dir, MaxBytes: 1 << 20, Files: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if got := names(t, dir); len(got) != 0 {
			t.Errorf("files before the first record: %q", got)
		}
		for i := range 10 {
			j.Record(d.next(t))
			if i == 4 {
				time.Sleep(flushEvery + time.Millisecond)
				synctest.Wait()
				if got, sum := ids(t, dir); !slices.Equal(got, upTo(0, 5)) || len(sum.Cut) != 1 {
					t.Errorf("after a second: %v, %+v", got, sum)
				}
			}
		}
		synctest.Wait()
		if got, _ := ids(t, dir); len(got) != 5 {
			t.Errorf("written before its second: %v", got)
		}
		j.Close()
		if got, sum := ids(t, dir); !slices.Equal(got, upTo(0, 10)) || len(sum.Cut) != 0 || sum.Files != 1 {
			t.Errorf("after the end: %v, %+v", got, sum)
		}
		j.Record(d.next(t))
		j.Close()
		if j.Written() != 10 || j.Dropped() != 1 {
			t.Errorf("%d written, %d dropped", j.Written(), j.Dropped())
		}
	})
}

// TestFullQueueDropsAndCounts: a writer that is away keeps nobody waiting.
func TestFullQueueDropsAndCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var told []uint64
	synctest.Test(t, func(t *testing.T) {
		d := newDecider(t, 2)
		j, err := Open(Options{Dir: dir, MaxBytes: 1 << 20, Files: 3, Trouble: func(lost uint64, err error) {
			if err != nil {
				t.Errorf("the disk is blamed: %v", err)
			}
			told = append(told, lost)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		x := d.next(t)
		j.out.max = 1 << 30
		j.mu.Lock() // the writer waits, as for a slow disk
		j.count, j.first = len(j.queue), 7
		for i := range j.queue {
			x.CopyTo(&j.queue[i])
		}
		j.mu.Unlock()
		for range 5 {
			j.Record(x)
		}
		if j.Dropped() != 5 {
			t.Errorf("%d dropped, want 5", j.Dropped())
		}
		signal(j.wake)
		time.Sleep(2 * flushEvery)
		synctest.Wait()
		j.Record(x)
		j.Close()
		if got := j.Written(); got != queueSize+1 || j.Dropped() != 5 {
			t.Errorf("%d written, %d dropped", got, j.Dropped())
		}
	})
	if !slices.Equal(told, []uint64{5}) {
		t.Errorf("told of %v", told)
	}
}

// TestHalfFullIsWrittenEarly, so that bursts do not wait for the second.
func TestHalfFullIsWrittenEarly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDecider(t, 2)
		j, err := Open(Options{Dir: dir, MaxBytes: 64 << 20, Files: 3})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 * queueSize {
			j.Record(d.next(t))
			if d.n%(queueSize/2) == 0 {
				synctest.Wait() // the writer gets a turn, but no time passes
			}
		}
		j.Close()
		if j.Dropped() != 0 {
			t.Errorf("%d dropped", j.Dropped())
		}
		if got, _ := ids(t, dir); !slices.Equal(got, upTo(0, 3*queueSize)) {
			t.Errorf("%d records", len(got))
		}
	})
}

// TestFilesAreBounded in size and number; the oldest go.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max   int64
		files int
	}{{4 << 10, 3}, {16 << 10, 2}, {1, 4}, {4 << 10, 1}} {
		t.Run(fmt.Sprint(c.max, "-", c.files), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, other := range []string{"notes.txt", "ramjet-mine.jsonl.zst"} {
				if err := os.WriteFile(filepath.Join(dir, other), []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d := newDecider(t, 3)
			total := 0
			for range 3 { // starts
				j := open(t, Options{Dir: dir, MaxBytes: c.max, Files: c.files})
				for range 300 {
					j.Record(d.next(t))
					total++
				}
				j.Close()
				if j.Dropped() != 0 {
					t.Errorf("%d dropped", j.Dropped())
				}
			}
			got := names(t, dir)
			if len(got) > c.files || len(got) == 0 {
				t.Errorf("%d files kept, want %d at most", len(got), c.files)
			}
			for _, name := range got {
				info, err := os.Stat(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if c.max > 1 && info.Size() > c.max {
					t.Errorf("%s has %d bytes, more than %d", name, info.Size(), c.max)
				}
				if mode := info.Mode().Perm(); mode != 0o600 {
					t.Errorf("%s has mode %v: others can read it", name, mode)
				}
			}
			kept, sum := ids(t, dir)
			if !slices.Equal(kept, upTo(total-len(kept), total)) || len(kept) == 0 || len(sum.Cut) != 0 {
				t.Errorf("kept %d records, not the newest of %d: %v", len(kept), total, sum)
			}
			for _, other := range []string{"notes.txt", "ramjet-mine.jsonl.zst"} {
				if _, err := os.Stat(filepath.Join(dir, other)); err != nil {
					t.Errorf("a file of somebody else's: %v", err)
				}
			}
		})
	}
}

// TestNamesSortByTime, whatever the clock does.
func TestNamesSortByTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	last := ""
	for _, step := range []time.Duration{0, 0, time.Millisecond, -time.Hour, -time.Hour, 2 * time.Hour, 0} {
		now = now.Add(step)
		name := nameAfter(last, now)
		if name <= last || !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix) {
			t.Errorf("%q follows %q", name, last)
		}
		last = name
	}
	for _, other := range []string{"", "ramjet-strange.jsonl.zst", "ramjet-20261130T100000.000Z-1.jsonl.zst", "ramjet-20261130T100000.000Z-00000x.jsonl.zst", "x" + last} {
		if _, _, ok := parts(other); ok {
			t.Errorf("%q is taken for a name of ours", other)
		}
	}
}

// TestNothingOfAPromptIsKept: no text, no key of a block, no id.
func TestNothingOfAPromptIsKept(t *testing.T) {
	t.Parallel()
	d := newDecider(t, 2)
	x := d.next(t)
	line := x.AppendRecord(nil)
	for _, secret := range []string{canary, "1122334455667788", "1234605616436508552", "8877665544332211"} {
		if bytes.Contains(line, []byte(secret)) {
			t.Errorf("the record holds %s: %s", secret, line)
		}
	}
	if !bytes.Contains(line, []byte(`"session":"0000feedfacecafe"`)) {
		t.Errorf("the hash of the session is not there: %s", line)
	}
}

// TestTroubleOfTheDisk: what is lost is counted and told once a second, and the
// journal goes on when the disk is back.
func TestTroubleOfTheDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	var told []string
	synctest.Test(t, func(t *testing.T) {
		d := newDecider(t, 2)
		j, err := Open(Options{Dir: dir, MaxBytes: 1 << 20, Files: 3, Trouble: func(lost uint64, err error) { told = append(told, fmt.Sprint(lost, err != nil)) }})
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range []bool{true, true, false} {
			if broken {
				_ = os.RemoveAll(dir)
			} else if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				j.Record(d.next(t))
			}
			time.Sleep(2 * flushEvery)
			synctest.Wait()
		}
		// The file is taken away from under the writer.
		j.Record(d.next(t))
		time.Sleep(2 * flushEvery)
		synctest.Wait()
		_ = j.out.file.Close()
		j.Record(d.next(t))
		j.Record(d.next(t))
		time.Sleep(2 * flushEvery)
		synctest.Wait()
		j.Record(d.next(t))
		j.Close()
		if j.Written() != 7 || j.Dropped() != 12 {
			t.Errorf("%d written, %d dropped", j.Written(), j.Dropped())
		}
	})
	if want := []string{"5 true", "5 true", "2 true"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if got, sum := ids(t, dir); !slices.Equal(got, append(upTo(10, 16), "r18")) || sum.Files != 2 {
		t.Errorf("%v, %+v", got, sum)
	}
}

// TestFullDiskKeepsHistory: what cannot be written to a new file leaves no file
// behind, and takes no more of the old ones than made room for the first.
func TestFullDiskKeepsHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const keep = 3
	d := newDecider(t, 2)
	for range keep { // starts
		j := open(t, Options{Dir: dir, MaxBytes: 1 << 20, Files: keep})
		j.Record(d.next(t))
		j.Close()
	}
	o := output{dir: dir, max: 1 << 20, keep: keep}
	for range 5 {
		if err := o.write([]byte("{}\n")); err != nil {
			t.Fatal(err)
		}
		_ = o.file.Close() // takes nothing any more
		if o.flush() == nil {
			t.Fatal("the flush succeeds")
		}
		if lost := o.abandon(); lost != 1 {
			t.Errorf("%d lines lost, want 1", lost)
		}
	}
	if got, sum := ids(t, dir); !slices.Equal(got, upTo(1, keep)) || sum.Files != keep-1 {
		t.Errorf("left are %v, %+v", got, sum)
	}
}

// TestCloseDoesNotWaitForever: a disk that hangs keeps no process from ending.
func TestCloseDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		j, err := Open(Options{Dir: dir, MaxBytes: 1 << 20, Files: 3, Trouble: func(uint64, error) { <-hangs }})
		if err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(dir) // so that there is trouble to be told
		j.Record(newDecider(t, 2).next(t))
		began, closed := time.Now(), make(chan struct{})
		go func() { j.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal("it waits for a minute")
		}
		if took := time.Since(began); took < closeWait || took > (lastWaits+1)*closeWait {
			t.Errorf("it took %s", took)
		}
	})
}

// slowFile takes its time for each write. With takes nil it takes for ever.
type slowFile struct {
	file
	takes func() time.Duration
	hangs chan struct{}
}

// Write implements io.Writer.
func (f *slowFile) Write(b []byte) (int, error) {
	if f.takes == nil {
		<-f.hangs
		return 0, errors.New("it never came back")
	}
	time.Sleep(f.takes())
	return f.file.Write(b)
}

// TestCloseWaitsForASlowDisk: bytes that move are progress although no record
// leaves the queue, one long write at the end gets more time, and a disk that
// takes nothing is left behind.
func TestCloseWaitsForASlowDisk(t *testing.T) {
	t.Parallel()
	each := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for name, c := range map[string]struct {
		tight       bool // a file takes one more record, and the queue waits for its end
		takes       func() time.Duration
		least, most time.Duration
		whole       bool
	}{
		"several writes":           {false, each(closeWait - time.Second/2), closeWait, lastWaits * closeWait, true},
		"one long write":           {false, each(4 * closeWait), 4 * closeWait, 2 * lastWaits * closeWait, true},
		"several with a queue":     {true, each(closeWait - time.Second/2), closeWait, lastWaits * closeWait, true},
		"nothing, with a queue":    {true, nil, closeWait, 2 * closeWait, false},
		"nothing, without a queue": {false, nil, lastWaits * closeWait, (lastWaits + 1) * closeWait, false},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			hangs := make(chan struct{})
			defer close(hangs)
			d := newDecider(t, 2)
			j, err := Open(Options{Dir: dir, MaxBytes: 1 << 20, Files: 9})
			if err != nil {
				t.Fatal(err)
			}
			j.Record(d.next(t))
			time.Sleep(2 * flushEvery)
			synctest.Wait()
			j.out.file = &slowFile{file: j.out.file, takes: c.takes, hangs: hangs}
			for range 3 {
				x := d.next(t)
				if c.tight && d.n == 2 {
					j.out.max = j.out.size + int64(len(x.AppendRecord(nil))) + 1 + slack
				}
				j.Record(x)
			}
			began := time.Now()
			j.Close()
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("%s: it took %s", name, took)
			}
			if !c.whole {
				return
			}
			if got, sum := ids(t, dir); !slices.Equal(got, upTo(0, 4)) || len(sum.Cut) != 0 {
				t.Errorf("%s: %v, %+v", name, got, sum)
			}
		})
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a file for a folder: %v", err)
	}
}

// TestManyAtOnce: records of concurrent requests are all there, each whole.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, Options{Dir: dir, MaxBytes: 1 << 20, Files: 100})
	const workers, each = 8, 100 // below the queue's size
	var wg sync.WaitGroup
	for range workers {
		d := newDecider(t, 2)
		wg.Go(func() {
			for range each {
				j.Record(d.next(t))
			}
		})
	}
	wg.Wait()
	j.Close()
	got, _ := ids(t, dir)
	if len(got)+int(j.Dropped()) != workers*each || j.Dropped() != 0 { //nolint:gosec // small
		t.Errorf("%d records, %d dropped", len(got), j.Dropped())
	}
	count := map[string]int{}
	for _, id := range got {
		count[id]++
	}
	for i := range each {
		if count[fmt.Sprintf("r%d", i)] != workers {
			t.Errorf("r%d is there %d times", i, count[fmt.Sprintf("r%d", i)])
		}
	}
}

var errStop = errors.New("enough")

// TestReadStopsWhenAsked, and tells the error as it is.
func TestReadStopsWhenAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDecider(t, 2)
	j := open(t, Options{Dir: dir, MaxBytes: 4 << 10, Files: 5})
	for range 100 {
		j.Record(d.next(t))
	}
	j.Close()
	n := 0
	if _, err := Read(dir, func(*Record) error {
		if n++; n == 3 {
			return errStop
		}
		return nil
	}); !errors.Is(err, errStop) || n != 3 {
		t.Errorf("%d records, %v", n, err)
	}
	if _, err := Read(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
