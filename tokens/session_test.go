package tokens

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/wire"
)

// pair is a tokenizer and a template that go together.
type pair struct {
	name string
	tok  *Tokenizer
	tpl  *Template
}

// testPairs are the simulator's model, which is always here, and real ones where .tools has their files.
func testPairs(t testing.TB) []pair {
	t.Helper()
	pairs := []pair{{"sim", testTokenizer(t), simTemplate()}}
	g := readGolden(t)
	for _, p := range [...][2]string{{"qwen3", "Qwen3-8B-Q8_0"}, {"qwen3", "Qwen3.5-35B-A3B-Q8_0"}, {"llama3", "lenml-llama3_1"}, {"deepseek3", "lenml-deepseek_v3"}} {
		folder := filepath.Join("../.tools/vocab", p[0])
		if _, err := os.Stat(folder); err != nil || testing.Short() {
			continue
		}
		tpl := provenTemplate(t, g, p[1])
		if tpl == nil {
			continue
		}
		pairs = append(pairs, pair{p[1], vocabularyOf(t, folder), tpl})
	}
	if len(pairs) == 1 {
		t.Log("only the simulator's model is here (scripts/vocab.sh fetches others)")
	}
	return pairs
}

var loadedVocabularies sync.Map

func vocabularyOf(t testing.TB, folder string) *Tokenizer {
	once, _ := loadedVocabularies.LoadOrStore(folder, sync.OnceValue(func() *Tokenizer {
		tok, err := LoadTokenizer(folder)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}))
	return once.(func() *Tokenizer)()
}

// talk is a conversation that a test lets grow and changes.
type talk struct {
	r     *rand.Rand
	items []string
	head  string
	calls int
	wild  bool // has reasoning, and texts that templates look for
}

var talkWords = strings.Fields("the of a session returns with new words while func main() { return } // TODO 中文字符 没有 <|im_start|> <|im_end|> <|eot_id|> éclair " +
	"\U0001F600 1234567 [INST] e\u0301 {{x}} = == === ---- \\u0041 </think>")

func (k *talk) text() string {
	n := k.r.IntN(60)
	if k.r.IntN(4) == 0 {
		n = k.r.IntN(3)
	}
	words := make([]string, n)
	for i := range words {
		words[i] = talkWords[k.r.IntN(len(talkWords)-bit(!k.wild))]
	}
	text := strings.Join(words, []string{" ", "  ", "\n", ""}[k.r.IntN(4)])
	return quoteJSON(text)
}

func quoteJSON(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, "\n", `\n`), "\t", `\t`) + `"`
}

func (k *talk) user() { k.items = append(k.items, `{"role":"user","content":`+k.text()+`}`) }

func (k *talk) answer() {
	reasoning := ""
	if k.wild && k.r.IntN(4) == 0 {
		reasoning = `,"reasoning":` + k.text()
	}
	if k.r.IntN(3) > 0 {
		k.items = append(k.items, `{"role":"assistant","content":`+k.text()+reasoning+`}`)
		return
	}
	k.calls++
	id := fmt.Sprintf("call%05d", k.calls)
	k.items = append(k.items,
		`{"role":"assistant","content":`+k.text()+reasoning+`,"tool_calls":[{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{\"a\": `+fmt.Sprint(k.r.IntN(9))+`}"}}]}`,
		`{"role":"tool","tool_call_id":"`+id+`","content":`+k.text()+`}`)
}

// change does to the conversation what clients do, and what they should not.
func (k *talk) change() {
	r := k.r
	at := r.IntN(len(k.items))
	switch r.IntN(13) {
	case 12: // what is no message
		k.items = append(slices.Clone(k.items), [...]string{`""`, `1`, `[]`, `null`, `{}`, `{"role":1}`, `"x"`}[r.IntN(7)])
	case 0: // edited
		k.items = slices.Clone(k.items)
		k.items[at] = `{"role":"user","content":` + k.text() + `}`
	case 1: // one byte
		k.items = slices.Clone(k.items)
		k.items[at] = strings.Replace(k.items[at], "e", "f", 1)
		if !strings.Contains(k.items[at], `"role":"`) {
			k.items[at] = `{"role":"user","content":"f"}`
		}
	case 2: // another order
		other := r.IntN(len(k.items))
		k.items = slices.Clone(k.items)
		k.items[at], k.items[other] = k.items[other], k.items[at]
	case 3: // gone back
		k.items = slices.Clone(k.items[:at+1])
	case 4: // one dropped
		if len(k.items) > 1 {
			k.items = slices.Delete(slices.Clone(k.items), at, at+1)
		}
	case 5:
		k.head = [...]string{"", `,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]`,
			`,"chat_template_kwargs":{"enable_thinking":false}`, `,"add_generation_prompt":false`}[r.IntN(4)]
	case 6: // the same again
	default:
		if strings.Contains(k.items[len(k.items)-1], `"role":"user"`) || strings.Contains(k.items[len(k.items)-1], `"role":"tool"`) {
			k.answer()
		}
		if !strings.Contains(k.items[len(k.items)-1], `"role":"tool"`) || r.IntN(3) == 0 {
			k.user()
		}
	}
}

