package web

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"ramjet/route"
	"ramjet/wire"
)

// maxExplain bounds the body of a dry run; the public port's own limit is what
// counts for requests.
const maxExplain = 64 << 20

// explain answers what would be chosen for a request (a dry run).
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	// Bodies of dry runs are held beside those of requests (limits.body_memory), so few are at once.
	select {
	case s.dryRuns <- struct{}{}:
		defer func() { <-s.dryRuns }()
	case <-r.Context().Done():
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxExplain))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			fail(w, http.StatusRequestEntityTooLarge, "body_too_large", "a dry run takes bodies up to "+strconv.Itoa(maxExplain>>20)+" MiB")
			return
		}
		fail(w, http.StatusBadRequest, "malformed_http", "cannot read the body: "+err.Error())
		return
	}
	x, e := s.o.Explain([]byte(path), func(name string) []byte { return []byte(r.Header.Get(name)) }, body)
	if e != nil {
		refuse(w, e)
		return
	}
	reply(w, http.StatusOK, x)
}

// refuse answers as the public port would.
func refuse(w http.ResponseWriter, e *wire.Error) {
	message := e.Message
	if message == "" {
		message = e.Code.Message()
	}
	fail(w, e.Code.Status(), e.Code.String(), message)
}

// explained answers with the explanation of a request that was served.
func (s *Server) explained(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if x, ok := s.o.Decisions.Find([]byte(id)); ok {
		reply(w, http.StatusOK, &x)
		return
	}
	fail(w, http.StatusNotFound, "path_not_found", "no decision about request "+quote(id)+" is kept; the newest "+
		strconv.Itoa(s.o.Decisions.Size())+" are, see /api/v1/requests")
}

// requests lists the newest decisions; with brief=1 as the stream tells them.
func (s *Server) requests(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := 100
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fail(w, http.StatusBadRequest, "invalid_request", "limit must be a whole number above 0, not "+quote(text))
			return
		}
		limit = n
	}
	list := s.o.Decisions.List(route.Filter{Engine: q.Get("engine"), Reason: q.Get("reason"), End: q.Get("end")}, limit)
	if q.Get("brief") != "" {
		for i := range list {
			brief(&list[i])
		}
	}
	reply(w, http.StatusOK, list)
}
