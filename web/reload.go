package web

import (
	"errors"
	"net/http"
)

// Reloaded is the outcome of loading the configuration again.
type Reloaded struct {
	// Err is why nothing was taken over; nil: all that can be was.
	// errors.ErrUnsupported says that there is nothing to load again.
	Err error
	// Problems are the places that Err is about, as far as they are known.
	Problems []ReloadProblem
	// Digest is that of the configuration in force.
	Digest string
	// Changed are the keys that were taken over, NeedsRestart those that the
	// process keeps as they were until it is started again.
	Changed, NeedsRestart []string
	// Warnings are worth reading and stopped nothing.
	Warnings []string
}

// ReloadProblem is one thing wrong with the settings. What is not known is
// empty or 0.
type ReloadProblem struct {
	File    string `json:"file"` // or the flag or variable
	Line    int    `json:"line"` // from 1
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Message string `json:"message"` // with what to do instead
}

// reload answers POST /-/reload when it is done.
func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	if s.o.Reload == nil {
		fail(w, http.StatusNotImplemented, "not_implemented", "this Ramjet cannot load its configuration again; restart it")
		return
	}
	r := s.o.Reload()
	if errors.Is(r.Err, errors.ErrUnsupported) {
		fail(w, http.StatusNotImplemented, "not_implemented", "this Ramjet has nothing to load again")
		return
	}
	if r.Err != nil {
		reply(w, http.StatusUnprocessableEntity, struct {
			Error    errorView       `json:"error"`
			Reloaded bool            `json:"reloaded"`
			Digest   string          `json:"digest"`
			Problems []ReloadProblem `json:"problems"`
		}{newError(http.StatusUnprocessableEntity, "invalid_request", "the old configuration is still in use: "+r.Err.Error()), false, r.Digest, listed(r.Problems)})
		return
	}
	reply(w, http.StatusOK, struct {
		Reloaded     bool     `json:"reloaded"`
		Digest       string   `json:"digest"`
		Changed      []string `json:"changed"`
		NeedsRestart []string `json:"needs_restart"`
		Warnings     []string `json:"warnings"`
	}{true, r.Digest, listed(r.Changed), listed(r.NeedsRestart), listed(r.Warnings)})
}

// listed makes of nothing an empty list, which is not null in JSON.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
