package gpu

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"ramjet/telemetry"
)

// Kept is how far back Series reaches.
const Kept = 10 * time.Minute

const (
	// ringSize holds Kept at 2 Hz.
	ringSize = int(Kept / (500 * time.Millisecond))
	// maxDevices bounds what sources can make a Sampler hold: 200 engines with
	// eight GPUs each. A full ring takes 40 KiB.
	maxDevices = 1600
	// Devices that fell silent are looked for so often, and dropped once nothing
	// of them is shown any more; while there is no room for others, sooner: a
	// source that makes up devices must not keep real ones out.
	sweepEvery  = 10 * time.Second
	silentLimit = time.Minute
	// A source that broke is read again after pauseMin, doubled up to pauseMax
	// while it keeps breaking before it has run for steady.
	pauseMin = time.Second
	pauseMax = 30 * time.Second
	steady   = 10 * time.Second
)

// Owner is an engine and the GPUs that it runs on.
type Owner struct {
	Engine string
	Host   string // of the engine's URL, without port
	GPUs   []int
}

// Options say what a Sampler reads and for whom.
type Options struct {
	Sources []Source // of several with one name the first counts
	Owners  []Owner
	// Off is set if sampling is switched off; Note then says so.
	Off bool
}

// Sampler keeps what its sources deliver.
type Sampler struct {
	log *telemetry.Log

	mu      sync.Mutex // guards the following
	off     bool
	owners  []Owner
	feeds   []*feed
	devices map[string]*device // by UUID, else by source and index
	swept   time.Time          // when silent ones were looked for last
	start   func(f *feed)      // nil while Run does not run
}

// feed is a source and how it does. The Sampler's mutex guards what follows
// the source.
type feed struct {
	Source
	stop     context.CancelFunc // nil while it does not run
	gone     bool               // no longer among the sources
	trouble  string             // why it delivers nothing, "" = it does, or has not tried yet
	spoke    bool               // it has delivered
	interval time.Duration      // 0 = not known
}

// device is one GPU.
type device struct {
	feed  *feed   // who speaks for it
	seen  []*feed // all that told of it
	last  Sample
	heard time.Time // when the last sample came; At may be the source's clock
	ring  ring
}

// New returns a Sampler that knows nothing yet. log may be nil.
func New(o Options, log *telemetry.Log) *Sampler {
	s := &Sampler{log: log, devices: map[string]*device{}}
	s.Apply(o)
	return s
}

// Apply replaces sources and owners, as after a reload. A source of the same
// name as before runs on, with its history; the others stop or start.
func (s *Sampler) Apply(o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = o.Off
	old := s.feeds
	s.feeds = nil
	for _, source := range o.Sources {
		if slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.Name() == source.Name() }) {
			continue // listed twice
		}
		i := slices.IndexFunc(old, func(f *feed) bool { return f.Name() == source.Name() })
		if i >= 0 {
			s.feeds = append(s.feeds, old[i])
			old = slices.Delete(old, i, i+1)
			continue
		}
		f := &feed{Source: source}
		s.feeds = append(s.feeds, f)
		if s.start != nil {
			s.start(f)
		}
	}
	s.owners = slices.Clone(o.Owners)
	for _, f := range old {
		f.gone = true
		if f.stop != nil {
			f.stop()
		}
	}
	for key, d := range s.devices {
		d.seen = slices.DeleteFunc(d.seen, func(f *feed) bool { return f.gone })
		if d.feed.gone {
			delete(s.devices, key)
		}
	}
}

