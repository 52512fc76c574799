package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"ramjet/route"
)

// Record is a decision as it was written, with all that it went by.
type Record = route.Record

// Settings are what decisions go by.
type Settings = route.Settings

// Explanation is a decision, made or made again.
type Explanation = route.Explanation

// Summary is what Read found.
type Summary struct {
	Files   int
	Records int
	// Cut names the files that end early: the one being written, those of a
	// process that was killed, and damaged ones. Everything before was read.
	Cut []string
}

const (
	// maxLine bounds one record: one of 64 engines takes about 60 KB.
	maxLine = 1 << 20
	// maxWindow bounds what a file can make a reader allocate: the frames that
	// a Journal writes want 256 KiB.
	maxWindow = 8 << 20
)

// errCut ends the reading of a file that is not whole.
var errCut = errors.New("the file ends early")

// Read gives each whole record of a journal's folder, or of one of its files, in
// the order in which they were written. It stops at an error of each, and at a
// whole line that is no record.
func Read(path string, each func(*Record) error) (Summary, error) {
	var sum Summary
	info, err := os.Stat(path)
	if err != nil {
		return sum, fmt.Errorf("cannot read the journal: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		names, err := list(path)
		if err != nil {
			return sum, err
		}
		files = files[:0]
		for _, name := range names {
			files = append(files, filepath.Join(path, name))
		}
	}
	for _, name := range files {
		err := readFile(name, &sum, each)
		switch {
		case errors.Is(err, errCut):
			sum.Cut = append(sum.Cut, filepath.Base(name))
		case info.IsDir() && errors.Is(err, fs.ErrNotExist):
			continue // its time had come while the others were read
		case err != nil:
			return sum, err
		}
		sum.Files++
	}
	return sum, nil
}

func readFile(name string, sum *Summary, each func(*Record) error) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	defer func() { _ = f.Close() }()
	return read(f, filepath.Base(name), sum, each)
}

// read gives each whole record of one file's bytes.
func read(from io.Reader, name string, sum *Summary, each func(*Record) error) error {
	plain, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, errors.Join(errCut, err))
	}
	defer plain.Close()
	lines := bufio.NewReaderSize(plain, 64<<10)
	var line []byte
	for number := 1; ; number++ {
		line = line[:0]
		for {
			part, err := lines.ReadSlice('\n')
			line = append(line, part...)
			if err == nil {
				break
			}
			if errors.Is(err, bufio.ErrBufferFull) && len(line) < maxLine {
				continue
			}
			if errors.Is(err, io.EOF) && len(line) == 0 && number > 1 {
				return nil
			}
			return fmt.Errorf("cannot read %s beyond line %d: %w", name, number-1, errors.Join(errCut, err))
		}
		r, err := route.ReadRecord(line)
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", name, number, err)
		}
		sum.Records++
		if err := each(r); err != nil {
			return err
		}
	}
}
