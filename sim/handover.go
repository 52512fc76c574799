package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Handoff says what a server does with token ids that come beside the messages of a chat or messages request, to be
// used as its prompt instead of rendering and tokenizing. The list is closed.
const (
	// HandoffBoth takes them from kv_transfer_params.prompt_token_ids and from a member prompt_token_ids of the body.
	HandoffBoth = "both"
	// HandoffParams knows only kv_transfer_params (vLLM 0.27 to 0.33).
	HandoffParams = "params"
	// HandoffField knows only the body's member.
	HandoffField = "field"
	// HandoffIgnore takes neither, without a word (vLLM before 0.27).
	HandoffIgnore = "ignore"
	// HandoffRefuse answers 400 to a body that has either.
	HandoffRefuse = "refuse"
	// HandoffConnector has a KV connector, to which kv_transfer_params belong; the body's member is unknown.
	HandoffConnector = "connector"
)

var handoffModes = []string{HandoffBoth, HandoffParams, HandoffField, HandoffIgnore, HandoffRefuse, HandoffConnector}

// SetHandoff changes what the server does with handed-over ids from the next request on.
func (s *Server) SetHandoff(mode string) error {
	if !slices.Contains(handoffModes, mode) {
		return fmt.Errorf("cannot use handoff %q: it must be one of %s", mode, strings.Join(handoffModes, ", "))
	}
	s.handoff.Store(&mode)
	return nil
}

// handsToConnector reports whether a KV connector looks up every prompt.
func (s *Server) handsToConnector() bool { return *s.handoff.Load() == HandoffConnector }

// simHandoff answers POST /sim/handoff {"mode":".."}.
func (s *Server) simHandoff(_ context.Context, w *responder) {
	var q struct {
		Mode string `json:"mode"`
	}
	if !w.readControl(&q) {
		return
	}
	if err := s.SetHandoff(q.Mode); err != nil {
		w.fail(dialectOpenAI, badRequest("mode", err.Error()))
		return
	}
	w.json(200, append(appendString([]byte(`{"handoff":`), q.Mode), '}'))
}

// handedOver returns the ids that the request brings along, nil if it has none or they are not for this server.
func (s *Server) handedOver(m members) ([]uint32, *apiError) {
	params, e := m.object("kv_transfer_params")
	if e != nil {
		return nil, e
	}
	mode := *s.handoff.Load()
	inParams, inBody := params.given("prompt_token_ids"), m.given("prompt_token_ids")
	from := members(nil)
	switch {
	case mode == HandoffRefuse && inParams:
		return nil, invalid("extra_forbidden", "kv_transfer_params", "Extra inputs are not permitted")
	case mode == HandoffRefuse && inBody:
		return nil, invalid("extra_forbidden", "prompt_token_ids", "Extra inputs are not permitted")
	case mode == HandoffConnector && params != nil:
		s.toConnector.Add(1)
	case inBody && (mode == HandoffBoth || mode == HandoffField):
		from = m
	case inParams && (mode == HandoffBoth || mode == HandoffParams):
		from = params
	}
	ids, e := from.ids("prompt_token_ids")
	if e != nil || ids == nil {
		return nil, e
	}
	for _, id := range ids {
		if int(id) >= Tokenizer().Size() {
			return nil, badRequest("", "Token id "+string(appendInt(nil, int(id)))+" is out of vocabulary")
		}
	}
	s.handed.Add(1)
	return ids, nil
}
