package telemetry

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// accessFields are the fields of CONTRACT section 6 in its order.
var accessFields = strings.Fields("time id end status method path model engine reason keys prompt_tokens match_tokens " +
	"cached_tokens output_tokens route_s queue_s ttft_s duration_s bytes_in bytes_out attempts session")

func fullRecord() *AccessRecord {
	return &AccessRecord{
		Time: time.Date(2026, 11, 30, 8, 1, 2, 345_678_900, time.FixedZone("x", 3600)), ID: []byte("id-1"), End: EndDone, Status: 200,
		Method: []byte("POST"), Path: []byte("/v1/chat/completions"), Model: []byte("qwen"), Engine: "a", Engines: []string{"b", "a"},
		Reason: ReasonExact, Keys: KeysExact, PromptTokens: 5120, MatchTokens: 4096, CachedTokens: 0, OutputTokens: 171,
		Route: 0.0000204, Queue: 0, TTFT: 0.12, Duration: 1.9, BytesIn: 20480, BytesOut: 4711, Attempts: 2, Session: []byte("h7"),
	}
}

func unknownRecord() *AccessRecord {
	return &AccessRecord{Time: time.Unix(0, 0), End: EndRejected, Status: 400, PromptTokens: Unknown, MatchTokens: Unknown,
		CachedTokens: Unknown, OutputTokens: Unknown, Route: Unknown, Queue: math.NaN(), TTFT: math.Inf(1), Duration: 0.001, Error: "cannot read: x"}
}

