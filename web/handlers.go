package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"

	"ramjet/probe"
	"ramjet/wire"
)

// livez answers while the process serves; ramjet health asks it.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"live": true})
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}{Ready: true}
	if s.o.Ready != nil {
		answer.Ready, answer.Reasons = s.o.Ready()
	}
	if answer.Reasons == nil {
		answer.Reasons = []string{}
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, answer)
}

// health gives the body of the public port's /health, with the same status.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status := http.StatusOK
	if s.o.Monitor.Health().Status == probe.HealthUnhealthy {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(s.o.Monitor.AppendHealthJSON(nil), '\n'))
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.o.Metrics.WritePrometheus(w)
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	if s.o.Config == nil {
		fail(w, http.StatusNotImplemented, "not_implemented", "this Ramjet was started without a configuration to show")
		return
	}
	reply(w, http.StatusOK, s.o.Config())
}

// change wraps one of the monitor's orders. The answer tells the state that
// the engine is in afterwards.
func (s *Server) change(order func(name string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if err := order(name); err != nil {
			if errors.Is(err, probe.ErrUnknownEngine) {
				fail(w, http.StatusNotFound, "path_not_found", "there is no engine "+quote(name))
				return
			}
			fail(w, http.StatusInternalServerError, "internal_error", err.Error())
			return
		}
		for _, e := range s.o.Monitor.Health().Engines {
			if e.Name == name {
				reply(w, http.StatusOK, map[string]string{"engine": name, "state": e.State.String(), "reason": e.Reason})
				return
			}
		}
		reply(w, http.StatusOK, map[string]any{"engine": name, "state": nil, "reason": nil})
	}
}

// profiles serves net/http/pprof under the guard of mutations: a profile shows
// names of functions and costs CPU, a heap dump more.
func (s *Server) profiles() {
	for path, f := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": pprof.Cmdline,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		s.mux.Handle(path, allow(s.guarded(f), http.MethodGet, http.MethodHead, http.MethodPost))
	}
}

// reply writes v as JSON. What cannot be written is a fault of the program
// that gave it, told as 500.
func reply(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		fail(w, http.StatusInternalServerError, "internal_error", fmt.Sprintf("cannot write the answer: %v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// errorView is an error in the shape of the OpenAI API.
type errorView struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func newError(status int, code, message string) errorView {
	like := wire.Error{Status: status}
	return errorView{Message: message, Type: like.Type(wire.DialectOpenAI), Code: code}
}

// fail writes an error in the shape of the OpenAI API.
func fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]errorView{"error": newError(status, code, message)})
}

// quote shows a text of the request, cut to what a message can bear.
func quote(s string) string {
	if len(s) > 128 {
		s = s[:128]
	}
	return strconv.Quote(s)
}
