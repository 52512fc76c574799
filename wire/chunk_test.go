package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

// dechunk feeds body in the given pieces and returns the data. consumed is
// how many bytes were taken.
func dechunk(t *testing.T, s *ChunkScanner, pieces ...[]byte) (data []byte, consumed int, err error) {
	t.Helper()
	for _, p := range pieces {
		for len(p) > 0 && !s.Done() {
			before := s.Remaining()
			n, isData, err := s.Next(p)
			if isData {
				data = append(data, p[:n]...)
				if s.Remaining() != before-int64(n) {
					t.Fatalf("%d bytes outstanding after %d of %d", s.Remaining(), n, before)
				}
			}
			consumed += n
			if err != nil {
				return data, consumed, err
			}
			if n == 0 {
				t.Fatal("no progress")
			}
			p = p[n:]
		}
	}
	return data, consumed, nil
}

var chunkBodies = []struct {
	name, body, data string
	bad              bool
	trailers         bool
}{
	{name: "empty", body: "0\r\n\r\n"},
	{name: "one", body: "3\r\nabc\r\n0\r\n\r\n", data: "abc"},
	{name: "three, one of a byte", body: "2\r\n\xe2\x82\r\n1\r\n\xac\r\n5\r\n12345\r\n0\r\n\r\n", data: "\xe2\x82\xac12345"},
	{name: "hexadecimal in both cases", body: "a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n", data: "01234567890123456789"},
	{name: "padded size", body: "0000000000000003\r\nabc\r\n0000\r\n\r\n", data: "abc"},
	{name: "extension", body: "5;x=y\r\nabcde\r\n0;last\r\n\r\n", data: "abcde"},
	{name: "quoted extension", body: "5;x=\"a;b\tc\xff\"\r\nabcde\r\n0\r\n\r\n", data: "abcde"},
	{name: "data that looks like framing", body: "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", data: "\r\n0\r\n\r\n"},
	{name: "trailers", body: "1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n", data: "a", trailers: true},
	{name: "longest extension", body: "1;" + strings.Repeat("x", maxExtension) + "\r\na\r\n0\r\n\r\n", data: "a"},
	{name: "longest extension and trailers", body: "0;" + strings.Repeat("x", maxExtension) + "\r\nA:" + strings.Repeat("b", maxTrailerBytes-5) + "\r\n\r\n", trailers: true},

	{name: "no size", body: "\r\nabc\r\n", bad: true},
	{name: "bare LF behind the size", body: "3\nabc\r\n0\r\n\r\n", bad: true},
	{name: "bare CR behind the size", body: "3\rabc\r\n0\r\n\r\n", bad: true},
	{name: "LF in an extension", body: "3;a\nb\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "CR in an extension", body: "3;a\rb\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "NUL in an extension", body: "3;a\x00\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "0x", body: "0x3\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "plus", body: "+3\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "minus", body: "-3\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "underscore", body: "0_3\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "space in front", body: " 3\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "space behind", body: "3 \r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "tab before an extension", body: "3\t;a\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "not hexadecimal", body: "g\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "17 digits", body: "00000000000000003\r\nabc\r\n0\r\n\r\n", bad: true},
	{name: "above 2^62", body: "4000000000000001\r\n", bad: true},
	{name: "16 digits of f", body: "ffffffffffffffff\r\n", bad: true},
	{name: "LF behind data", body: "3\r\nabc\n0\r\n\r\n", bad: true},
	{name: "CR behind data", body: "3\r\nabc\r0\r\n\r\n", bad: true},
	{name: "data too long", body: "3\r\nabcd\r\n0\r\n\r\n", bad: true},
	{name: "data too short", body: "3\r\nab\r\n0\r\n\r\n", bad: true},
	{name: "bare LF at the end", body: "0\r\n\n", bad: true},
	{name: "bare CR at the end", body: "0\r\n\rX", bad: true},
	{name: "folded trailer", body: "0\r\nA: b\r\n c\r\n\r\n", bad: true},
	{name: "trailer without a colon", body: "0\r\nA\r\n\r\n", bad: true},
	{name: "trailer without a name", body: "0\r\n: b\r\n\r\n", bad: true},
	{name: "trailer with LF", body: "0\r\nA: b\nC: d\r\n\r\n", bad: true},
	{name: "trailer with NUL", body: "0\r\nA: \x00\r\n\r\n", bad: true},
	{name: "extension too long", body: "1;" + strings.Repeat("x", maxExtension+1) + "\r\na\r\n0\r\n\r\n", bad: true},
	{name: "trailers too long", body: "0\r\n" + strings.Repeat("A: b\r\n", maxTrailerBytes/6+1) + "\r\n", bad: true},
}

func TestChunkScanner(t *testing.T) {
	t.Parallel()
	for _, c := range chunkBodies {
		body := []byte(c.body)
		check := func(how string, pieces ...[]byte) {
			t.Helper()
			var s ChunkScanner
			data, n, err := dechunk(t, &s, pieces...)
			if (err != nil) != c.bad || s.Done() == c.bad {
				t.Fatalf("%s, %s: %v, done %v", c.name, how, err, s.Done())
			}
			if c.bad {
				var f *FramingError
				if again, _, same := s.Next([]byte("0")); !errors.As(err, &f) || again != 0 || !errors.Is(same, err) {
					t.Fatalf("%s, %s: the error does not stay: %v", c.name, how, same)
				}
				return
			}
			if string(data) != c.data || n != len(body) || s.HasTrailers() != c.trailers {
				t.Fatalf("%s, %s: data %q, consumed %d of %d, trailers %v", c.name, how, data, n, len(body), s.HasTrailers())
			}
			if n, _, err := s.Next([]byte("GET")); n != 0 || err != nil {
				t.Fatalf("%s: consumes behind the end", c.name)
			}
		}
		check("whole", body)
		if !c.bad {
			check("with the next message behind", append(bytes.Clone(body), "HTTP/1.1"...))
		}
		single := make([][]byte, len(body))
		for i := range body {
			single[i] = body[i : i+1]
			if i < 200 {
				check("cut", body[:i], body[i:])
			}
		}
		check("byte by byte", single...)
	}
}

// TestChunkScannerAgainstStandard compares valid bodies with the standard
// library's reader.
func TestChunkScannerAgainstStandard(t *testing.T) {
	t.Parallel()
	for _, c := range chunkBodies {
		if c.bad || c.trailers {
			continue
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(c.body)))
		if err != nil && len(c.body) < 4096 {
			t.Errorf("%s: the standard library refuses: %v", c.name, err)
		}
		if err == nil && string(want) != c.data {
			t.Errorf("%s: %q", c.name, want)
		}
	}
}