// access writes one record and returns the whole line.
func access(t testing.TB, r *AccessRecord, format string) string {
	t.Helper()
	var b bytes.Buffer
	a := NewAccessLog(&b, format)
	a.Write(r)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAccessLineIsExact(t *testing.T) {
	t.Parallel()
	want := `{"time":"2026-11-30T07:01:02.345Z","id":"id-1","end":"done","status":200,"method":"POST","path":"/v1/chat/completions",` +
		`"model":"qwen","engine":"a","reason":"exact","keys":"exact","prompt_tokens":5120,"match_tokens":4096,"cached_tokens":0,` +
		`"output_tokens":171,"route_s":0.00002,"queue_s":0,"ttft_s":0.12,"duration_s":1.9,"bytes_in":20480,"bytes_out":4711,` +
		`"attempts":2,"session":"h7","engines":["b","a"],"error":null}` + "\n"
	if got := access(t, fullRecord(), FormatJSON); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestAccessLineHasEveryFieldAndNullForUnknown(t *testing.T) {
	t.Parallel()
	line := access(t, unknownRecord(), FormatJSON)
	at := 0
	for _, f := range accessFields {
		i := strings.Index(line, `"`+f+`":`)
		if i < at {
			t.Errorf("%s is missing or out of order", f)
		}
		at = i
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	known := map[string]any{"time": "1970-01-01T00:00:00.000Z", "end": "rejected", "status": 400.0, "duration_s": 0.001,
		"bytes_in": 0.0, "bytes_out": 0.0, "attempts": 0.0, "keys": "none", "error": "cannot read: x"}
	for _, f := range append(accessFields, "error") {
		if v, ok := got[f]; !ok || v != known[f] {
			t.Errorf("%s is %v (there: %v), want %v", f, v, ok, known[f])
		}
	}
}

// TestC34HostileTextStaysOneLine is row 14 of the abuse table too: whatever a
// client writes, the log keeps one line, no escape sequence and a bounded size.
func TestC34HostileTextStaysOneLine(t *testing.T) {
	t.Parallel()
	for _, text := range hostileTexts() {
		r := fullRecord()
		r.ID, r.Method, r.Path, r.Model, r.Session, r.Error = []byte(text), []byte(text), []byte(text), []byte(text), []byte(text), text
		for _, format := range []string{FormatJSON, FormatConsole} {
			checkLine(t, access(t, r, format), format)
		}
	}
}

func hostileTexts() []string {
	return []string{
		"a\r\nSet-Cookie: x", "\x1b[2J\x1b]0;t\x07", "\u2028\u2029\u0085", strings.Repeat("A", 64<<10), strings.Repeat("\xff", 64<<10),
		strings.Repeat("\x80", 300), "\u202e\u200b", `"},{"end":"done"`, "\x00", `\`, "<script>", strings.Repeat("漢", 10000), strings.Repeat("\x1b", 1000),
	}
}

// checkLine demands one line of valid text without controls but the console's
// own colours.
func checkLine(t testing.TB, line, format string) {
	t.Helper()
	if !strings.HasSuffix(line, "\n") || !utf8.ValidString(line) || len(line) > 20<<10 {
		t.Errorf("%s: %d bytes, whole and valid: %v %v", format, len(line), strings.HasSuffix(line, "\n"), utf8.ValidString(line))
	}
	body := strings.TrimSuffix(line, "\n")
	if format == FormatConsole {
		for _, c := range []string{colourOff, colourDim, colourGood, colourWarn, colourBad, colourAccent} {
			body = strings.ReplaceAll(body, c, "")
		}
	} else if !json.Valid([]byte(line)) {
		t.Errorf("not JSON: %.300q", line)
	}
	if i := strings.IndexFunc(body, unsafeRune); i >= 0 {
		t.Errorf("%s: unsafe character in %.100q", format, body[i:])
	}
}

func FuzzAccessLine(f *testing.F) {
	for _, s := range hostileTexts() {
		f.Add(s, 200, 0.5)
	}
	f.Fuzz(func(t *testing.T, text string, status int, seconds float64) {
		r := fullRecord()
		r.ID, r.Path, r.Model, r.Error, r.Status, r.TTFT = []byte(text), []byte(text), []byte(text), text, status, seconds
		checkLine(t, access(t, r, FormatJSON), FormatJSON)
		checkLine(t, access(t, r, FormatConsole), FormatConsole)
	})
}

func TestConsoleLineReads(t *testing.T) {
	t.Parallel()
	strip := strings.NewReplacer(colourOff, "", colourDim, "", colourGood, "<good>", colourWarn, "<warn>", colourBad, "<bad>", colourAccent, "")
	r := fullRecord()
	r.Model = []byte("my model")
	want := `08:01:02.345 <good>200 done POST /v1/chat/completions engine=a reason=exact model="my model" keys=exact prompt_tokens=5120 ` +
		`match_tokens=4096 cached_tokens=0 output_tokens=171 route_s=0.00002 queue_s=0 ttft_s=0.12 duration_s=1.9 bytes_in=20480 bytes_out=4711 ` +
		"attempts=2 session=h7 id=id-1\n"
	if got := strip.Replace(access(t, r, FormatConsole)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	got := strip.Replace(access(t, unknownRecord(), FormatConsole))
	for _, part := range []string{"<warn>400 rejected - -", "prompt_tokens=-", "queue_s=-", "ttft_s=-", `error="cannot read: x"`} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
}

func TestAutoFormatIsJSONOffATerminal(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	a := NewAccessLog(f, FormatAuto)
	a.Write(fullRecord())
	_ = a.Close()
	got, err := os.ReadFile(f.Name())
	if err != nil || !json.Valid(got) {
		t.Errorf("%q: %v", got, err)
	}
	var none *AccessLog
	none.Write(fullRecord())
}

// blockedWriter takes nothing until it is released.
type blockedWriter struct {
	entered chan struct{}
	release chan struct{}
	got     bytes.Buffer
}

func (b *blockedWriter) Write(p []byte) (int, error) {
	select {
	case b.entered <- struct{}{}:
	default:
	}
	<-b.release
	return b.got.Write(p)
}

func TestBlockedLogNeverBlocksARequest(t *testing.T) {
	t.Parallel()
	w := &blockedWriter{entered: make(chan struct{}, 1), release: make(chan struct{})}
	a := NewAccessLog(w, FormatJSON)
	a.Write(fullRecord())
	<-w.entered
	const lines = 20_000
	size := len(access(t, fullRecord(), FormatJSON))
	for range lines {
		a.Write(fullRecord())
	}
	kept := uint64(maxPending / size)
	if d := a.Dropped(); d != lines-kept {
		t.Errorf("%d dropped, want %d", d, lines-kept)
	}
	close(w.release)
	_ = a.Close()
	if n := uint64(strings.Count(w.got.String(), "\n")); n != kept+1 || w.got.Len() != int(n)*size {
		t.Errorf("%d lines in %d bytes came through, want %d whole ones", n, w.got.Len(), kept+1)
	}
	a.Write(fullRecord())
	if a.Dropped() != lines-kept+1 {
		t.Error("a line after Close was not counted as dropped")
	}
}

func TestClosedLogDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	w := &blockedWriter{entered: make(chan struct{}, 1), release: make(chan struct{})}
	defer close(w.release)
	l := NewLogWriter(w)
	_, _ = io.WriteString(l, "x\n")
	<-w.entered
	done := make(chan struct{})
	go func() { _ = l.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * closeWait):
		t.Fatal("Close waits for a reader that takes nothing")
	}
}

func TestSharedWriterKeepsLinesWhole(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewLogWriter(&b)
	a, l := NewAccessLog(w, FormatJSON), NewLog(w, LevelInfo, FormatJSON)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 500 {
			a.Write(fullRecord())
		}
	}()
	for range 500 {
		l.Info("x", "n", 1)
	}
	<-done
	_ = w.Close()
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if !json.Valid([]byte(line)) {
			t.Fatalf("broken line %q", line)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != 1000 {
		t.Errorf("%d lines, want 1000", n)
	}
}

// TestBurstLosesNothing: as many streams as a machine holds may end at one
// moment, and each has its line.
func TestBurstLosesNothing(t *testing.T) {
	t.Parallel()
	w := &blockedWriter{entered: make(chan struct{}, 1), release: make(chan struct{})}
	a := NewAccessLog(w, FormatJSON)
	a.Write(fullRecord())
	<-w.entered
	for range 5000 {
		a.Write(fullRecord())
	}
	close(w.release)
	_ = a.Close()
	if n := strings.Count(w.got.String(), "\n"); n != 5001 || a.Dropped() != 0 {
		t.Errorf("%d lines of 5001 came, %d dropped", n, a.Dropped())
	}
}

// Lines share the text of their second: each must show its own.
func TestAccessLineShowsItsOwnTime(t *testing.T) {
	t.Parallel()
	l := &line{}
	at := time.Date(1969, 12, 31, 23, 59, 58, 999_999_999, time.UTC)
	for i := range 4000 {
		show := at.In(time.FixedZone("x", i%3*3600))
		want := at.Format("2006-01-02T15:04:05.000Z")
		if got := string(l.stamp(nil, show)); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		at = at.Add([]time.Duration{time.Millisecond, 999 * time.Millisecond, -time.Second, 5 * time.Second, 40 * 24 * time.Hour}[i%5])
	}
}
