package benchmarks

import "time"

// readyLimit is for the one request that shows that a proxy serves.
const readyLimit = 5 * time.Second

// promptLimit is far beyond what a prompt of 2 MB takes on a busy machine.
const promptLimit = 60 * time.Second

// promptTokens is the length of the answers to prompts: what is measured is the way in.
const promptTokens = 2

// prompts sends the connection's share of a corpus. The bodies are made before the first of them is sent.
func (l *loader) prompts() {
	for _, body := range l.bodies() {
		start := l.client.clock.now()
		_, err := l.client.post(body, promptLimit)
		l.requests++
		if err != nil {
			l.fail(err)
			continue
		}
		l.tokens += promptTokens
		l.whole = append(l.whole, l.client.clock.now()-start)
	}
}

func (l *loader) bodies() (out [][]byte) {
	p := l.spec.Prompts
	if p.Warm {
		for i := l.index; i < p.common(l.spec.Streams); i += l.spec.Streams {
			out = append(out, appendPrompt(nil, p.hot(i), promptTokens, false))
		}
		return out
	}
	for n := range l.spec.Requests {
		out = append(out, appendPrompt(nil, p.next(l.spec.Seed, l.index, n), promptTokens, false))
	}
	return out
}

// wholes makes streams of Tokens on an engine of any pace, after Warm short ones that are not taken. Each has a prompt
// of its own, so that no cache shortens it.
func (l *loader) wholes() {
	time.Sleep(time.Duration(l.index*l.spec.ApartMicros) * time.Microsecond)
	for n := range l.spec.Warm + l.spec.Requests {
		cold := PromptSpec{Corpus: CorpusCold, Bytes: 60}
		tokens := l.spec.Tokens
		if n < l.spec.Warm {
			tokens = promptTokens
		}
		body := appendPrompt(nil, cold.next(l.spec.Seed, l.index, n), tokens, true)
		start := l.client.clock.now()
		_, err := l.client.post(body, promptLimit)
		l.requests++
		if err != nil {
			l.fail(err)
			continue
		}
		l.tokens += int64(tokens)
		if n >= l.spec.Warm {
			l.whole = append(l.whole, l.client.clock.now()-start)
		}
	}
}