// TestChunkRuns checks that framing runs end at chunk boundaries and that
// InLastChunk turns true exactly with the run that begins the end.
func TestChunkRuns(t *testing.T) {
	t.Parallel()
	var s ChunkScanner
	raw := []byte("3\r\nabc\r\n1;e\r\nd\r\n0\r\nA: b\r\n\r\nnext")
	type run struct {
		text       string
		data, last bool
	}
	var got []run
	for !s.Done() {
		n, data, err := s.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, run{string(raw[:n]), data, s.InLastChunk()})
		raw = raw[n:]
	}
	want := []run{{"3\r\n", false, false}, {"abc", true, false}, {"\r\n", false, false}, {"1;e\r\n", false, false}, {"d", true, false},
		{"\r\n", false, false}, {"0\r\nA: b\r\n\r\n", false, true}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("run %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if string(raw) != "next" {
		t.Errorf("rest %q", raw)
	}
	s.Reset()
	for text, last := range map[string]bool{"": false, "0": true, "00": true, "0;": true, "0\r": true, "0a": false, "1": false, "10": false} {
		s.Reset()
		if _, _, err := s.Next([]byte(text)); err != nil || s.InLastChunk() != last {
			t.Errorf("%q: %v, InLastChunk %v", text, err, s.InLastChunk())
		}
	}
}

// TestChunkCompletion cuts a body everywhere: where Completion says so, the
// bytes so far, the suffix and a whole new body must read as one body with the
// same data in front; elsewhere no suffix may be offered.
func TestChunkCompletion(t *testing.T) {
	t.Parallel()
	const body = "3\r\nabc\r\nb;x=y\r\n0123456789a\r\n0\r\nA: b\r\n\r\n"
	offered := 0
	for cut := range len(body) + 1 {
		var s ChunkScanner
		data, _, err := dechunk(t, &s, []byte(body[:cut]))
		if err != nil {
			t.Fatal(err)
		}
		suffix, ok := s.Completion()
		if !ok {
			continue
		}
		offered++
		all, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(body[:cut] + suffix + "2\r\nXY\r\n0\r\n\r\n")))
		if err != nil || string(all) != string(data)+"XY" {
			t.Errorf("cut at %d: %q, %v", cut, all, err)
		}
	}
	// At the start, and at three places behind each of the two chunks.
	if offered != 7 {
		t.Errorf("offered at %d cuts, want 7", offered)
	}
}
