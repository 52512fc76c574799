package proxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// answerSelf answers what needs no engine.
func (f *flight) answerSelf() {
	o := own{status: 200, kind: "application/json"}
	switch f.ep.kind { //nolint:exhaustive // handle sends only these here
	case kindHealth:
		var usable bool
		if o.body, usable = f.s.Health(nil); !usable {
			o.status = 503
		}
	case kindRoot:
		o.body = append(o.body, `{"service":"ramjet","version":`...)
		o.body = append(wire.AppendQuoted(o.body, f.s.Version), '}')
	case kindModels:
		list := f.s.models()
		if list == nil {
			f.fail(&wire.Error{Code: wire.CodeNoEngine, RetryAfter: 5, Message: "no engine has told its models yet"}, telemetry.EndEngineUnreachable)
			return
		}
		o.body = append(o.body, `{"object":"list","data":[`...)
		o.body = append(o.body, bytes.Join(list, []byte(","))...)
		o.body = append(o.body, "]}"...)
	case kindModel:
		if o.body = f.s.model(unescape(f.path[len("/v1/models/"):])); o.body == nil {
			f.fail(&wire.Error{Code: wire.CodeModelNotFound}, telemetry.EndRejected)
			return
		}
	}
	if !f.respond(o) {
		f.clientGone()
		return
	}
	f.end(telemetry.EndDone)
}

// models merges the engines' lists: the object of each id as the first engine
// gave it, no key lost, and then the aliases. nil means that no list is known.
func (s *Server) models() [][]byte {
	var out [][]byte
	seen := make(map[string]bool)
	known := false
	for _, m := range s.Router.Members().Members {
		list := m.Engine.Models()
		if list == nil {
			continue
		}
		known = true
		for i, id := range list.IDs {
			if !seen[id] {
				seen[id] = true
				out = append(out, list.Objects[i])
			}
		}
	}
	if !known {
		return nil
	}
	for _, name := range s.aliasNames() {
		if object := s.model(name); object != nil && !seen[name] {
			out = append(out, object)
		}
	}
	if out == nil {
		out = [][]byte{}
	}
	return out
}

func (s *Server) aliasNames() []string {
	names := make([]string, 0, len(s.settings().Aliases))
	for name := range s.settings().Aliases {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// model returns the object of one id or alias, nil if neither is known.
func (s *Server) model(id string) []byte {
	if object := s.served(id); object != nil {
		return object
	}
	target, ok := s.settings().Aliases[id]
	if !ok {
		return nil
	}
	object := s.served(target)
	if object == nil {
		return nil
	}
	return renamed(object, id)
}

func (s *Server) served(id string) []byte {
	for _, m := range s.Router.Members().Members {
		if object := m.Engine.Models().Object(id); object != nil {
			return object
		}
	}
	return nil
}

// renamed returns a model object under another id, everything else byte for
// byte. An object without an id is returned as it is.
func renamed(object []byte, id string) []byte {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return object
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return object
		}
		before := dec.InputOffset()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return object
		}
		if key == "id" {
			after := dec.InputOffset()
			start := before + int64(bytes.Index(object[before:after], value))
			out := append([]byte{}, object[:start]...)
			return append(wire.AppendQuoted(out, id), object[after:]...)
		}
	}
	return object
}

var _ engine.Flight = (*gate)(nil)
