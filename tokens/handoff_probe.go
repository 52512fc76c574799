package tokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ramjet/wire"
)

// probeLengths are the two numbers of ids that a probe hands over: an engine that answers with both as its count of
// prompt tokens has used them. One alone could be the length of what its template makes of the message by chance.
var probeLengths = [...]int{67, 101}

// handoffPath is where a request of an endpoint goes.
var handoffPath = [handoffEndpoints]string{"/v1/chat/completions", "/v1/completions", "/v1/messages"}

// probeForms are the forms to try, the safest first: no KV connector reads the first.
var probeForms = [handoffEndpoints][]wire.TokenForm{
	EndpointChat:        {wire.TokenField, wire.TokenKVTransfer},
	EndpointCompletions: {wire.TokenPrompt},
	EndpointMessages:    {wire.TokenField, wire.TokenKVTransfer},
}

// ProbeHandoff finds out by trying whether an engine uses ids that come with a request: with messages and ids of
// different lengths its count of prompt tokens tells which it took. Versions of vLLM before 0.27 ignore ids without a
// word, so that the version is never asked. It costs the engine at most eight requests of one output token.
//
// kv_transfer_params is left alone where the engine has a KV connector, which may read them for itself, and where
// that cannot be found out, which takes an Asker that is a Getter (GET /metrics). The error says that the engine could
// not be asked: the slot is then as unknown as before, and probing again may help. Run it when an engine is found and
// when it has restarted, after Reset. It needs the local tokenizer.
func (h *Handoff) ProbeHandoff(ctx context.Context, a Asker, slot int, engine, model string) (HandoffStatus, error) {
	s := h.o.Model.Source()
	if s == nil {
		h.learn(slot, h.resetsOf(slot), &engineForms{name: engine, why: noteNoTokenizer})
		return h.Status(slot), nil
	}
	resets := h.resetsOf(slot)
	ids, _ := s.tokenizer.AppendEncode(nil, strings.Repeat("The ids of this text stand in for those of the message. ", 20), Limits{})
	if len(ids) < probeLengths[1] {
		return h.Status(slot), errors.New("cannot probe handing over: the tokenizer makes no ids of a text")
	}
	f := &engineForms{name: engine}
	connector := connectorUnknown
	for e := range handoffEndpoints {
		why := ""
		for _, form := range probeForms[e] {
			if form == wire.TokenKVTransfer {
				if connector == connectorUnknown {
					connector = findConnector(ctx, a)
				}
				if connector != connectorNone {
					why = connector.String()
					continue
				}
			}
			try, err := tryForm(ctx, a, Endpoint(e), form, model, ids)
			if err != nil {
				return h.Status(slot), err
			}
			if try.connector {
				connector = connectorFound
			}
			if try.used {
				f.forms[e] = form
				break
			}
			why = try.why
		}
		if f.forms[e] == wire.TokenNone {
			f.why = why
		}
	}
	outcome := handoffProbed
	if f.forms == [handoffEndpoints]wire.TokenForm{} {
		outcome = handoffUnsupported
	}
	if !h.learn(slot, resets, f) {
		return h.Status(slot), errors.New("cannot use the probe of an engine that was reset meanwhile")
	}
	h.o.Counts.Handoff(engine, outcome)
	return h.Status(slot), nil
}

// maxProbeAnswer bounds the answer of one output token.
const maxProbeAnswer = 1 << 20

// tried is what came of one form.
type tried struct {
	used      bool   // the engine took the ids for its prompt
	connector bool   // its answer shows a KV connector
	why       string // it did not
}

