package proxy

import (
	"strings"

	"ramjet/wire"
)

// kind is what Ramjet has to know about a path. The list is closed.
type kind uint8

const (
	kindPass      kind = iota // passed through by load
	kindChat                  // generates, JSON body, choices
	kindComplete              // generates, JSON body, prompt
	kindResponses             // generates, JSON body, may be stored
	kindStored                // names a stored response in its path
	kindMessages              // generates, JSON body, Anthropic
	kindJSON                  // JSON body, generates nothing
	kindUpload                // multipart body
	kindModels                // answered by Ramjet from the engines' lists
	kindModel                 // one of those, named in the path
	kindHealth                // answered by Ramjet
	kindRoot                  // answered by Ramjet
	kindRealtime              // becomes a WebSocket
)

// generates reports whether an answer consists of generated tokens.
func (k kind) generates() bool {
	switch k {
	case kindChat, kindComplete, kindResponses, kindMessages:
		return true
	case kindPass, kindStored, kindJSON, kindUpload, kindModels, kindModel, kindHealth, kindRoot, kindRealtime:
		return false
	}
	return false
}

// readsJSON reports whether the path takes a JSON body and nothing else.
func (k kind) readsJSON() bool { return k.generates() || k == kindJSON }

// endpoint is one known path.
type endpoint struct {
	path    string // as it is logged; a prefix ends in "/"
	kind    kind
	dialect wire.Dialect
	methods string // the Allow header; "" = any
}

// exact are the paths of DESIGN section 2.2, by their whole name.
var exact = named(map[string]*endpoint{
	"/":                          {kind: kindRoot, methods: "GET, HEAD"},
	"/health":                    {kind: kindHealth, methods: "GET, HEAD"},
	"/version":                   {kind: kindPass, methods: "GET"},
	"/tokenize":                  {kind: kindJSON, methods: "POST"},
	"/detokenize":                {kind: kindJSON, methods: "POST"},
	"/pooling":                   {kind: kindJSON, methods: "POST"},
	"/classify":                  {kind: kindJSON, methods: "POST"},
	"/score":                     {kind: kindJSON, methods: "POST"},
	"/rerank":                    {kind: kindJSON, methods: "POST"},
	"/v1/models":                 {kind: kindModels, methods: "GET"},
	"/v1/chat/completions":       {kind: kindChat, methods: "POST"},
	"/v1/completions":            {kind: kindComplete, methods: "POST"},
	"/v1/embeddings":             {kind: kindJSON, methods: "POST"},
	"/v1/responses":              {kind: kindResponses, dialect: wire.DialectResponses, methods: "POST"},
	"/v1/messages":               {kind: kindMessages, dialect: wire.DialectAnthropic, methods: "POST"},
	"/v1/messages/count_tokens":  {kind: kindJSON, dialect: wire.DialectAnthropic, methods: "POST"},
	"/v1/audio/transcriptions":   {kind: kindUpload, methods: "POST"},
	"/v1/audio/translations":     {kind: kindUpload, methods: "POST"},
	"/v1/realtime":               {kind: kindRealtime, methods: "GET"},
	"/v1/load_lora_adapter":      nil, // changes one replica's state
	"/v1/unload_lora_adapter":    nil,
	"/v1/abort_requests":         nil,
	"/v1/collective_rpc":         nil,
	"/v1/reset_prefix_cache":     nil,
	"/v1/chat/completions/batch": {kind: kindPass, methods: "POST"},
})

func named(table map[string]*endpoint) map[string]*endpoint {
	for path, ep := range table {
		if ep != nil {
			ep.path = path
		}
	}
	return table
}

// prefixes are tried in order when no exact path fits.
var prefixes = []*endpoint{
	{path: "/v1/models/", kind: kindModel, methods: "GET"},
	{path: "/v1/responses/", kind: kindStored, dialect: wire.DialectResponses},
	{path: "/v1/messages/", kind: kindPass, dialect: wire.DialectAnthropic},
	{path: "/v1/audio/", kind: kindUpload},
	{path: "/v1/", kind: kindPass},
	{path: "/v2/", kind: kindPass},
}

