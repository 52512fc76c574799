package web

import (
	"net/http"
	"time"
)

const (
	// writeLimit is how long a frame may take to go out: a page that does not
	// read for so long is gone, or asleep and comes back.
	writeLimit = 10 * time.Second
	// streamHead asks browsers to come back after a second.
	streamHead = "retry: 1000\n\n"
)

// stream is GET /api/v1/stream: `event: topology` each second, `event:
// decision` at most 20 a second, `event: gpu` at 2 Hz (CONTRACT section 5).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	sub := s.hub.join()
	if sub == nil {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "overloaded", "too many pages look on at once, or Ramjet is stopping")
		return
	}
	defer s.hub.leave(sub)
	s.begin(time.Now())
	s.Stir(time.Now())
	out := http.NewResponseController(w)
	// The server's limit on reading a request would end the stream.
	_ = out.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	frame := append([]byte(streamHead), event("topology", s.view(time.Now()))...)
	for {
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := w.Write(frame); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case frame = <-sub.frames:
		case <-sub.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}