// tryForm sends a request of each length.
func tryForm(ctx context.Context, a Asker, e Endpoint, form wire.TokenForm, model string, ids []uint32) (t tried, err error) {
	for _, n := range probeLengths {
		status, answer, err := a.Post(ctx, handoffPath[e], probeBody(e, form, model, ids[:n]), maxProbeAnswer)
		if err != nil {
			return t, fmt.Errorf("cannot probe handing over: %w", err)
		}
		switch {
		case status >= 500 || status == 429 || status == 408:
			return t, fmt.Errorf("cannot probe handing over: the engine answers %d at %s", status, handoffPath[e])
		case status != 200: // the field, or the endpoint, is refused
			t.why = fmt.Sprintf("the engine answers %d to ids at %s", status, handoffPath[e])
			return t, nil
		}
		counted, connector := readProbe(answer)
		t.connector = t.connector || connector
		if counted != n {
			t.why = "the engine ignores ids at " + handoffPath[e]
			return t, nil
		}
	}
	if t.used = !(t.connector && form == wire.TokenKVTransfer); !t.used {
		t.why = connectorFound.String()
	}
	return t, nil
}

// readProbe reads the count of prompt tokens from an answer of any dialect, and whether a KV connector speaks there.
func readProbe(answer []byte) (counted int, connector bool) {
	var got struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			// Messages count what was cached apart.
			Input int `json:"input_tokens"`
			Read  int `json:"cache_read_input_tokens"`
			Made  int `json:"cache_creation_input_tokens"`
		} `json:"usage"`
		KVTransfer json.RawMessage `json:"kv_transfer_params"`
	}
	if json.Unmarshal(answer, &got) != nil {
		return 0, false
	}
	u := got.Usage
	return max(u.Prompt, u.Input+u.Read+u.Made), len(got.KVTransfer) > 0 && string(got.KVTransfer) != "null"
}

// probeBody is a request of one output token whose text is far shorter than its ids.
func probeBody(e Endpoint, form wire.TokenForm, model string, ids []uint32) []byte {
	body := []byte(`{`)
	if model != "" {
		body = append(wire.AppendQuoted(append(body, `"model":`...), model), ',')
	}
	body = append(body, `"max_tokens":1,"temperature":0,`...)
	if e == EndpointCompletions {
		body = append(body, `"prompt":"Hi"}`...)
	} else {
		body = append(body, `"messages":[{"role":"user","content":"Hi"}]}`...)
	}
	var p wire.Peeked
	if err := p.Peek(body); err != nil {
		panic("BUG: a probe is no JSON")
	}
	out, _ := wire.AppendEdits(nil, body, &p, wire.Edits{Tokens: wire.TokenSplice{Form: form, IDs: ids}})
	return out
}

// connectorState is what is known of an engine's KV connector.
type connectorState uint8

const (
	connectorUnknown connectorState = iota
	connectorNone
	connectorFound
	connectorHidden
)

func (c connectorState) String() string {
	switch c {
	case connectorFound:
		return "the engine has a KV connector, which may read kv_transfer_params for itself"
	case connectorHidden:
		return "whether the engine has a KV connector cannot be read from its metrics"
	case connectorUnknown, connectorNone:
	}
	return ""
}

// connectorSeries begin the names of vLLM's series that only a KV connector makes (distributed/kv_transfer, 0.32).
var connectorSeries = []string{"vllm:nixl_", "vllm:kv_offload_", "vllm:lmcache_", "vllm:mooncake_", "vllm:simple_kv_offload"}

// externalQueries counts the tokens that were looked for in a connector's cache: every request with one counts, none
// without (v1/core/sched/scheduler.py), and the probe has sent a request before this is read.
const externalQueries = "vllm:external_prefix_cache_queries_total"

// findConnector reads an engine's metrics.
func findConnector(ctx context.Context, a Asker) connectorState {
	const most = 16 << 20
	g, ok := a.(Getter)
	if !ok {
		return connectorHidden
	}
	status, text, err := g.Get(ctx, "/metrics", most)
	if err != nil || status != 200 || !bytes.Contains(text, []byte("vllm:")) {
		return connectorHidden
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, series := range connectorSeries {
			if strings.HasPrefix(line, series) {
				return connectorFound
			}
		}
		if strings.HasPrefix(line, externalQueries) {
			fields := strings.Fields(line)
			if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err != nil || v > 0 {
				return connectorFound
			}
		}
	}
	return connectorNone
}
