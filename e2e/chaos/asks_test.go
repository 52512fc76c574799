package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// idPrefix marks the ids of clients' requests; Ramjet's own and the harness's
// have others.
const idPrefix = "x-"

func ours(id string) bool { return strings.HasPrefix(id, idPrefix) }

// calm requests are sent while nothing happens, and nothing happens to them.
func calm(id string) bool {
	return strings.HasPrefix(id, idPrefix+"before") || strings.HasPrefix(id, idPrefix+"after")
}

// ask is one request to be sent.
type ask struct {
	id     string
	path   string
	stream bool
	body   []byte
	leave  string // how the client leaves; "" = it does not
	after  int    // events (streams) or tenths of a second that it stays
	slow   bool   // it reads slowly
}

// paths are the APIs whose answers' texts are known.
var paths = []string{"/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize"}

// newAsk draws a request from the scenario and its id. Its prompt begins as
// others do, so that engines have prefixes cached, and ends with its id, so that
// no two answers are the same.
func newAsk(s scenario, id string) *ask {
	random := randomOf(s.seed, id)
	a := &ask{id: id, path: paths[random.IntN(len(paths))], stream: random.IntN(3) > 0}
	prompt := document(random.IntN(6), 20+random.IntN(400)) + " This is request " + id + "."
	limit := 1 + random.IntN(60)
	m := map[string]any{"model": "m", "temperature": 0}
	chat := []map[string]string{{"role": "user", "content": prompt}}
	switch a.path {
	case "/v1/chat/completions":
		m["messages"], m["max_tokens"] = chat, limit
		if a.stream && random.IntN(2) == 0 {
			m["stream_options"] = map[string]any{"include_usage": true}
		}
	case "/v1/completions":
		m["prompt"], m["max_tokens"] = prompt, limit
	case "/v1/messages":
		m["messages"], m["max_tokens"] = chat, limit
	case "/v1/responses":
		m["input"], m["max_output_tokens"], m["store"] = prompt, limit, false
	case "/tokenize":
		m, a.stream = map[string]any{"model": "m", "prompt": prompt}, false
	}
	if a.stream {
		m["stream"] = true
	}
	if len(s.leaves) > 0 && random.IntN(6) == 0 {
		a.leave, a.after = s.leaves[random.IntN(len(s.leaves))], random.IntN(12)
	}
	a.slow = random.IntN(30) == 0
	var err error
	if a.body, err = json.Marshal(m); err != nil {
		panic("BUG: cannot render a request: " + err.Error())
	}
	return a
}

// document is the beginning of a text that many requests share.
func document(n, words int) string {
	random := rand.New(rand.NewPCG(99, uint64(n)))
	list := []string{"river", "engine", "night", "the", "of", "12345", "naïve", "你好", "sails", "blocks", "and", "🙂"}
	var b strings.Builder
	fmt.Fprintf(&b, "Document %d.", n)
	for range words {
		b.WriteString(" " + list[random.IntN(len(list))])
	}
	return b.String()
}