// Run reads the sources until ctx ends. It returns when all of them are at
// rest. It is called once.
func (s *Sampler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	start := func(f *feed) {
		one, stop := context.WithCancel(ctx)
		f.stop = stop
		wg.Go(func() { s.read(one, f) })
	}
	s.mu.Lock()
	s.start = start
	for _, f := range s.feeds {
		start(f)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.start = nil
	for _, f := range s.feeds {
		f.stop()
	}
	s.mu.Unlock()
	wg.Wait()
}

// read keeps one source going.
func (s *Sampler) read(ctx context.Context, f *feed) {
	pause := pauseMin
	for ctx.Err() == nil {
		from := time.Now()
		err := f.Read(ctx, func(r Reading) { s.take(f, r) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errEnded
		}
		if time.Since(from) >= steady {
			pause = pauseMin
		}
		s.broke(f, err, pause)
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
		pause = min(2*pause, pauseMax)
	}
}

var errEnded = errors.New("it ended")

func (s *Sampler) broke(f *feed, err error, pause time.Duration) {
	s.log.Throttled("gpu "+f.Name(), telemetry.LevelWarn, "no GPU figures", "source", f.Name(), "reason", err, "again_in", pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.trouble = err.Error()
}

// take keeps a reading.
func (s *Sampler) take(f *feed, r Reading) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.gone {
		return
	}
	if f.trouble != "" {
		s.log.Info("GPU figures are back", "source", f.Name())
	}
	f.trouble, f.interval, f.spoke = "", r.Interval, true
	s.sweepLocked(now)
	for _, sample := range r.Samples {
		s.keepLocked(f, sample, now)
	}
}

// sweepLocked drops devices that fell silent.
func (s *Sampler) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	limit := Kept
	if len(s.devices) >= maxDevices {
		limit = silentLimit
	}
	for key, d := range s.devices {
		if now.Sub(d.heard) > limit {
			delete(s.devices, key)
		}
	}
}

func (s *Sampler) keepLocked(f *feed, sample Sample, now time.Time) {
	if sample.At.IsZero() {
		sample.At = now
	}
	sample.Name, sample.UUID = clip(sample.Name), clip(sample.UUID)
	key := cmp.Or(sample.UUID, f.Name()+" "+strconv.Itoa(sample.Index))
	d := s.devices[key]
	if d == nil && len(s.devices) >= maxDevices {
		return
	}
	if d == nil {
		d = &device{feed: f}
		s.devices[key] = d
	}
	if !slices.Contains(d.seen, f) {
		d.seen = append(d.seen, f)
	}
	if d.feed != f && !takesOver(f, d, now) {
		return
	}
	d.feed, d.last, d.heard = f, sample, now
	d.ring.add(sample)
}

// takesOver decides between two sources that see the same GPU: the finer one
// speaks for it, the other only while that one is silent. Two of nearly one
// pace do not take turns, since what is measured of either varies.
func takesOver(f *feed, d *device, now time.Time) bool {
	was, is := d.feed.interval, f.interval
	if silent := max(3*was, 2*dcgmSteady); now.Sub(d.heard) > silent {
		return true
	}
	return is > 0 && (was == 0 || is < was*3/4)
}

// Snapshot returns the newest sample of every GPU heard of in the last ten
// minutes, once for each engine that runs on it, sorted by engine and index.
func (s *Sampler) Snapshot() []Device {
	oldest := time.Now().Add(-Kept)
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Device
	for d, names := range s.ownersLocked() {
		if d.heard.Before(oldest) {
			continue
		}
		for _, name := range names {
			v := &d.last
			list = append(list, Device{
				Engine: name, Index: v.Index, Name: v.Name, Utilization: v.Utilization,
				MemoryUsedBytes: v.MemoryUsedBytes, MemoryTotalBytes: v.MemoryTotalBytes,
				PowerW: v.PowerW, PowerLimitW: v.PowerLimitW, TemperatureC: v.TemperatureC,
				SMClockHz: v.SMClockHz, Throttle: v.Throttle, At: v.At,
				Source: d.feed.Name(), Interval: d.feed.interval,
			})
		}
	}
	slices.SortFunc(list, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Source, b.Source))
	})
	return list
}

// Series returns what was sampled after since, ten minutes at most, in the
// order of Snapshot. A GPU without a sample in that time is left out.
func (s *Sampler) Series(since time.Time) []Series {
	if oldest := time.Now().Add(-Kept); since.Before(oldest) {
		since = oldest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Series
	for d, names := range s.ownersLocked() {
		for _, name := range names {
			one := Series{Engine: name, Index: d.last.Index, Source: d.feed.Name(), Interval: d.feed.interval}
			if d.ring.after(since, &one); len(one.Times) > 0 {
				list = append(list, one)
			}
		}
	}
	slices.SortFunc(list, func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Source, b.Source))
	})
	return list
}

// Interval returns the shortest time between two measurements of any source; 0
// while none is known.
func (s *Sampler) Interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var least time.Duration
	for _, f := range s.feeds {
		if f.interval > 0 && (least == 0 || f.interval < least) {
			least = f.interval
		}
	}
	return least
}
