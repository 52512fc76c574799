package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/zeebo/xxh3"

	"ramjet/config"
	"ramjet/telemetry"
)

// readFiles are the files that a reload reads again: the configuration itself
// and the secrets that it names.
func readFiles(cfg *config.Config) []string {
	var files []string
	if cfg.File() != "" {
		files = append(files, cfg.File())
	}
	tokenizer := []string{cfg.Tokens.Path, cfg.Tokens.ChatTemplate}
	_ = cfg.CheckFiles(func(path string) error {
		if !slices.Contains(files, path) && !slices.Contains(tokenizer, path) {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// prints are fingerprints of files' contents by their names.
type prints map[string]uint64

// printsOf takes them now. A file that cannot be read has one too.
func printsOf(names []string) prints {
	p := prints{}
	for _, name := range names {
		p[name] = printOf(name)
	}
	return p
}

// mostPrinted bounds what is read of one file; configurations and keys are far
// shorter.
const mostPrinted = 16 << 20

func printOf(name string) uint64 {
	f, err := os.Open(name)
	if err != nil {
		return 1
	}
	defer func() { _ = f.Close() }()
	h := xxh3.New()
	if _, err := io.Copy(h, io.LimitReader(f, mostPrinted)); err != nil {
		return 2
	}
	return h.Sum64()
}

// endsLine reports whether the last character of a file ends a line; one that
// cannot be read is left to those who say why.
func endsLine(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }()
	var last [1]byte
	if _, err := f.Seek(-1, io.SeekEnd); err != nil {
		info, err := f.Stat()
		return err != nil || info.Size() > 0
	}
	_, err = f.Read(last[:])
	return err != nil || last[0] == '\n'
}

// Times of the watch over files.
const (
	// fileQuiet is how long nothing must happen to a file before it is read:
	// an editor, or a copy, writes in several steps.
	fileQuiet = 200 * time.Millisecond
	// fileLongest bounds the wait while it goes on and on.
	fileLongest = 2 * time.Second
	// fileMissing is how often a file is looked for that is not there.
	fileMissing = 2 * time.Second
)

// fileWatch calls changed when something happened to files or to a link on the
// way to one: they are written, replaced by a rename, or Kubernetes swaps the
// link ..data that leads to all files of a volume.
type fileWatch struct {
	files   func() []string
	changed func()
	log     *telemetry.Log
	fs      *fsnotify.Watcher

	mu    sync.Mutex      // guards what follows
	names map[string]bool // whose change counts
	dirs  map[string]bool // that are watched
	whole bool            // nothing was missing at the last look
}

// newFileWatch returns nil, and says so in the log, where the system has no
// room for another watch.
func newFileWatch(log *telemetry.Log, files func() []string, changed func()) *fileWatch {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changes of the configuration's files are not noticed: send SIGHUP, or POST /-/reload", "error", err.Error())
		return nil
	}
	w := &fileWatch{files: files, changed: changed, log: log, fs: fs, dirs: map[string]bool{}}
	w.rescan()
	return w
}

// run watches until ctx ends.
func (w *fileWatch) run(ctx context.Context) {
	touched := make(chan struct{}, 1)
	touch := func() {
		select {
		case touched <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = w.fs.Close() }()
	wg.Go(func() {
		again := func() {
			if !w.complete() {
				time.AfterFunc(fileMissing, touch)
			}
		}
		again()
		settle(ctx, touched, fileQuiet, fileLongest, func() {
			w.rescan()
			again()
			w.changed()
		})
	})
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if w.counts(ev.Name) {
				touch()
			}
		case err, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.log.Throttled("files", telemetry.LevelWarn, "cannot watch the configuration's files", "error", err.Error())
			}
			touch() // what was lost may have been a change
		}
	}
}

// counts reports whether an event's file is one of ours, or leads to one.
func (w *fileWatch) counts(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirs[name] {
		delete(w.dirs, name) // the folder itself is another one by now, or gone
		_ = w.fs.Remove(name)
		return true
	}
	return w.names[name]
}

// rescan finds out anew which names lead to the files, and watches the folders
// that hold them.
func (w *fileWatch) rescan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	whole := true
	w.names = map[string]bool{}
	dirs := map[string]bool{}
	for _, file := range w.files() {
		names, found := hops(file)
		whole = whole && found
		for _, name := range names {
			w.names[name] = true
			dirs[filepath.Dir(name)] = true
		}
	}
	for dir := range w.dirs {
		if !dirs[dir] {
			_ = w.fs.Remove(dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if w.dirs[dir] {
			continue
		}
		if err := w.fs.Add(dir); err != nil {
			w.log.Throttled("files", telemetry.LevelWarn, "cannot watch the configuration's files", "folder", dir, "error", err.Error())
			delete(dirs, dir)
			whole = false
		}
	}
	w.dirs, w.whole = dirs, whole
}

// complete reports whether all files are there, and their folders watched.
func (w *fileWatch) complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole
}

// mostLinks bounds the links on the way to a file, as Linux does.
const mostLinks = 40

// hops returns the names whose change can make path lead to another content:
// every link on the way and the file at its end, or the first name that is
// missing.
func hops(path string) (names []string, found bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, false
	}
	for range mostLinks {
		dir, rest, link := string(filepath.Separator), strings.TrimPrefix(path, string(filepath.Separator)), false
		for !link {
			name, after, more := strings.Cut(rest, string(filepath.Separator))
			at := filepath.Join(dir, name)
			info, err := os.Lstat(at)
			if err != nil {
				return append(names, at), false
			}
			if link = info.Mode()&os.ModeSymlink != 0; link {
				target, err := os.Readlink(at)
				if err != nil {
					return append(names, at), false
				}
				if !filepath.IsAbs(target) {
					target = filepath.Join(dir, target)
				}
				names, path = append(names, at), filepath.Join(target, after)
			} else if !more {
				return append(names, at), true
			}
			dir, rest = at, after
		}
	}
	return names, false
}

// settle calls do once nothing was touched for the time quiet, or after the
// time longest while it goes on, until ctx ends.
func settle(ctx context.Context, touched <-chan struct{}, quiet, longest time.Duration, do func()) {
	var first time.Time
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-touched:
			if first.IsZero() {
				first = time.Now()
			}
			timer.Reset(min(quiet, longest-time.Since(first)))
		case <-timer.C:
			first = time.Time{}
			do()
		}
	}
}
