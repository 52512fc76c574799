package proxy

import (
	"time"

	"ramjet/route"
	"ramjet/wire"
)

// Explain tells what would be chosen at this moment for a request to path with
// this body, and why, without sending or booking anything. header gives the
// value of a header by its lower-case name, nil if there is none; the ones
// that name a session count. The error is what a client would get.
func (s *Server) Explain(path []byte, header func(name string) []byte, body []byte) (*route.Explanation, *wire.Error) {
	c := &conn{srv: s}
	f := &flight{c: c, s: s, began: time.Now(), path: path, live: s.settings()}
	f.rec.Path = path
	for _, name := range sessionHeaders {
		if v := header(name); len(v) > 0 {
			c.head.Fields = append(c.head.Fields, wire.Field{Name: []byte(name), Value: v})
		}
	}
	if fault := pathFault(path); fault != "" {
		return nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "the path holds " + fault + "; write it plainly"}
	}
	if f.ep = f.live.paths.find(path); f.ep == nil || !f.ep.kind.readsJSON() {
		return nil, &wire.Error{Code: wire.CodePathNotFound, Message: "only a path that takes a JSON body has a decision to explain, like /v1/chat/completions"}
	}
	f.dialect = f.ep.dialect
	defer f.givePrompt()
	if e := f.understand(body); e != nil {
		return nil, e
	}
	f.query.Now = s.Now()
	f.describe()
	d, err := s.Router.Explain(&f.query, &f.explain)
	if err != nil {
		return nil, f.noEngine(err)
	}
	if f.live.Handoff != nil && f.prompt != nil {
		f.explain.Handoff = f.live.Handoff.Would(d.Slot, &f.prompt.prep, &f.peek)
	}
	f.explain.Attempts = []route.Attempt{}
	return &f.explain, nil
}
