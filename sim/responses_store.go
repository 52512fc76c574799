package sim

import (
	"context"
	"strings"
	"sync"
)

// keptResponses bounds the store. vLLM never evicts; a simulator that runs
// for days must.
const keptResponses = 10000

// storedResponse is one answer that a later request may refer to.
type storedResponse struct {
	body     []byte // the response object
	status   string
	turns    []ChatMessage // the conversation with its answer, without instructions
	cancel   context.CancelFunc
	finished bool
}

// responseStore keeps Responses answers in the process, as vLLM does with
// VLLM_ENABLE_RESPONSES_API_STORE=1: a restart loses them.
type responseStore struct {
	mu    sync.Mutex // guards all below
	byID  map[string]*storedResponse
	order []string
}

func newResponseStore() *responseStore {
	return &responseStore{byID: map[string]*storedResponse{}}
}

func (st *responseStore) reset() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range st.byID {
		if r.cancel != nil {
			r.cancel()
		}
	}
	st.byID, st.order = map[string]*storedResponse{}, nil
}

// put stores r under id, unless it was cancelled in the meantime.
func (st *responseStore) put(id string, r storedResponse) {
	st.mu.Lock()
	defer st.mu.Unlock()
	old := st.byID[id]
	if old != nil && old.status == "cancelled" {
		return
	}
	if old == nil {
		st.order = append(st.order, id)
	}
	st.byID[id] = &r
	if len(st.order) > keptResponses {
		delete(st.byID, st.order[0])
		st.order = st.order[1:]
	}
}

// get returns a copy of what is stored under id.
func (st *responseStore) get(id string) (storedResponse, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r, ok := st.byID[id]
	if !ok {
		return storedResponse{}, false
	}
	return *r, true
}

// cancelled marks an unfinished background response and stops its work. It
// returns false if there is nothing to cancel.
func (st *responseStore) cancelled(id string, body func(storedResponse) []byte) ([]byte, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r, ok := st.byID[id]
	if !ok || r.finished || r.cancel == nil {
		return nil, false
	}
	r.cancel()
	r.status, r.finished = "cancelled", true
	r.body = body(*r)
	return r.body, true
}

// storedRoute finds the routes with an id in their path.
func (s *Server) storedRoute(path string) (endpoint, bool) {
	id, ok := strings.CutPrefix(path, "/v1/responses/")
	if !ok || id == "" {
		return endpoint{}, false
	}
	if id, ok := strings.CutSuffix(id, "/cancel"); ok && id != "" && !strings.Contains(id, "/") {
		return endpoint{post: func(s *Server, _ context.Context, w *responder) { s.cancelResponse(w, id) }}, true
	}
	if strings.Contains(id, "/") {
		return endpoint{}, false
	}
	return endpoint{get: func(s *Server, _ context.Context, w *responder) { s.getResponse(w, id) }}, true
}

// responseMissing is vLLM's answer to an id that it does not know.
func responseMissing(id string) *apiError {
	return &apiError{404, "NotFoundError", "Response with id '" + id + "' not found.", "response_id"}
}

func (s *Server) getResponse(w *responder, id string) {
	if !strings.HasPrefix(id, "resp_") {
		w.fail(dialectResponses, badRequest("response_id", "Invalid 'response_id': '"+id+"'. Expected an ID that begins with 'resp'."))
		return
	}
	r, ok := s.store.get(id)
	if !ok {
		w.fail(dialectResponses, responseMissing(id))
		return
	}
	w.json(200, r.body)
}

func (s *Server) cancelResponse(w *responder, id string) {
	if _, ok := s.store.get(id); !ok {
		w.fail(dialectResponses, responseMissing(id))
		return
	}
	body, ok := s.store.cancelled(id, func(r storedResponse) []byte {
		return []byte(strings.Replace(string(r.body), `"status":"in_progress"`, `"status":"cancelled"`, 1))
	})
	if !ok {
		w.fail(dialectResponses, badRequest("response_id", "Cannot cancel a synchronous response."))
		return
	}
	w.json(200, body)
}
