package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"ramjet/route"
	"ramjet/wire"
)

const (
	// maxExplain bounds the body of a dry run; the public port's own limit is
	// what counts for requests.
	maxExplain = 64 << 20
	// dryRunWait is how long a dry run waits for others to end; less than
	// readLimit, which would end its connection.
	dryRunWait = 10 * time.Second
)

// explain answers what would be chosen for a request (a dry run).
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	// Bodies of dry runs are held beside those of requests (limits.body_memory), so few are at once.
	wait := time.NewTimer(s.dryRunWait)
	defer wait.Stop()
	select {
	case s.dryRuns <- struct{}{}:
		defer func() { <-s.dryRuns }()
	case <-wait.C:
		refuse(w, &wire.Error{Code: wire.CodeOverloaded, Message: "Too many dry runs are under way. Try again when they are over.", RetryAfter: 1})
		return
	case <-r.Context().Done():
		return
	}
	// The wait is not the client's fault: its body gets all of the time.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readLimit))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxExplain))
	if err != nil {
		refuseBody(w, err)
		return
	}
	x, e := s.o.Explain([]byte(path), func(name string) []byte { return []byte(r.Header.Get(name)) }, body)
	if e != nil {
		refuse(w, e)
		return
	}
	reply(w, http.StatusOK, x)
}

// refuseBody says why a body could not be read.
func refuseBody(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, "body_too_large", "a dry run takes bodies up to "+strconv.Itoa(maxExplain>>20)+" MiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		fail(w, http.StatusRequestTimeout, "request_timeout", "the body did not come within "+readLimit.String())
	default:
		fail(w, http.StatusBadRequest, "malformed_http", "cannot read the body: "+err.Error())
	}
}

// refuse answers as the public port would.
func refuse(w http.ResponseWriter, e *wire.Error) {
	h := w.Header()
	after, never := e.Retry()
	if after > 0 {
		h.Set("Retry-After", strconv.Itoa(after))
	}
	if never {
		h.Set("X-Should-Retry", "false")
	}
	if e.Allow != "" {
		h.Set("Allow", e.Allow)
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_, _ = w.Write(wire.AppendErrorBody(nil, wire.DialectOpenAI, e, ""))
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
