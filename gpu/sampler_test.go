package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a source that a test drives: each value of steps is delivered, an
// error ends the Read.
type fake struct {
	name, host string
	steps      chan any
	reads      []time.Time
}

func newFake(name, host string) *fake { return &fake{name: name, host: host} }

func (f *fake) Name() string { return f.name }
func (f *fake) Host() string { return f.host }

func (f *fake) Read(ctx context.Context, deliver func(Reading)) error {
	f.reads = append(f.reads, time.Now())
	for {
		select {
		case step := <-f.steps:
			switch step := step.(type) {
			case Reading:
				deliver(step)
			case error:
				return step
			case nil:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// one is a reading of one GPU.
func one(uuid string, index int, utilization float64, every time.Duration) Reading {
	s := absent()
	s.UUID, s.Index, s.Name, s.Utilization, s.PowerW, s.MemoryUsedBytes = uuid, index, "G", utilization, 100*utilization, 7
	return Reading{Interval: every, Samples: []Sample{s}}
}

// play runs a Sampler inside a bubble and ends it.
func play(t *testing.T, o Options, f func(t *testing.T, s *Sampler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, f := range o.Sources {
			f.(*fake).steps = make(chan any) // of this bubble
		}
		s := New(o, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		synctest.Wait()
		f(t, s)
		cancel()
		<-done // a source left behind would fail the bubble
	})
}

func devices(s *Sampler) string {
	var b strings.Builder
	for _, d := range s.Snapshot() {
		fmt.Fprintf(&b, "%s#%d %s %.2f %s; ", d.Engine, d.Index, d.Source, d.Utilization, d.Interval)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestSnapshotAndSeries(t *testing.T) {
	t.Parallel()
	f := newFake("x", "")
	play(t, Options{Sources: []Source{f}, Owners: []Owner{{"a", "127.0.0.1", []int{0}}}}, func(t *testing.T, s *Sampler) {
		if s.Interval() != 0 || len(s.Snapshot()) != 0 || len(s.Series(time.Time{})) != 0 {
			t.Error("it knows something before a source spoke")
		}
		from := time.Now()
		for i := range 5 {
			f.steps <- one("u", 0, float64(i)/10, 500*time.Millisecond)
			time.Sleep(500 * time.Millisecond)
		}
		want(t, "snapshot", devices(s), "a#0 x 0.40 500ms")
		d := s.Snapshot()[0]
		if d.Name != "G" || d.PowerW != 40 || d.MemoryUsedBytes != 7 || d.MemoryTotalBytes != -1 || !math.IsNaN(d.TemperatureC) || !d.At.Equal(from.Add(2*time.Second)) {
			t.Errorf("%+v", d)
		}
		series := s.Series(from.Add(500 * time.Millisecond))
		if len(series) != 1 || series[0].Engine != "a" || fmt.Sprint(series[0].Utilization, series[0].PowerW, series[0].MemoryUsedBytes) != "[0.2 0.3 0.4] [20 30 40] [7 7 7]" ||
			!series[0].Times[0].Equal(from.Add(time.Second)) || series[0].Interval != 500*time.Millisecond {
			t.Errorf("%+v", series)
		}
		if got := s.Series(time.Now()); len(got) != 0 {
			t.Errorf("nothing is newer than now, got %+v", got)
		}
		want(t, "note", s.Note(), "")
	})
}

// Ten minutes at 2 Hz are kept, and not a sample more.
func TestTenMinutesAreKept(t *testing.T) {
	t.Parallel()
	f := newFake("x", "")
	play(t, Options{Sources: []Source{f}}, func(t *testing.T, s *Sampler) {
		for range 2 * ringSize {
			f.steps <- one("u", 0, 1, 500*time.Millisecond)
			time.Sleep(500 * time.Millisecond)
		}
		got := s.Series(time.Time{})
		if len(got) != 1 || len(got[0].Times) > ringSize || len(got[0].Times) < ringSize-1 || cap(s.devices["u"].ring.points) > 2*ringSize {
			t.Fatalf("%d samples, room for %d", len(got[0].Times), cap(s.devices["u"].ring.points))
		}
		for i, at := range got[0].Times[1:] {
			if at.Sub(got[0].Times[i]) != 500*time.Millisecond {
				t.Fatalf("sample %d comes %s after the one before", i+1, at.Sub(got[0].Times[i]))
			}
		}
		time.Sleep(Kept / 2)
		if got := s.Series(time.Time{}); len(got[0].Times) > ringSize/2+1 {
			t.Errorf("%d samples are older than ten minutes", len(got[0].Times)-ringSize/2)
		}
		time.Sleep(Kept)
		if d, h := s.Snapshot(), s.Series(time.Time{}); len(d)+len(h) != 0 {
			t.Errorf("a GPU that fell silent stays: %v %v", d, h)
		}
	})
}

// TestSilentDevicesGo: devices that nobody hears of any more make room, at the
// latest when nothing of them is shown any more; those that speak stay.
func TestSilentDevicesGo(t *testing.T) {
	t.Parallel()
	f, other := newFake("x", ""), newFake("y", "")
	play(t, Options{Sources: []Source{f, other}}, func(t *testing.T, s *Sampler) {
		count := func() int {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.devices)
		}
		var made Reading
		for i := range maxDevices + 100 {
			made.Samples = append(made.Samples, one(fmt.Sprintf("made-up %d", i), 1, 0.5, time.Second).Samples...)
		}
		other.steps <- one("old", 0, 0.1, time.Second)
		synctest.Wait()
		f.steps <- made
		synctest.Wait()
		other.steps <- one("new", 0, 0.2, time.Second)
		if n := count(); n != maxDevices {
			t.Fatalf("%d devices are kept, want %d", n, maxDevices)
		}
		if s.devices["new"] != nil {
			t.Fatal("there was room for one more")
		}
		for range 9 { // the old one speaks, the others do not
			time.Sleep(sweepEvery)
			other.steps <- one("old", 0, 0.1, time.Second)
		}
		other.steps <- one("new", 0, 0.2, time.Second)
		if n := count(); n != 2 || s.devices["new"] == nil {
			t.Errorf("%d devices are kept, want the two that speak", n)
		}
		time.Sleep(Kept - time.Minute)
		other.steps <- one("old", 0, 0.1, time.Second)
		if n := count(); n != 2 {
			t.Errorf("%d devices are kept, but what was said less than ten minutes ago is shown", n)
		}
		time.Sleep(2 * time.Minute)
		other.steps <- one("old", 0, 0.1, time.Second)
		if n := count(); n != 1 {
			t.Errorf("%d devices are kept, one fell silent eleven minutes ago", n)
		}
	})
}

// A clock that was set back makes no line that runs backwards.
func TestTimeRunsForward(t *testing.T) {
	t.Parallel()
	f := newFake("x", "")
	play(t, Options{Sources: []Source{f}}, func(t *testing.T, s *Sampler) {
		time.Sleep(time.Minute)
		for _, back := range []time.Duration{30, 20, 25, 20, 10} {
			r := one("u", 0, float64(back), 0)
			r.Samples[0].At = time.Now().Add(-back * time.Second)
			f.steps <- r
		}
		synctest.Wait()
		want(t, "kept", fmt.Sprint(s.Series(time.Time{})[0].Utilization), "[30 20 10]")
	})
}

// A source that breaks is read again after 1, 2, 4 .. 30 s; one that had run
// for a while, after 1 s.
func TestBackOff(t *testing.T) {
	t.Parallel()
	f := newFake("x", "")
	play(t, Options{Sources: []Source{f}}, func(t *testing.T, s *Sampler) {
		for range 7 {
			f.steps <- errors.New("no driver")
		}
		synctest.Wait()
		want(t, "note", s.Note(), "x: no driver")
		f.steps <- one("u", 0, 0, 0)
		synctest.Wait()
		want(t, "note while it delivers", s.Note(), "no engine says which GPUs it runs on; set engines[].gpus, such as gpus: [0, 1]")
		time.Sleep(steady)
		f.steps <- nil
		f.steps <- errors.New("again")
		synctest.Wait()
		want(t, "note after the end", s.Note(), "x: again")
		var gaps []time.Duration
		for i := range f.reads[1:] {
			gaps = append(gaps, f.reads[i+1].Sub(f.reads[i]))
		}
		want(t, "pauses", fmt.Sprint(gaps), "[1s 2s 4s 8s 16s 30s 30s 11s]")
	})
}

func TestNotes(t *testing.T) {
	t.Parallel()
	x, y := newFake("x", ""), newFake("y", "h")
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"off":       {Options{Off: true}, "gpu.source is off; set gpu.source: auto to see the GPUs"},
		"no source": {Options{}, "no nvidia-smi was found on PATH and gpu.dcgm lists no exporter; set gpu.dcgm: [http://HOST:9400]"},
		"silent":    {Options{Sources: []Source{x, y}}, "x: nothing received yet; y: nothing received yet"},
	} {
		if got := New(c.o, nil).Note(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Who runs on which GPU: the source's own host counts first, then indexes as
// long as they say enough. An engine whose machine has a source never gets
// another machine's GPUs.
func TestOwners(t *testing.T) {
	t.Parallel()
	a, b := Owner{"a", "h1", []int{0, 1}}, Owner{"b", "h2", []int{0}}
	for name, c := range map[string]struct {
		hosts  []string // of the sources; each sees a GPU 0
		owners []Owner
		want   string
		note   string
	}{
		"one source, one owner":             {[]string{"x"}, []Owner{a}, "a", ""},
		"one source, two engines on a GPU":  {[]string{"x"}, []Owner{a, b}, "a b", ""},
		"two machines by their names":       {[]string{"H1", "h2"}, []Owner{a, b}, "a b", ""},
		"two machines under other names":    {[]string{"10.0.0.1", "10.0.0.2"}, []Owner{a, b}, "- -", "whose GPUs are those of 10.0.0.1, 10.0.0.2 is unclear"},
		"two machines, one engine":          {[]string{"h1", "h2"}, []Owner{a}, "- a", ""},
		"this machine and an engine's own":  {[]string{"", "h1"}, []Owner{a}, "- a", ""},
		"an engine's machine of two":        {[]string{"h1", "x"}, []Owner{a, b}, "a b", ""},
		"one engine, none of the machines":  {[]string{"x", "", "y"}, []Owner{b}, "- - -", "whose GPUs are those of this machine, x, y is unclear"},
		"two engines, another's machine":    {[]string{"h1", "x"}, []Owner{a, b, {"c", "h3", []int{0}}}, "- a", "whose GPUs are those of x is unclear"},
		"many machines":                     {[]string{"f", "e", "d", "c", "b", "a"}, []Owner{b}, "- - - - - -", "whose GPUs are those of a, b, c, d and 2 more is unclear"},
		"this machine":                      {[]string{"", "h2"}, []Owner{{"a", "localhost", []int{0}}, b}, "a b", ""},
		"this machine has many names":       {[]string{"127.0.0.1"}, []Owner{{"a", "::1", []int{0}}, {"b", "h2", []int{0}}}, "a", ""},
		"an index that nobody lists":        {[]string{"h1"}, []Owner{{"a", "h1", []int{3}}}, "-", ""},
		"nobody lists any":                  {[]string{"h1"}, []Owner{{"a", "h1", nil}}, "-", "no engine says which GPUs it runs on"},
		"two engines share one by its host": {[]string{"h1", "h2"}, []Owner{{"a", "h1", []int{0}}, {"c", "h1", []int{0}}, b}, "a b c", ""},
	} {
		var sources []Source
		for i, h := range c.hosts {
			sources = append(sources, newFake(fmt.Sprint(i), h))
		}
		s := New(Options{Sources: sources, Owners: c.owners}, nil)
		for i, f := range s.feeds {
			s.take(f, one(fmt.Sprint("u", i), 0, 0, 0))
		}
		var got []string
		for _, d := range s.Snapshot() {
			if d.Engine == "" {
				d.Engine = "-"
			}
			got = append(got, d.Engine)
		}
		want(t, name, strings.Join(got, " "), c.want)
		if note := s.Note(); !strings.HasPrefix(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%s: note %q, want %q", name, note, c.note)
		}
	}
}

// A source that failed before it told anything takes nothing away: nvidia-smi
// is on the PATH of machines without a GPU, too.
func TestBrokenSourceOwnsNothing(t *testing.T) {
	t.Parallel()
	s := New(Options{Sources: []Source{newFake("smi", ""), newFake("dcgm", "gpu1")}, Owners: []Owner{{"a", "127.0.0.1", []int{0}}}}, nil)
	s.take(s.feeds[1], one("u", 0, 0, 0))
	owner := func() string { return s.Snapshot()[0].Engine }
	want(t, "not tried yet", owner(), "")
	s.feeds[0].trouble = "no driver"
	want(t, "failed", owner(), "a")
	s.take(s.feeds[0], one("v", 0, 0, 0))
	s.feeds[0].trouble = "it died"
	var got []string
	for _, d := range s.Snapshot() {
		got = append(got, d.Source+" "+d.Engine)
	}
	want(t, "worked once", strings.Join(got, ", "), "dcgm , smi a")
}

// nvidia-smi and an exporter on one machine see the same GPUs: the finer one
// speaks, the other only while that one is silent.
func TestTwoSourcesOfOneGPU(t *testing.T) {
	t.Parallel()
	fine, coarse := newFake("fine", ""), newFake("coarse", "")
	play(t, Options{Sources: []Source{fine, coarse}}, func(t *testing.T, s *Sampler) {
		coarse.steps <- one("u", 0, 0.1, time.Second)
		fine.steps <- one("u", 0, 0.2, 500*time.Millisecond)
		coarse.steps <- one("u", 0, 0.3, time.Second)
		synctest.Wait()
		want(t, "the finer one", devices(s), "#0 fine 0.20 500ms")
		time.Sleep(5 * time.Second)
		coarse.steps <- one("u", 0, 0.4, time.Second)
		synctest.Wait()
		want(t, "a pause is no silence", devices(s), "#0 fine 0.20 500ms")
		time.Sleep(6 * time.Second)
		coarse.steps <- one("u", 0, 0.5, time.Second)
		synctest.Wait()
		want(t, "while it is silent", devices(s), "#0 coarse 0.50 1s")
		time.Sleep(time.Second)
		fine.steps <- one("u", 0, 0.6, 500*time.Millisecond)
		synctest.Wait()
		want(t, "when it is back", devices(s), "#0 fine 0.60 500ms")
		if d := s.Interval(); d != 500*time.Millisecond {
			t.Errorf("interval %s", d)
		}
	})
}

// Two sources of nearly one pace do not take a GPU from each other, however
// their measured paces vary.
func TestSourcesOfOnePaceTakeNoTurns(t *testing.T) {
	t.Parallel()
	x, y := newFake("x", ""), newFake("y", "")
	play(t, Options{Sources: []Source{x, y}}, func(t *testing.T, s *Sampler) {
		for i := range 10 {
			x.steps <- one("u", 0, 0.1, time.Second+time.Duration(i%2)*100*time.Millisecond)
			synctest.Wait()
			y.steps <- one("u", 0, 0.2, time.Second+time.Duration((i+1)%2)*100*time.Millisecond)
			synctest.Wait()
			if got := s.Snapshot()[0].Source; got != "x" {
				t.Fatalf("round %d: %s speaks", i, got)
			}
			time.Sleep(time.Second)
		}
	})
}

// A GPU that two sources tell of is on the machine of both, whichever speaks.
func TestOwnerBySourceThatIsSilent(t *testing.T) {
	t.Parallel()
	local, exporter := newFake("local", ""), newFake("exporter", "node1")
	for _, host := range []string{"127.0.0.1", "node1"} {
		s := New(Options{Sources: []Source{local, exporter}, Owners: []Owner{{"a", host, []int{0}}}}, nil)
		for i, every := range []time.Duration{500 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			s.take(s.feeds[i%2], one("u", 0, 0.1, every))
			if i == 0 {
				continue // only one of them is known to see it
			}
			want(t, host, devices(s), "a#0 exporter 0.10 100ms")
		}
		s.Apply(Options{Sources: []Source{exporter}, Owners: []Owner{{"a", "127.0.0.1", []int{0}}, {"b", "node1", []int{0}}}})
		want(t, "without the other", devices(s), "b#0 exporter 0.10 100ms")
	}
}

// A GPU that was replaced stays for ten minutes beside its successor; that makes
// no second machine.
func TestOwnerOfAReplacedGPU(t *testing.T) {
	t.Parallel()
	s := New(Options{Sources: []Source{newFake("x", "h9")}, Owners: []Owner{{"a", "h1", []int{0}}}}, nil)
	s.take(s.feeds[0], one("old", 0, 0.1, time.Second))
	s.take(s.feeds[0], one("new", 0, 0.1, time.Second))
	want(t, "both", devices(s), "a#0 x 0.10 1s; a#0 x 0.10 1s")
	want(t, "note", s.Note(), "")
}

// GPUs without a UUID are told apart by source and index, and sources cannot
// fill the memory.
func TestDevicesAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Options{Sources: []Source{newFake("x", ""), newFake("y", "h")}}, nil)
	for _, f := range s.feeds {
		s.take(f, one("", 0, 0, 0))
		s.take(f, one("", 1, 0, 0))
		s.take(f, one("", 1, 1, 0))
	}
	if n := len(s.devices); n != 4 {
		t.Errorf("%d devices, want 4", n)
	}
	for i := range 2 * maxDevices {
		s.take(s.feeds[0], one(fmt.Sprint("u", i), 0, 0, 0))
	}
	if n := len(s.devices); n != maxDevices {
		t.Errorf("%d devices, want %d", n, maxDevices)
	}
	long := one("v", 1, 0, 0)
	long.Samples[0].Name = strings.Repeat("x", 5000)
	s = New(Options{Sources: []Source{newFake("x", "")}}, nil)
	s.take(s.feeds[0], long)
	if n := len(s.Snapshot()[0].Name); n > 210 {
		t.Errorf("a name of %d bytes is kept", n)
	}
}

// A reload keeps what runs, stops what is gone and starts what is new.
func TestApply(t *testing.T) {
	t.Parallel()
	x, y := newFake("x", ""), newFake("y", "")
	play(t, Options{Sources: []Source{x, y}, Owners: []Owner{{"a", "", []int{0}}}}, func(t *testing.T, s *Sampler) {
		x.steps <- one("ux", 0, 0.1, time.Second)
		y.steps <- one("uy", 0, 0.2, time.Second)
		time.Sleep(time.Second)
		again, z := newFake("x", ""), newFake("z", "") // a new value for the same source
		z.steps = make(chan any)
		s.Apply(Options{Sources: []Source{again, z}, Owners: []Owner{{"b", "", []int{0}}}})
		synctest.Wait()
		want(t, "after", devices(s), "b#0 x 0.10 1s")
		if len(again.reads) != 0 || len(x.reads) != 1 || len(z.reads) != 1 {
			t.Errorf("reads: x %d, its second value %d, z %d", len(x.reads), len(again.reads), len(z.reads))
		}
		s.Apply(Options{Sources: []Source{again, z, newFake("z", "")}, Owners: []Owner{{"b", "", []int{0}}}}) // listed twice
		z.steps <- one("uz", 0, 0.3, time.Second)
		synctest.Wait()
		want(t, "new source", devices(s), "b#0 x 0.10 1s; b#0 z 0.30 1s")
		select {
		case y.steps <- nil:
			t.Error("a source that is gone is still read")
		default:
		}
		s.Apply(Options{Off: true})
		synctest.Wait()
		want(t, "off", devices(s), "")
		want(t, "off says so", s.Note(), "gpu.source is off; set gpu.source: auto to see the GPUs")
	})
}

// A Sampler that never ran can be reloaded, read and thrown away.
func TestApplyBeforeRun(t *testing.T) {
	t.Parallel()
	s := New(Options{Sources: []Source{newFake("x", "")}}, nil)
	s.Apply(Options{Sources: []Source{newFake("y", "")}})
	want(t, "note", s.Note(), "y: nothing received yet")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
}
