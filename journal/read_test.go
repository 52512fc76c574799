package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// smallFile writes a file of some flushes; flushed[i] is how many records the
// first i bytes hold at least.
func smallFile(t testing.TB) (text []byte, flushed []int, records int) {
	t.Helper()
	dir := t.TempDir()
	d := newDecider(t, 2)
	o := output{dir: dir, max: 1 << 20, keep: 2}
	size := func() int {
		text, err := os.ReadFile(filepath.Join(dir, names(t, dir)[0]))
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	whole := 0
	for _, n := range []int{1, 3, 1, 5} {
		for range n {
			if err := o.write(append(d.next(t).AppendRecord(nil), '\n')); err != nil {
				t.Fatal(err)
			}
			records++
		}
		if err := o.flush(); err != nil {
			t.Fatal(err)
		}
		for end := size(); len(flushed) < end; {
			flushed = append(flushed, whole)
		}
		whole = records
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	for end := size(); len(flushed) <= end; {
		flushed = append(flushed, whole)
	}
	text, err := os.ReadFile(filepath.Join(dir, names(t, dir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return text, flushed, records
}

// readAll returns the ids of a file's bytes.
func readAll(text []byte) (got []string, cut bool, err error) {
	var sum Summary
	err = read(bytes.NewReader(text), "f", &sum, func(r *Record) error { got = append(got, string(r.RequestID)); return nil })
	if errors.Is(err, errCut) {
		return got, true, nil
	}
	return got, false, err
}

// TestCutAnywhere: a file that ends at any byte is read up to its last whole
// record, and nothing that was flushed is missing.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	text, flushed, records := smallFile(t)
	for i := range len(text) + 1 {
		got, cut, err := readAll(text[:i])
		if err != nil {
			t.Fatalf("cut at byte %d of %d: %v", i, len(text), err)
		}
		if !slices.Equal(got, upTo(0, len(got))) || len(got) < flushed[i] {
			t.Errorf("cut at byte %d of %d: %v, %d were flushed", i, len(text), got, flushed[i])
		}
		if cut != (i < len(text)) {
			t.Errorf("cut at byte %d of %d: called cut: %v", i, len(text), cut)
		}
	}
	if got, _, _ := readAll(text); len(got) != records {
		t.Errorf("%d records of the whole file, want %d", len(got), records)
	}
}

// TestDamagedAnywhere: a byte that changed is noticed. What was read before may
// hold records twice, since the checksum stands at the end of a file and a
// changed byte can make the decompressor copy what it had, but more than were
// written never come without a word.
func TestDamagedAnywhere(t *testing.T) {
	t.Parallel()
	text, _, records := smallFile(t)
	quiet := 0
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 0x55
		got, cut, err := readAll(bad)
		if err == nil && !cut {
			quiet++
		}
		if len(got) > records && err == nil && !cut {
			t.Errorf("byte %d changed: %d records of %d, and nothing was noticed", i, len(got), records)
		}
	}
	if quiet > 2 { // a reserved bit of the head may mean nothing
		t.Errorf("%d of %d changed bytes went unnoticed", quiet, len(text))
	}
}

// TestCutFilesAreNamed and the others are read on.
func TestCutFilesAreNamed(t *testing.T) {
	t.Parallel()
	text, _, records := smallFile(t)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"ramjet-20261130T100000.000Z-000001.jsonl.zst": text, "ramjet-20261130T100000.000Z-000002.jsonl.zst": text[:len(text)/2], "ramjet-20261130T100000.000Z-000003.jsonl.zst": {}, "ramjet-20261130T100000.000Z-000004.jsonl.zst": text,
		"ramjet-20261130T100000.000Z-000005.jsonl.zst": []byte("no zstd at all"), "other.zst": []byte("not ours"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, sum := ids(t, dir)
	if want := []string{"ramjet-20261130T100000.000Z-000002.jsonl.zst", "ramjet-20261130T100000.000Z-000003.jsonl.zst", "ramjet-20261130T100000.000Z-000005.jsonl.zst"}; !slices.Equal(sum.Cut, want) || sum.Files != 5 || len(got) < 2*records {
		t.Errorf("%d records, %+v", len(got), sum)
	}
	if got, _ := ids(t, filepath.Join(dir, "ramjet-20261130T100000.000Z-000001.jsonl.zst")); len(got) != records {
		t.Errorf("%d records of one file", len(got))
	}
}

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWhatIsNoRecordIsAnError that names the line; a line without end does not
// count.
func TestWhatIsNoRecordIsAnError(t *testing.T) {
	t.Parallel()
	line := string(newDecider(t, 2).next(t).AppendRecord(nil))
	for _, c := range []struct {
		text    string
		records int
		err     string
		cut     bool
	}{
		{line + "\n", 1, "", false},
		{line + "\n" + line, 1, "", true},
		{line + "\n{}\n", 1, "f, line 2", false},
		{line + "\n" + strings.Repeat("x", maxLine+100) + "\n", 1, "", true},
		{"", 0, "", true},
	} {
		got, cut, err := readAll(compressed(t, c.text))
		if len(got) != c.records || cut != c.cut || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.80q: %d records, cut %v, %v", c.text, len(got), cut, err)
		}
	}
}

// TestBombIsRefused: a small file cannot take much memory.
func TestBombIsRefused(t *testing.T) {
	t.Parallel()
	bomb := compressed(t, strings.Repeat("\x00", 64<<20))
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	if got, cut, err := readAll(bomb); len(got) != 0 || !cut || err != nil {
		t.Errorf("%d records, cut %v, %v", len(got), cut, err)
	}
}

// FuzzRead: no bytes make the reader panic or hang.
func FuzzRead(f *testing.F) {
	text, _, _ := smallFile(f)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, text []byte) { _, _, _ = readAll(text) })
}
