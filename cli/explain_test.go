package cli

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// ask runs Explain against the fake.
func (f *fakeRamjet) ask(t *testing.T, args []string, o ExplainOptions) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.Out = &out
	if o.Path == "" {
		o.Path = "/v1/chat/completions"
	}
	err := Explain(t.Context(), append([]string{"--admin=" + f.addr()}, args...), nil, o)
	return out.String(), err
}

// printed is the record as it is shown.
const printed = `/v1/chat/completions  model m, 5120 prompt tokens (keys exact), output about 180 tokens, cap 256

   engine  profile   state  trust  match      to compute  wait   prefill  decode  cost
>  a       mtp       ready  exact  4096*      1024        0 ms   102 ms   1.60 s  708 ms
   b       standard  ready  exact  1024+1024  3072        90 ms  307 ms   1.71 s  1.02 s
   c       none      down   blind  0          -           -      -        -       -

c: its port refuses connections, and what else there is to say of it takes more than one line of a
  terminal.
a, because it holds more of the prompt in its cache, by its own events (exact; 310 ms before b); its
  token ids go with it.
The other way of matching would have chosen b.
`

func TestExplainPrints(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	out, err := f.ask(t, nil, ExplainOptions{File: "-", In: strings.NewReader("{}")})
	if err != nil || out != printed {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, out, printed)
	}
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > columns {
			t.Errorf("wider than %d: %s", columns, line)
		}
	}
}

func TestExplainAsks(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "req.json"), filepath.Join(dir, "token")
	for name, text := range map[string]string{file: `{"a":1}`, token: " secret\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		o    ExplainOptions
		args []string
		want fakeAsked
	}{
		{ExplainOptions{File: file}, nil, fakeAsked{"POST", "/api/v1/explain?path=%2Fv1%2Fchat%2Fcompletions", "", `{"a":1}`}},
		{ExplainOptions{File: "-", In: strings.NewReader("[]"), Path: "/v1/messages"}, nil, fakeAsked{"POST", "/api/v1/explain?path=%2Fv1%2Fmessages", "", "[]"}},
		{ExplainOptions{ID: "a/b?c"}, []string{"--admin.token-file=" + token}, fakeAsked{"GET", "/api/v1/explain/a%2Fb%3Fc", "Bearer secret", ""}},
	} {
		c.o.JSON = true
		out, err := f.ask(t, c.args, c.o)
		if err != nil || out != record {
			t.Errorf("%+v: %v, printed %.80q", c.o, err, out)
		}
		if got := f.asked[len(f.asked)-1]; got != c.want {
			t.Errorf("asked %+v, want %+v", got, c.want)
		}
	}
}

func TestExplainProblems(t *testing.T) {
	t.Parallel()
	f := newFakeRamjet(t)
	reply := func(status int, body string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{400, `{"error":{"message":"bad JSON at byte 7"}}`, "bad JSON at byte 7"},
		{404, `no json`, "404"},
		{403, `{"error":{}}`, "403"},
		{200, `{"candidates":`, "cannot read the explanation"},
	} {
		reply(c.status, c.body)
		out, err := f.ask(t, nil, ExplainOptions{File: "-", In: strings.NewReader("{}")})
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%d %s: %v, printed %q", c.status, c.body, err, out)
		}
	}
	for _, c := range []struct {
		args []string
		o    ExplainOptions
		want string
	}{
		{nil, ExplainOptions{File: filepath.Join(t.TempDir(), "none")}, "cannot read the request"},
		{[]string{"--admin=127.0.0.1:1"}, ExplainOptions{ID: "x"}, "cannot reach Ramjet's admin port (--admin names it)"},
		{[]string{"--admin.token-file=/nonexistent"}, ExplainOptions{ID: "x"}, "token_file"},
		{[]string{"--adminn=1"}, ExplainOptions{ID: "x"}, "adminn"},
	} {
		if _, err := f.ask(t, c.args, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %+v: %v", c.args, c.o, err)
		}
	}
}

// TestExplainIsSafeToPrint: a client's text reaches an operator's terminal.
func TestExplainIsSafeToPrint(t *testing.T) {
	t.Parallel()
	model := "m\x1b[2J\n> b wins\u202e"
	var out bytes.Buffer
	(&explanation{Path: "/v1\x07", Model: &model, Keys: "none", Engine: "a", Reason: "only-one"}).print(&out)
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07\u202e") || strings.Contains(s, "\n> b wins") {
		t.Errorf("printed %q", s)
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 130)
	for _, c := range []struct{ text, want string }{
		{"", "\n"}, {"short", "short\n"},
		{strings.Repeat("y", columns), strings.Repeat("y", columns) + "\n"},
		{strings.Repeat("é", columns) + " z", strings.Repeat("é", columns) + "\n  z\n"},
		{long, long + "\n"},
		{"a " + long, "a\n  " + long + "\n"},
	} {
		var out bytes.Buffer
		if sentence(&out, c.text); out.String() != c.want {
			t.Errorf("%q printed as %q, want %q", c.text, out.String(), c.want)
		}
	}
	var out bytes.Buffer
	words := strings.Repeat("word ", 200)
	sentence(&out, words)
	if strings.Join(strings.Fields(out.String()), " ") != strings.TrimSpace(words) {
		t.Error("words are lost")
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > columns+1 {
			t.Errorf("wider than %d: %q", columns, line)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0 ms", 0.0015: "2 ms", 0.999: "999 ms", 1: "1.00 s", 99.994: "99.99 s", 100: "100 s", -0.5: "-500 ms", -2: "-2.00 s"} {
		if got := span(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
