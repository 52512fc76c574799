package benchmarks

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

var everyCorpus = []string{CorpusHot, CorpusCold, CorpusMixed, CorpusShort, CorpusLong, CorpusCJK, CorpusTurns}

// Whatever the corpus, a prompt has about the length that was asked for, ends with the user and is valid JSON, and the
// same seeds make the same prompts.
func TestCorpora(t *testing.T) {
	t.Parallel()
	for _, corpus := range everyCorpus {
		for _, n := range []int{200, 4_000, 10_000, 64_000, 1_000_000} {
			p := PromptSpec{Corpus: corpus, Bytes: n, HotSeed: 7}
			c := p.next(3, 1, 2)
			body := appendPrompt(nil, c, 2, false)
			var got struct {
				Messages []struct{ Role, Content string } `json:"messages"`
				Tokens   int                              `json:"max_tokens"`
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%s, %d bytes: %v", corpus, n, err)
			}
			if last := got.Messages[len(got.Messages)-1]; last.Role != "user" || got.Tokens != 2 {
				t.Errorf("%s, %d bytes: the last of %d messages is by %s, %d tokens", corpus, n, len(got.Messages), last.Role, got.Tokens)
			}
			text := strings.Join(c.messages, "")
			if slack := 230 + 12*len(c.messages); len(text) < n || len(text) > n+slack || !utf8.ValidString(text) {
				t.Errorf("%s: %d bytes for %d", corpus, len(text), n)
			}
			if again := appendPrompt(nil, p.next(3, 1, 2), 2, false); string(again) != string(body) {
				t.Errorf("%s, %d bytes: the same seeds make another prompt", corpus, n)
			}
		}
	}
}

func TestCorporaShareWhatTheySay(t *testing.T) {
	t.Parallel()
	const n = 64_000
	shared := func(corpus string) int {
		p := PromptSpec{Corpus: corpus, Bytes: n, HotSeed: 7}
		a, b := strings.Join(p.next(1, 0, 0).messages, ""), strings.Join(p.next(2, 3, 4).messages, "")
		for i := range a {
			if i >= len(b) || a[i] != b[i] {
				return i
			}
		}
		return len(a)
	}
	for corpus, want := range map[string][2]int{
		CorpusCold: {0, 100}, CorpusCJK: {0, 100}, CorpusShort: {n / 8, n/8 + 100}, CorpusLong: {n / 8 * 7, n/8*7 + 100},
	} {
		if got := shared(corpus); got < want[0] || got > want[1] {
			t.Errorf("two %s prompts share %d bytes, want %d to %d", corpus, got, want[0], want[1])
		}
	}
	turns := PromptSpec{Corpus: CorpusTurns, Bytes: n, HotSeed: 7}
	if known, now := turns.hot(1).messages, turns.next(9, 1, 5).messages; len(now) != len(known)+2 || now[0] != known[0] {
		t.Errorf("a returning conversation of %d messages has %d", len(known), len(now))
	}
	distinct := make(map[string]bool)
	for i := range 1000 {
		distinct[PromptSpec{Corpus: CorpusMixed, Bytes: 200, HotSeed: 7}.next(5, 0, i).messages[0]] = true
	}
	if d := len(distinct); d < 110 || d > 230 {
		t.Errorf("%d distinct of 1000 prompts, nine of ten of which come from 64", d)
	}
}

// Every kind of load reaches the engine as asked, and what comes back whole counts.
func TestPromptLoads(t *testing.T) {
	t.Parallel()
	e, err := NewEngine("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, corpus := range everyCorpus {
		p := &PromptSpec{Corpus: corpus, Bytes: 30_000, HotSeed: 1}
		res, err := Load(LoadSpec{Mode: ModePrompt, Targets: []string{e.Addr()}, Streams: 3, Requests: 2, Prompts: p})
		if err != nil || res.Requests != 6 || res.Errors != 0 || res.MeanNanos < 1 {
			t.Errorf("%s: %+v %v", corpus, res, err)
		}
		warm := *p
		warm.Warm = true
		res, err = Load(LoadSpec{Mode: ModePrompt, Targets: []string{e.Addr()}, Streams: 3, Requests: 2, Prompts: &warm})
		if want := int64(p.common(3)); err != nil || res.Requests != want || res.Errors != 0 {
			t.Errorf("%s, what is common: %d requests, want %d: %+v %v", corpus, res.Requests, want, res, err)
		}
	}
	res, err := Load(LoadSpec{Mode: ModeWhole, Targets: []string{e.Addr()}, Streams: 2, Requests: 2, Warm: 1, Tokens: 20, ApartMicros: 100})
	if err != nil || res.Requests != 6 || res.Errors != 0 || res.Whole.N != 4 || res.Tokens != 2*(2*20+promptTokens) {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := Load(LoadSpec{Mode: ModePrompt, Targets: []string{e.Addr()}, Streams: 1}); err == nil {
		t.Error("prompts without a corpus were taken")
	}
	if _, err := Load(LoadSpec{Mode: "other", Targets: []string{e.Addr()}, Streams: 1}); err == nil {
		t.Error("an unknown mode was taken")
	}
}

// A router that asks an engine to render a prompt must not get an answer's tokens for it, nor wait for them.
func TestTheFakeEngineAnswersOnlyChat(t *testing.T) {
	t.Parallel()
	e, err := NewEngine("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	resp, err := http.Post("http://"+e.Addr()+chatPath+"/render", "application/json", strings.NewReader(`{"stream":true,"max_tokens":1000,"pace_us":10000}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || e.Counts().Requests != 0 {
		t.Errorf("answered %s, %d requests counted", resp.Status, e.Counts().Requests)
	}
}
