package sim

import (
	"context"
	"slices"
	"strconv"
)

// listModels answers GET /v1/models.
func (s *Server) listModels(_ context.Context, w *responder) {
	b := []byte(`{"object":"list","data":[`)
	for i, name := range slices.Concat(s.models, s.adapters) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = appendString(b, name)
		b = append(b, `,"object":"model","created":`...)
		b = strconv.AppendInt(b, s.created, 10)
		b = append(b, `,"owned_by":"vllm","root":`...)
		b = appendString(b, s.models[0])
		b = append(b, `,"parent":`...)
		if i < len(s.models) {
			b = append(b, "null"...)
		} else {
			b = appendString(b, s.models[0])
		}
		b = append(b, `,"max_model_len":`...)
		b = appendInt(b, s.core.Options().MaxModelLen)
		b = append(b, `,"permission":[{"id":"modelperm-`...)
		b = append(b, newID()...)
		b = append(b, `","object":"model_permission","created":`...)
		b = strconv.AppendInt(b, s.created, 10)
		b = append(b, `,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,`+
			`"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`...)
	}
	w.json(200, append(b, "]}"...))
}

// version answers GET /version.
func (s *Server) version(_ context.Context, w *responder) {
	w.json(200, []byte(`{"version":"`+Version+`"}`))
}

// health answers GET /health: an empty 200 as long as the process lives, even
// if its scheduler hangs.
func (s *Server) health(_ context.Context, w *responder) {
	w.emptyOK()
}

// emptyOK sends FastAPI's Response(status_code=200): a length and nothing else.
func (w *responder) emptyOK() {
	w.status, w.done = 200, true
	w.write(append(w.appendHead(w.buf[:0], 200, []field{{"content-length", "0"}}), "\r\n"...))
}

// load answers GET /load: requests in flight, as with
// --enable-server-load-tracking.
func (s *Server) load(_ context.Context, w *responder) {
	w.json(200, append(appendInt([]byte(`{"server_load":`), s.journal.inFlight()), '}'))
}
