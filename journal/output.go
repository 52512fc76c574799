package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	prefix, suffix = "ramjet-", ".jsonl.zst"
	// stampForm sorts by time; the number behind it tells files of one
	// millisecond apart, and orders those made while the clock was set back.
	stampForm = "20060102T150405.000Z"
	// slack is what a flush adds to a file at most beside what was written: a
	// frame's header and checksum, and the header of each block of 128 KiB
	// (RFC 8878, section 3.1.1).
	slack = 128
	// window is how far back repetitions are found: some hundred records.
	window = 256 << 10
)

// output is the file being written. Each file is one zstd frame; a flush ends a
// block of it, so that everything before a cut can be read (RFC 8878, section
// 3.1.1.2). Nothing is synced before the file is closed: a crash of the process
// loses no flushed record, one of the machine may lose the last seconds.
type output struct {
	dir  string
	max  int64
	keep int

	file    file // nil before the first record, and after an error
	encoder *zstd.Encoder
	size    int64 // bytes in the file
	pending int64 // bytes given to the encoder since the last flush
	lines   uint64
	fill    bool // the file holds a record
	flushed bool // of which some can be read

	moved atomic.Int64 // bytes written, to all files; read by anybody
}

// file is what an output needs of an os.File.
type file interface {
	io.WriteCloser
	Sync() error
	Name() string
}

// Write counts what the encoder puts into the file.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	o.size += int64(n)
	o.moved.Add(int64(n))
	return n, err
}

// write adds one line, to a new file where the present one has no room. A line
// never shrinks to more than itself, so that the bound holds whatever the lines
// are.
func (o *output) write(line []byte) error {
	need := int64(len(line)) + slack
	if o.file != nil && o.size+o.pending+need > o.max {
		if err := o.flush(); err != nil {
			return err
		}
		if o.fill && o.size+need > o.max {
			if err := o.close(); err != nil {
				return err
			}
		}
	}
	if o.file == nil {
		if err := o.open(); err != nil {
			return err
		}
	}
	if _, err := o.encoder.Write(line); err != nil {
		return fmt.Errorf("cannot write to the journal: %w", err)
	}
	o.pending += int64(len(line)) + int64(len(line))/1024 // headers of blocks are far less
	o.lines++
	o.fill = true
	return nil
}

// flush puts all that was written into the file.
func (o *output) flush() error {
	if o.file == nil || o.pending == 0 {
		return nil
	}
	if err := o.encoder.Flush(); err != nil {
		return fmt.Errorf("cannot write to the journal: %w", err)
	}
	o.pending, o.lines, o.flushed = 0, 0, true
	return nil
}

// close ends the file whole.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	err := o.encoder.Close()
	if err == nil {
		err = o.file.Sync()
	}
	if closed := o.file.Close(); err == nil {
		err = closed
	}
	o.file = nil
	if err != nil {
		return fmt.Errorf("cannot close a journal file: %w", err)
	}
	o.lines = 0
	return nil
}

// abandon gives up the file as it is and returns how many lines are not in it.
// One to which nothing was flushed goes: on a full disk each attempt would
// leave such a file, and push one with records out.
func (o *output) abandon() (lost uint64) {
	if o.file != nil {
		_ = o.file.Close()
		if !o.flushed {
			_ = os.Remove(o.file.Name())
		}
		o.file = nil
	}
	lost, o.lines = o.lines, 0
	return lost
}

// open removes the oldest files beyond those to keep and begins a new one.
func (o *output) open() error {
	old, err := list(o.dir)
	if err != nil {
		return err
	}
	newest := ""
	if len(old) > 0 {
		newest = old[len(old)-1]
	}
	for ; len(old) >= o.keep; old = old[1:] {
		if err := os.Remove(filepath.Join(o.dir, old[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove an old journal file: %w", err)
		}
	}
	name := nameAfter(newest, time.Now())
	made, err := os.OpenFile(filepath.Join(o.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make a journal file: %w", err)
	}
	o.file = made
	o.size, o.pending, o.lines, o.fill, o.flushed = 0, 0, 0, false, false
	if o.encoder == nil {
		// One at a time: the journal has its own goroutine, and more would
		// take memory and time from requests.
		o.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic("BUG: the options of the compressor: " + err.Error())
		}
	}
	o.encoder.Reset(o)
	return nil
}

// nameAfter names a file begun at now, so that it sorts behind newest.
func nameAfter(newest string, now time.Time) string {
	stamp, number, ok := parts(newest)
	if next := now.UTC().Format(stampForm); !ok || next > stamp {
		stamp, number = next, -1
	}
	return fmt.Sprintf("%s%s-%06d%s", prefix, stamp, number+1, suffix)
}

// parts takes a name apart that nameAfter made.
func parts(name string) (stamp string, number int, ok bool) {
	stem, begins := strings.CutPrefix(name, prefix)
	stem, ends := strings.CutSuffix(stem, suffix)
	stamp, tail, ok := strings.Cut(stem, "-")
	if !begins || !ends || !ok || len(tail) != 6 {
		return "", 0, false
	}
	if _, err := time.Parse(stampForm, stamp); err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(tail, 10, 32)
	return stamp, int(n), err == nil //nolint:gosec // six digits
}

// list returns the names of a folder's journal files, the oldest first. Files
// of others are left alone.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal's folder: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, _, ok := parts(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
