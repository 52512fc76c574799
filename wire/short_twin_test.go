package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
)

// random makes texts out of few pieces, so that all neighbourhoods of the
// bytes that matter come up.
func random(r *rand.Rand, pieces []string, n int) []byte {
	var b []byte
	for range r.IntN(n) {
		b = append(b, pieces[r.IntN(len(pieces))]...)
	}
	return b
}

// Near strings and keys without white space are read as all others are.
func TestDocScanNear(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	pieces := []string{`"`, `\`, `\"`, "a", "bcdefghi", "\x00", "\x80", "\xa2", "\xdc", "!", "#", "[", "]", ":", ",", "\n", "{", "}", `":`}
	for range 200_000 {
		b := append([]byte(`"`), random(r, pieces, 14)...)
		near, far := docScan{b: b}, docScan{b: b}
		if got, want := near.str(), far.longStr(1); !bytes.Equal(got, want) || !reflect.DeepEqual(near, far) {
			t.Fatalf("%q: string %q, want %q", b, got, want)
		}
		b = random(r, pieces, 14)
		bad := r.IntN(8) == 0
		near, far = docScan{b: b, bad: bad}, docScan{b: b, bad: bad}
		got, ok := near.key()
		want, wantOK := far.spacedKey()
		if ok != wantOK || ok && !bytes.Equal(got, want) || !reflect.DeepEqual(near, far) {
			t.Fatalf("%q: key %q %v, want %q %v", b, got, ok, want, wantOK)
		}
	}
}

// twinFieldLines reads field lines in steps: where a line ends, where its colon
// is, what name and value hold.
func twinFieldLines(buf []byte) (fields []Field, message string) {
	var opts [][]byte
	var f framing
	f.length = -1
	for {
		line, rest, _ := bytes.Cut(buf, []byte("\r\n"))
		buf = rest
		if len(line) == 0 {
			return fields, ""
		}
		name, value, found := bytes.Cut(line, []byte(":"))
		value = trimOWS(value)
		switch {
		case !found || len(name) == 0:
			return fields, "a header line has no name or no colon"
		case !isToken(name):
			return fields, "a field name holds a byte that names may not hold"
		case !isFieldValue(value):
			return fields, "a field value holds a control byte"
		}
		fields = append(fields, Field{name, value})
		if err := f.note(name, value, &opts); err != nil {
			return fields, err.Message
		}
		if aliasesFraming(name) {
			return fields, "a field name is spelt with an underscore where servers behind may read a framing header"
		}
	}
}

func TestFieldLinesTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	pieces := []string{":", ": ", "\r", "\t", " ", "\x00", "\x1f", "\x7f", "\x80", "\xff", "name", "X", "_", "~", "a longer text of a value",
		"content-length: 7", "content_length", "Connection: a", "\r\na", "\r\nb: c", "\r\nhost: x"}
	for range 200_000 {
		b := append(random(r, pieces, 12), "\r\n\r\n"...)
		if b[0] == '\n' || bytes.HasPrefix(b, []byte("\r\n")) {
			continue
		}
		var fields []Field
		var opts [][]byte
		var f framing
		message := ""
		if err := fieldLines(b, &fields, &opts, &f); err != nil {
			message = err.Message
		}
		want, wantMessage := twinFieldLines(b)
		if message != wantMessage || !reflect.DeepEqual(fields, want) {
			t.Fatalf("%q: %q %q, want %q %q", b, fields, message, want, wantMessage)
		}
	}
}

// Every byte on its own, at each place of a word.
func TestValueEnd(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			b := append(bytes.Repeat([]byte{'v'}, 20), "\r\n\r\n"...)
			b[at] = byte(c)
			want := 20
			if classes[c]&classField == 0 {
				want = at
			}
			if got := valueEnd(b, 0); got != want {
				t.Fatalf("byte %#x at %d: %d, want %d", c, at, got, want)
			}
		}
	}
}
