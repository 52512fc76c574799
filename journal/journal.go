// Package journal keeps the records of decisions on disk, for those who want to
// know afterwards why, or what other settings would have chosen: lines of JSON in
// compressed files of bounded size and number. A Journal is safe for concurrent
// use. Record copies and returns: it never waits for the disk, and what does not
// fit the queue is dropped and counted. The package keeps no text of a prompt and
// no key of a block, and never appends to a file of an earlier start.
package journal

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/route"
)

// Options say where and how much is kept.
type Options struct {
	// Dir is the folder of the files; it is made when it is not there. One
	// process alone may write there.
	Dir string
	// MaxBytes bounds one file; a file holds one record at least.
	MaxBytes int64
	// Files is how many files are kept, the one being written among them.
	Files int
	// Trouble is told when records are lost, at most once a second, from the
	// journal's own goroutine: how many since the last time, and the error of
	// the disk, nil when the queue was full. nil: nobody is told.
	Trouble func(lost uint64, err error)
}

const (
	// queueSize is how many records wait at most: at 10,000 requests a second
	// the writer may be away for a tenth of one. With two engines they take
	// about 1 MiB.
	queueSize = 1024
	// flushEvery is how old a record becomes before it is on disk (CONTRACT
	// 10.13).
	flushEvery = time.Second
	// closeWait is how long Close waits for a disk that takes nothing, and
	// lastWaits how many times that once the queue is empty: what is left is a
	// write or two, and one that is long says nothing before its end.
	closeWait = 2 * time.Second
	lastWaits = 10
)

// Journal writes records until it is closed.
type Journal struct {
	o    Options
	wake chan struct{} // the queue is not empty any more
	full chan struct{} // it is half full
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu    sync.Mutex // guards what follows
	queue []route.Explanation
	first int // the oldest
	count int
	ended bool

	written, dropped atomic.Uint64

	// What follows belongs to the writing goroutine, but for out.moved.
	out    output
	taken  route.Explanation
	line   []byte
	broken error  // of the disk, since the last flush
	told   uint64 // of dropped, to Trouble
}

// Open begins a journal in o.Dir. The first file is made with the first record,
// so that starts without requests push nothing out.
func Open(o Options) (*Journal, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the journal's folder: %w", err)
	}
	// Better now than with the first request.
	probe, err := os.CreateTemp(o.Dir, ".writable-*")
	if err != nil {
		return nil, fmt.Errorf("cannot write to the journal's folder: %w", err)
	}
	_ = probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return nil, fmt.Errorf("cannot write to the journal's folder: %w", err)
	}
	j := &Journal{
		o: o, queue: make([]route.Explanation, queueSize),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		out: output{dir: o.Dir, max: o.MaxBytes, keep: max(o.Files, 1)},
	}
	go j.run()
	return j, nil
}

// Record keeps a copy of x. It never blocks on the disk and allocates nothing
// once the queue has held records of the same size.
func (j *Journal) Record(x *route.Explanation) {
	j.mu.Lock()
	if j.ended || j.count == len(j.queue) {
		j.mu.Unlock()
		j.dropped.Add(1)
		return
	}
	x.CopyTo(&j.queue[(j.first+j.count)%len(j.queue)])
	j.count++
	count := j.count
	j.mu.Unlock()
	// The writer is not woken for every record: a switch of threads costs more
	// than the record.
	switch count {
	case 1:
		signal(j.wake)
	case queueSize / 2:
		signal(j.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Written returns how many records went to the disk's files; those of the last
// second may be on their way yet.
func (j *Journal) Written() uint64 { return j.written.Load() }

// Dropped returns how many records were lost: the queue was full, the disk
// failed, or the journal was closed.
func (j *Journal) Dropped() uint64 { return j.dropped.Load() }

// Close writes what waits and ends the journal. A slow disk gets its time; one
// that takes nothing for two seconds, or for twenty once no record waits, is left
// to itself. Records that come later are dropped. A second call does nothing.
func (j *Journal) Close() {
	j.once.Do(func() { close(j.stop) })
	t := time.NewTicker(closeWait)
	defer t.Stop()
	still := 0
	for before := j.standing(); ; {
		select {
		case <-j.done:
			return
		case <-t.C:
		}
		now := j.standing()
		if still++; now != before {
			before, still = now, 0
		} else if now.waiting > 0 || still == lastWaits {
			return
		}
	}
}

// standing is how far the writing is: what changes while it goes on.
type standing struct {
	waiting int   // records in the queue
	moved   int64 // bytes written: what left the queue may be in the encoder
}

func (j *Journal) standing() standing {
	j.mu.Lock()
	defer j.mu.Unlock()
	return standing{j.count, j.out.moved.Load()}
}

// run writes once a second while there is something to write, and sleeps
// otherwise.
func (j *Journal) run() {
	defer close(j.done)
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	for {
		select {
		case <-j.wake:
		case <-j.stop:
			j.finish()
			return
		}
		timer.Reset(flushEvery)
		for waiting := true; waiting; {
			select {
			case <-timer.C:
				waiting = false
			case <-j.full:
				j.drain()
			case <-j.stop:
				j.finish()
				return
			}
		}
		j.drain()
		j.flush()
	}
}

func (j *Journal) finish() {
	j.mu.Lock()
	j.ended = true
	j.mu.Unlock()
	j.drain()
	j.flush()
	if err := j.out.close(); err != nil {
		j.lose(err)
		j.tell()
	}
}

// drain writes all that waits.
func (j *Journal) drain() {
	for j.take() {
		j.line = append(j.taken.AppendRecord(j.line[:0]), '\n')
		if j.broken != nil {
			j.dropped.Add(1) // until the next flush: a full disk is not asked for each record
			continue
		}
		if err := j.out.write(j.line); err != nil {
			j.lose(err)
			j.dropped.Add(1)
			continue
		}
		j.written.Add(1)
	}
}

// take moves the oldest waiting record into taken.
func (j *Journal) take() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.count == 0 {
		return false
	}
	j.taken, j.queue[j.first] = j.queue[j.first], j.taken
	j.first = (j.first + 1) % len(j.queue)
	j.count--
	return true
}

func (j *Journal) flush() {
	if j.broken == nil {
		if err := j.out.flush(); err != nil {
			j.lose(err)
		}
	}
	j.tell()
	j.broken = nil
}

// lose gives up the present file with what was not flushed to it. The next
// record begins another one.
func (j *Journal) lose(err error) {
	lost := j.out.abandon()
	j.written.Add(-lost)
	j.dropped.Add(lost)
	j.broken = err
}

func (j *Journal) tell() {
	if lost := j.dropped.Load(); lost > j.told {
		if j.o.Trouble != nil {
			j.o.Trouble(lost-j.told, j.broken)
		}
		j.told = lost
	}
}
