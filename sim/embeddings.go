package sim

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// embeddingSize is the length of the vectors that POST /v1/embeddings gives.
const embeddingSize = 64

// embeddings answers POST /v1/embeddings with unit vectors that are a pure
// function of seed and tokens.
func (s *Server) embeddings(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectOpenAI)
	if m == nil {
		return
	}
	a := &answerRequest{dialect: dialectOpenAI, id: "embd-" + requestID(w.req), choices: 1, created: time.Now().Unix()}
	format, e := m.text("encoding_format")
	if e == nil && !m.given("input") {
		e = invalid("missing", "input", "Field required")
	}
	if e == nil {
		e = a.readPrompts(members{"prompt": m["input"]})
	}
	if e == nil {
		e = s.readModel(a, m)
	}
	if e == nil {
		e = s.fits(a)
	}
	if e != nil {
		w.fail(dialectOpenAI, e)
		return
	}
	a.job = Job{MaxTokens: 1, Salt: a.job.Salt}
	g := s.begin(ctx, w, a)
	if g == nil {
		return
	}
	defer g.end()
	if !g.each(w, func(piece) bool { return true }) {
		return
	}
	w.json(200, s.appendEmbeddings(nil, a, format == "base64"))
}

func (s *Server) appendEmbeddings(b []byte, a *answerRequest, packed bool) []byte {
	b = appendString(append(b, `{"id":`...), a.id)
	b = strconv.AppendInt(append(b, `,"object":"list","created":`...), a.created, 10)
	b = appendString(append(b, `,"model":`...), a.model)
	b = append(b, `,"data":[`...)
	n := 0
	for i, p := range a.prompts {
		n += len(p)
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(append(b, `{"index":`...), i)
		b = append(b, `,"object":"embedding","embedding":`...)
		v := vectorOf(s.core.Options().Seed, p)
		if packed {
			raw := make([]byte, 0, 4*len(v))
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			b = appendString(b, base64.StdEncoding.EncodeToString(raw))
		} else {
			text, err := json.Marshal(v)
			if err != nil {
				panic("BUG: cannot encode a vector: " + err.Error())
			}
			b = append(b, text...)
		}
		b = append(b, '}')
	}
	b = appendInt(append(b, `],"usage":{"prompt_tokens":`...), n)
	b = appendInt(append(b, `,"total_tokens":`...), n)
	return append(b, `,"completion_tokens":0,"prompt_tokens_details":null}}`...)
}

// vectorOf makes a unit vector from a prompt.
func vectorOf(seed uint64, prompt []uint32) []float32 {
	x := seed ^ PromptHash(prompt)
	v := make([]float64, embeddingSize)
	var norm float64
	for i := range v {
		x += 0x9e3779b97f4a7c15 // splitmix64
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		v[i] = float64(int64(z^z>>31)) / math.MaxInt64
		norm += v[i] * v[i]
	}
	out := make([]float32, len(v))
	for i := range v {
		out[i] = float32(v[i] / math.Sqrt(norm))
	}
	return out
}