// endpoints is the table in force: the known paths and those that the
// configuration allows in addition.
type endpoints struct {
	allowed map[string]*endpoint
}

func newEndpoints(allow []string) *endpoints {
	t := &endpoints{allowed: make(map[string]*endpoint, len(allow))}
	for _, path := range allow {
		t.allowed[path] = &endpoint{path: path, kind: kindPass}
	}
	return t
}

// find returns the endpoint of a judged path, nil if it is not reachable. A
// trailing slash changes nothing about what is guarded.
func (t *endpoints) find(path []byte) *endpoint {
	if ep := t.allowed[string(path)]; ep != nil {
		return ep
	}
	if ep, known := exact[string(path)]; known {
		return ep
	}
	trimmed := strings.TrimRight(string(path), "/")
	if ep, known := exact[trimmed]; known && ep == nil {
		return nil
	}
	for _, ep := range prefixes {
		if len(path) > len(ep.path) && string(path[:len(ep.path)]) == ep.path {
			return ep
		}
	}
	return nil
}

// permits reports whether a method is in a comma-separated list.
func permits(methods string, method []byte) bool {
	if methods == "" {
		return true
	}
	for len(methods) > 0 {
		name, rest, _ := strings.Cut(methods, ", ")
		if name == string(method) {
			return true
		}
		methods = rest
	}
	return false
}

// pathFault says what is wrong with a request path, "" if nothing is. An
// engine decodes escapes before it looks a path up, and a path that means one
// thing here and another there would go around the list of guarded paths
// (CONTRACT 10.6). So everything is refused that has two spellings.
func pathFault(path []byte) string {
	ids := hasPrefix(path, "/v1/models/") || hasPrefix(path, "/v1/responses/")
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '%':
			if i+2 >= len(path) {
				return "a broken escape"
			}
			hi, lo := unhex(path[i+1]), unhex(path[i+2])
			if hi < 0 || lo < 0 {
				return "a broken escape"
			}
			d := byte(hi<<4 | lo)
			switch {
			case d == '/' && ids:
				if dotSegment(path[i+3:]) {
					return "an empty or dot segment"
				}
			case d == '/' || d == '\\' || d == '.' || d == 0 || d == ';' || d == '%':
				return "an escaped separator"
			case unreserved(d):
				return "an escaped letter"
			}
			i += 2
		case ';', '\\', 0:
			return "a character that paths here never hold"
		case '/':
			if dotSegment(path[i+1:]) {
				return "an empty or dot segment"
			}
		}
	}
	return ""
}

// dotSegment reports whether what follows a slash is an empty segment with
// more behind it, or one of dots alone. An escaped slash ends a segment too:
// whoever decodes before it looks for dots would see one.
func dotSegment(rest []byte) bool {
	if len(rest) == 0 {
		return false
	}
	if slashAt(rest) {
		return true
	}
	n := 0
	for n < len(rest) && rest[n] == '.' {
		n++
	}
	return n > 0 && n <= 2 && (n == len(rest) || slashAt(rest[n:]))
}

func slashAt(b []byte) bool {
	return b[0] == '/' || len(b) >= 3 && b[0] == '%' && b[1] == '2' && b[2]|0x20 == 'f'
}

func hasPrefix(b []byte, s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }

// unreserved reports whether c never needs an escape (RFC 3986 section 2.3).
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '.' || c == '~'
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unescape decodes the escapes of a path segment that pathFault let through.
func unescape(segment []byte) string {
	out := make([]byte, 0, len(segment))
	for i := 0; i < len(segment); i++ {
		if segment[i] == '%' {
			out = append(out, byte(unhex(segment[i+1])<<4|unhex(segment[i+2])))
			i += 2
			continue
		}
		out = append(out, segment[i])
	}
	return string(out)
}
