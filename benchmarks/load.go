package benchmarks

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Load modes.
const (
	ModeStream = "stream" // every connection makes Requests streams, one after another
	ModeShort  = "short"  // closed loop of answers without streaming, for Seconds
	ModePrompt = "prompt" // every connection sends Requests prompts of Prompts, one after another, for answers without streaming
	ModeWhole  = "whole"  // as ModeStream on any engine: only the duration of each answer is taken, and starts are Apart
)

// LoadSpec is one run of the load generator.
type LoadSpec struct {
	Mode string `json:"mode"`
	// Targets are HOST:PORT; connection i uses target i modulo their number.
	Targets []string `json:"targets"`
	// Streams is the number of connections at once.
	Streams int `json:"streams"`
	// Requests is how many streams each connection makes (ModeStream), after Warm ones that are not recorded.
	Requests int `json:"requests,omitempty"`
	Warm     int `json:"warm,omitempty"`
	// Tokens, PaceMicros and FirstMicros are those of Ask.
	Tokens      int `json:"tokens"`
	PaceMicros  int `json:"pace_us"`
	FirstMicros int `json:"first_us"`
	// NewConnections opens a connection for every request and asks the other side to close it.
	NewConnections bool `json:"new_connections,omitempty"`
	// Prompts are what ModePrompt sends.
	Prompts *PromptSpec `json:"prompts,omitempty"`
	// ApartMicros is the time between the starts of two connections in ModeWhole.
	ApartMicros int `json:"apart_us,omitempty"`
	// Seconds bounds ModeShort.
	Seconds float64 `json:"seconds,omitempty"`
	// Seed makes the requests of this run differ from those of other runs.
	Seed uint64 `json:"seed"`
}

// LoadResult is what one run of the load generator saw. Times are nanoseconds.
type LoadResult struct {
	// Requests and Tokens count everything that crossed the proxy, warm-up included: CPU is divided by them.
	Requests int64 `json:"requests"`
	Tokens   int64 `json:"tokens"`
	// Errors counts failed requests; FirstError is the text of one of them.
	Errors     int64   `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	Seconds    float64 `json:"seconds"`
	// TTFT is the way of a request to the engine plus the way of its first event back: the engine's own wait between the
	// two is taken out by its stamps, and with it the jitter of its timer.
	TTFT Quantiles `json:"ttft"`
	// OneWay is engine's write to client's read, of every event but the first.
	OneWay Quantiles `json:"one_way"`
	// Whole is the duration of a request.
	Whole Quantiles `json:"whole"`
	// MeanNanos is the mean of those durations.
	MeanNanos int64 `json:"mean_ns,omitempty"`
}

// Load runs spec and returns what it saw. Failed requests are counted, not returned as an error; the error is about
// the run itself.
func Load(spec LoadSpec) (LoadResult, error) {
	clk, err := newClock()
	if err != nil {
		return LoadResult{}, err
	}
	if len(spec.Targets) == 0 || spec.Streams < 1 {
		return LoadResult{}, errors.New("cannot run the load: no target or no stream")
	}
	switch spec.Mode {
	case ModeStream, ModeShort, ModePrompt, ModeWhole:
	default:
		return LoadResult{}, fmt.Errorf("cannot run the load: unknown mode %q", spec.Mode)
	}
	if (spec.Mode == ModePrompt) != (spec.Prompts != nil) {
		return LoadResult{}, errors.New("cannot run the load: prompts are what mode prompt sends, and no other")
	}
	workers := make([]*loader, spec.Streams)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range workers {
		w := &loader{spec: spec, index: i, client: newClient(clk, spec.Targets[i%len(spec.Targets)])}
		workers[i] = w
		wg.Go(func() {
			switch spec.Mode {
			case ModeStream:
				w.streams()
			case ModeShort:
				w.short(begin.Add(time.Duration(spec.Seconds * float64(time.Second))))
			case ModePrompt:
				w.prompts()
			case ModeWhole:
				w.wholes()
			}
			w.client.close()
		})
	}
	wg.Wait()
	return gather(workers, time.Since(begin)), nil
}

func gather(workers []*loader, took time.Duration) LoadResult {
	var res LoadResult
	var ttft, oneWay, whole []int64
	for _, w := range workers {
		res.Requests += w.requests
		res.Tokens += w.tokens
		res.Errors += w.errors
		if w.first != nil && res.FirstError == "" {
			res.FirstError = w.first.Error()
		}
		ttft = append(ttft, w.ttft...)
		oneWay = append(oneWay, w.oneWay...)
		whole = append(whole, w.whole...)
	}
	res.Seconds = took.Seconds()
	for _, v := range whole {
		res.MeanNanos += v / int64(len(whole))
	}
	res.TTFT, res.OneWay, res.Whole = quantilesOf(ttft), quantilesOf(oneWay), quantilesOf(whole)
	return res
}

// loader is one connection's worth of load, owned by one goroutine.
type loader struct {
	spec   LoadSpec
	index  int
	client *client

	requests, tokens, errors int64
	first                    error
	ttft, oneWay, whole      []int64
}

func (l *loader) ask(n int) Ask {
	return Ask{
		// Nine digits are left for the run, so that no two requests of a session of measurements are alike.
		Seed:   l.spec.Seed%1_000_000*1_000_000_000 + uint64(l.index)*100_000 + uint64(n),
		Tokens: l.spec.Tokens, PaceMicros: l.spec.PaceMicros, FirstMicros: l.spec.FirstMicros, Stream: l.spec.Mode == ModeStream,
	}
}

// limit is far beyond what a healthy proxy needs: a stuck stream ends as an error instead of hanging the run.
func (l *loader) limit() time.Duration {
	return 15*time.Second + 2*time.Duration(l.spec.FirstMicros+l.spec.Tokens*l.spec.PaceMicros)*time.Microsecond
}

func (l *loader) streams() {
	// The starts are spread over one pace, so that streams do not fall into step.
	time.Sleep(time.Duration(l.spec.PaceMicros) * time.Microsecond * time.Duration(l.index) / time.Duration(l.spec.Streams))
	for n := range l.spec.Warm + l.spec.Requests {
		l.stream(l.ask(n), n >= l.spec.Warm)
	}
}

// stream makes one request and records it if keep is set.
func (l *loader) stream(ask Ask, keep bool) {
	start := l.client.clock.now()
	err := l.client.do(ask, l.spec.NewConnections, l.limit(), func(i int, sent, received int64) {
		l.tokens++
		switch {
		case !keep:
		case i == 0:
			l.ttft = append(l.ttft, received-start+l.client.readAt-sent)
		default:
			l.oneWay = append(l.oneWay, l.client.readAt-sent)
		}
	})
	l.requests++
	if err != nil {
		l.fail(err)
	} else if keep {
		l.whole = append(l.whole, l.client.clock.now()-start)
	}
}

func (l *loader) short(until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		start := l.client.clock.now()
		err := l.client.do(l.ask(n), l.spec.NewConnections, l.limit(), nil)
		l.requests++
		if err != nil {
			l.fail(err)
			continue
		}
		l.tokens += int64(l.spec.Tokens)
		l.whole = append(l.whole, l.client.clock.now()-start)
	}
}

func (l *loader) fail(err error) {
	l.errors++
	if l.first == nil {
		l.first = err
	}
	time.Sleep(10 * time.Millisecond) // a refused connection must not become a busy loop
}