func newTalk(r *rand.Rand) *talk {
	k := &talk{r: r, wild: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		k.items = append(k.items, `{"role":"system","content":`+k.text()+`}`)
	}
	k.user()
	return k
}

func (k *talk) body() []byte {
	return []byte(`{"model":"m","messages":[` + strings.Join(k.items, ",") + `]` + k.head + `,"max_tokens":` + fmt.Sprint(k.r.IntN(100)) + `}`)
}

// checked makes a body's ids and compares them with those made afresh.
func checked(t testing.TB, s *Source, e Endpoint, body []byte, scr *Scratch) []uint32 {
	t.Helper()
	var p wire.Peeked
	if err := p.Peek(body); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	ids, note := s.Ids([]uint32{7}, e, body, &p, scr)
	want, ok := s.afresh(e, body)
	if (note == "") != ok {
		t.Fatalf("note %q, afresh %v: %s", note, ok, body)
	}
	if len(ids) == 0 || ids[0] != 7 {
		t.Fatalf("what stood in front is gone: %s", body)
	}
	if note != "" && !slices.Contains(Notes(), note) {
		t.Fatalf("note %q is not in the list: %s", note, body)
	}
	if ids = ids[1:]; !slices.Equal(ids, want) {
		at := 0
		for at < min(len(ids), len(want)) && ids[at] == want[at] {
			at++
		}
		t.Fatalf("way %d: %d ids, afresh %d; they differ from %d on: %.60v and %.60v\n%s", scr.Way(), len(ids), len(want), at, ids[at:], want[at:], body)
	}
	return ids
}

// TestSessionsAreExact: whatever happens to conversations, ids are those of the way without a memory, and keys too.
func TestSessionsAreExact(t *testing.T) {
	t.Parallel()
	for _, p := range testPairs(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{64 << 20, 60 << 10} {
				s := NewSource(p.tok, p.tpl, SourceOptions{Cache: size})
				r := rand.New(rand.NewPCG(4, uint64(size)))
				ways := play(t, s, r, 12, 25)
				s.cache.check(t)
				t.Logf("cache %d: whole %d, grown %d, same %d; %+v", size, ways[WayWhole], ways[WayGrown], ways[WaySame], s.Stats())
				if size > 1<<20 && (ways[WayGrown] < 20 || ways[WaySame] < 8 || ways[WayWhole] < 20) && growing(p.tpl) {
					t.Errorf("a way was hardly taken: %v", ways)
				}
			}
		})
	}
}

