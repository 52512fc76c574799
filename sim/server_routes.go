package sim

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/url"
	"strings"
	"sync"
)

// handler answers one request. ctx ends when the client leaves.
type handler func(s *Server, ctx context.Context, w *responder)

// endpoint is one route: what each method does.
type endpoint struct {
	get, post handler
}

// routeTable gives vLLM 0.32's routes of a generating model that has
// embeddings and transcription too, which no real server has together.
func routeTable() map[string]endpoint {
	return gpuRoutes(map[string]endpoint{
		"/v1/chat/completions":      {post: (*Server).chat},
		"/v1/completions":           {post: (*Server).completions},
		"/v1/responses":             {post: (*Server).responses},
		"/v1/messages":              {post: (*Server).messages},
		"/v1/messages/count_tokens": {post: (*Server).countTokens},
		"/v1/embeddings":            {post: (*Server).embeddings},
		"/v1/audio/transcriptions":  {post: (*Server).audio},
		"/v1/audio/translations":    {post: (*Server).audio},
		"/v1/models":                {get: (*Server).listModels},
		"/tokenize":                 {post: (*Server).tokenize},
		"/detokenize":               {post: (*Server).detokenize},
		"/version":                  {get: (*Server).version},
		"/health":                   {get: (*Server).health},
		"/ping":                     {get: (*Server).health, post: (*Server).health},
		"/load":                     {get: (*Server).load},
		"/metrics":                  {get: (*Server).metrics},
		"/sim/state":                {get: (*Server).simState},
		"/sim/fault":                {post: (*Server).simFault},
		"/sim/clear":                {post: (*Server).simClear},
		"/sim/restart":              {post: (*Server).simRestart},
		"/sim/evict":                {post: (*Server).simEvict},
		"/sim/handoff":              {post: (*Server).simHandoff},
		"/kv_event_sources":         {get: (*Server).eventSources},
		"/reset_prefix_cache":       {post: (*Server).resetPrefixCache},
	})
}

// route answers one request.
func (s *Server) route(ctx context.Context, w *responder) {
	r := w.req
	path := unquote(r.path)
	control := strings.HasPrefix(path, "/sim/")
	switch {
	case w.c.control && !control:
		w.notFound()
		return
	case r.upgrade:
		// No WebSocket route exists; uvicorn refuses the handshake with 403.
		w.req.close = true
		w.reply(403, "text/plain; charset=utf-8", nil)
		return
	}
	if !control {
		s.journal.body(r)
	}
	if r.method == "OPTIONS" && r.get("origin") != "" && r.get("access-control-request-method") != "" {
		// CORS is closed by default in vLLM 0.32.
		w.reply(400, "text/plain; charset=utf-8", []byte("Disallowed CORS origin"), field{"vary", "Origin"},
			field{"access-control-allow-methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}, field{"access-control-max-age", "600"})
		return
	}
	if r.method != "OPTIONS" && !s.authorized(path, r) {
		w.unauthorized()
		return
	}
	s.dispatch(ctx, w, path)
}

func (s *Server) dispatch(ctx context.Context, w *responder, path string) {
	e, ok := s.routes[path]
	if !ok {
		if e, ok = s.storedRoute(path); !ok {
			w.notFound()
			return
		}
	}
	h := e.post
	switch w.req.method {
	case "GET":
		h = e.get
	case "POST":
	default:
		h = nil
	}
	if h == nil {
		allow := "POST"
		if e.get != nil {
			allow = "GET"
		}
		w.notAllowed(allow)
		return
	}
	h(s, ctx, w)
}

// guarded are the path prefixes that vLLM's key check covers; /tokenize,
// /health and the rest stay open.
var guarded = []string{"/v1", "/v2", "/inference"}

func (s *Server) authorized(path string, r *request) bool {
	if s.o.APIKey == "" {
		return true
	}
	for _, p := range guarded {
		if strings.HasPrefix(path, p) {
			scheme, key, _ := strings.Cut(r.get("authorization"), " ")
			want, got := sha256.Sum256([]byte(s.o.APIKey)), sha256.Sum256([]byte(key))
			return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
		}
	}
	return true
}

// unquote undoes percent escapes as Python's urllib does: a bad one stays.
func unquote(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if c, err := url.PathUnescape(path[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// keptBodies is how many hashes of request bodies /sim/state lists.
const keptBodies = 1000

// journal counts requests and remembers hashes of their bodies. It belongs to
// the observer and not to the simulated process, so a restart keeps it.
type journal struct {
	mu       sync.Mutex // guards all below
	flying   int
	requests int
	aborted  int
	bodies   []string // ring of the last keptBodies, next is the oldest
	next     int
}

func newJournal() *journal { return &journal{} }

// body notes the hash of a POST body.
func (j *journal) body(r *request) {
	if r.method != "POST" {
		return
	}
	sum := sha256.Sum256(r.body)
	h := hex.EncodeToString(sum[:])
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.bodies) < keptBodies {
		j.bodies = append(j.bodies, h)
		return
	}
	j.bodies[j.next] = h
	j.next = (j.next + 1) % keptBodies
}

// begin counts a generation request; the returned function ends it, once,
// and is told whether the client left first.
func (j *journal) begin() func(left bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flying++
	j.requests++
	return func(left bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.flying--
		if left {
			j.aborted++
		}
	}
}

func (j *journal) inFlight() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flying
}

// counts returns the journal's numbers and hashes, oldest hash first.
func (j *journal) counts() (flying, requests, aborted int, bodies []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	bodies = append(bodies, j.bodies[j.next:]...)
	bodies = append(bodies, j.bodies[:j.next]...)
	return j.flying, j.requests, j.aborted, bodies
}