// TestNoMessage: what stands in a message's place, and is none, behind items that are remembered, and at the end of the
// body too.
func TestNoMessage(t *testing.T) {
	t.Parallel()
	const old = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}`
	for _, p := range testPairs(t) {
		for _, item := range []string{`""`, "\"\"\n", `"x"`, `1`, `[]`, `[""]`, `null`, `{}`, `{"role":1}`, `{"role":null,"role":"assistant"}`, `{"content":"","role":""}`, `{"r\u006fle":"assistant"}`} {
			s := NewSource(p.tok, p.tpl, SourceOptions{Cache: 1 << 20})
			var scr Scratch
			checked(t, s, EndpointChat, []byte(old+"]}"), &scr)
			checked(t, s, EndpointChat, []byte(old+","+item+"]}"), &scr)
			checked(t, s, EndpointChat, []byte(old+","+item+`,{"role":"user","content":"d"}]}`), &scr)
		}
	}
}

// growing says whether RenderFrom can be of use at all.
func growing(t *Template) bool { return t.plain.stable[0] }

// play lets conversations happen in turn and compares everything.
func play(t testing.TB, s *Source, r *rand.Rand, talks, turns int) (taken [ways]int) {
	var scr Scratch
	list := make([]*talk, talks)
	for i := range list {
		list[i] = newTalk(r)
	}
	roots := []uint64{radix.Root("m", "", ""), radix.Root("m", "", "salt")}
	for range turns {
		for i, k := range list {
			if r.IntN(10) == 0 { // forked: both go on
				other := *list[r.IntN(talks)]
				other.items = slices.Clone(other.items)
				list[i] = &other
				k = &other
			}
			ids := checked(t, s, EndpointChat, k.body(), &scr)
			taken[scr.Way()]++
			if len(ids) > 0 {
				block, root := []int{1, 16, 7, 64}[r.IntN(4)], roots[r.IntN(2)]
				if got, want := s.AppendKeys(nil, root, ids, block, &scr), radix.AppendKeys(nil, root, ids, block); !slices.Equal(got, want) {
					t.Fatalf("keys of blocks of %d differ: %s", block, k.body())
				}
			}
			switch body := k.body(); r.IntN(8) { // other endpoints render whole, of what is known of the text
			case 0:
				checked(t, s, EndpointMessages, body, &scr)
			case 1:
				checked(t, s, EndpointResponses, bytes.Replace(body, []byte(`"messages"`), []byte(`"input"`), 1), &scr)
			}
			k.change()
		}
	}
	return taken
}

// TestGrowingSession: the way of a common agent, turn by turn; each request after the first is found grown.
func TestGrowingSession(t *testing.T) {
	t.Parallel()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: 8 << 20})
	var scr Scratch
	items := []string{`{"role":"system","content":"` + strings.Repeat("You are careful. ", 200) + `"}`, `{"role":"user","content":"Go."}`}
	total := 0
	for turn := range 30 {
		body := []byte(`{"messages":[` + strings.Join(items, ",") + `]}`)
		total += len(checked(t, s, EndpointChat, body, &scr))
		if want := WayGrown; turn > 1 && scr.Way() != want {
			t.Errorf("turn %d: way %d, wanted %d", turn, scr.Way(), want)
		}
		checked(t, s, EndpointChat, body, &scr)
		if scr.Way() != WaySame {
			t.Errorf("turn %d again: way %d", turn, scr.Way())
		}
		items = append(items, fmt.Sprintf(`{"role":"assistant","content":"Answer %d. %s"}`, turn, strings.Repeat("Some words. ", 50)), `{"role":"user","content":"More."}`)
	}
	// The chain holds the ids once, and segments once more.
	if st := s.Stats(); st.Bytes > 10*total {
		t.Errorf("%d bytes for requests of %d ids together", st.Bytes, total)
	}
	var node *entry
	for node = scr.node; node.parent != nil; node = node.parent {
		if len(node.ids) > 500 {
			t.Errorf("a turn's node holds %d ids", len(node.ids))
		}
	}
}

// TestSystemPromptIsShared: conversations with one long system prompt hold it once.
func TestSystemPromptIsShared(t *testing.T) {
	t.Parallel()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: 8 << 20})
	var scr Scratch
	system := strings.Repeat("You are careful. ", 2000)
	for i := range 50 {
		checked(t, s, EndpointChat, fmt.Appendf(nil, `{"messages":[{"role":"system","content":"%s"},{"role":"user","content":"Question %d."}]}`, system, i), &scr)
	}
	if st := s.Stats(); st.Bytes > 6*len(system) {
		t.Errorf("%d bytes for 50 conversations with a system prompt of %d bytes", st.Bytes, len(system))
	}
}

// TestSessionsConcurrently: many goroutines, few conversations, a small cache.
func TestSessionsConcurrently(t *testing.T) {
	t.Parallel()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: 150 << 10})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					t.Error(p)
				}
			}()
			r := rand.New(rand.NewPCG(9, uint64(i%2))) // two do the same at the same time
			play(t, s, r, 4, 15)
		})
	}
	wg.Wait()
	s.cache.check(t)
}

// TestTooSlowGetsFurther: what was encoded before the time was up is kept, so that a long prompt is known in the end.
func TestTooSlowGetsFurther(t *testing.T) {
	t.Parallel()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: 32 << 20, MaxTime: time.Nanosecond})
	body := []byte(longChat(100))
	var p wire.Peeked
	var scr Scratch
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	if ids, note := s.Ids(nil, EndpointChat, body, &p, &scr); note != noteTooSlow || len(ids) > 0 {
		t.Fatalf("note %q, %d ids", note, len(ids))
	}
	s.maxTime = 3 * time.Millisecond
	for try := range 1000 {
		ids, note := s.Ids(nil, EndpointChat, body, &p, &scr)
		if note == "" {
			if want, _ := s.afresh(EndpointChat, body); !slices.Equal(ids, want) {
				t.Errorf("wrong ids at attempt %d", try)
			}
			t.Logf("known at attempt %d", try)
			return
		}
		if s.maxTime += s.maxTime / 20; note != noteTooSlow {
			t.Fatal(note)
		}
	}
	t.Error("never known")
}
