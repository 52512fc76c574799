package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// feed is a server that shows the binary's own page and answers its questions
// out of a world.
type feed struct {
	*httptest.Server
	page *ramjet // whose page it is

	mu        sync.Mutex // guards the following
	w         *world
	records   []fields // newest first
	perSecond int      // decisions
	frames    []frame  // recorded; nil = made as they are needed
	silent    bool     // the stream stays open and says nothing
	refused   bool     // there is no stream
	late      bool     // what was before is told two seconds after it was asked for
}

// frame is one write of a recorded stream.
type frame struct {
	after time.Duration
	bytes []byte
}

func newFeed(t *testing.T, w *world) *feed {
	t.Helper()
	theBrowser(t) // skips without one
	f := &feed{page: pageOf(t), w: w, perSecond: 5}
	for range min(40, 40*len(w.engines)) {
		f.records = append(f.records, w.decision(time.Now()))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/topology", func(o http.ResponseWriter, _ *http.Request) { f.reply(o, func() any { return w.topology(time.Now()) }) })
	mux.HandleFunc("GET /api/v1/gpu", func(o http.ResponseWriter, r *http.Request) {
		from := time.Now().Add(-10 * time.Minute)
		if at, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("since")); err == nil {
			from = at
		}
		f.mu.Lock()
		late := f.late
		f.mu.Unlock()
		if late {
			time.Sleep(2 * time.Second)
		}
		f.reply(o, func() any { return w.gpuOf(r.URL.Query().Get("engine"), from, time.Now()) })
	})
	mux.HandleFunc("GET /api/v1/requests", func(o http.ResponseWriter, _ *http.Request) { f.reply(o, func() any { return f.records }) })
	mux.HandleFunc("GET /api/v1/explain/{id}", func(o http.ResponseWriter, r *http.Request) {
		f.reply(o, func() any {
			for _, x := range f.records {
				if x["request_id"] == r.PathValue("id") {
					return x
				}
			}
			return nil
		})
	})
	mux.HandleFunc("POST /api/v1/explain", func(o http.ResponseWriter, _ *http.Request) {
		f.reply(o, func() any {
			x := w.decision(time.Now())
			x["attempts"], x["result"], x["request_id"] = []fields{}, nil, nil
			return x
		})
	})
	mux.HandleFunc("GET /api/v1/stream", f.stream)
	mux.HandleFunc("/", f.through)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// pageOf starts a Ramjet whose engine does not exist, for its page's files.
func pageOf(t *testing.T) *ramjet {
	t.Helper()
	return serve(t, "--engine=none=http://127.0.0.1:1")
}

func (f *feed) reply(w http.ResponseWriter, v func() any) {
	f.mu.Lock()
	text, err := json.Marshal(v())
	f.mu.Unlock()
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// through answers with the binary's own files and headers.
func (f *feed) through(w http.ResponseWriter, r *http.Request) {
	res, err := client.Get(f.page.url(strings.TrimPrefix(r.URL.Path, "/")))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// change changes the world between two frames.
func (f *feed) change(c func(w *world)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c(f.w)
}

// hush makes the stream say nothing, or go on.
func (f *feed) hush(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = on
}

// refuse answers questions for the stream with 503, or serves it again.
func (f *feed) refuse(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = on
}

// delay makes answers about the past come after new samples, or at once.
func (f *feed) delay(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = on
}

func (f *feed) stream(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	refused := f.refused
	f.mu.Unlock()
	if refused {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, "retry: 500\n\n")
	began, told := time.Now(), time.Now()
	for tick := 0; ; tick++ {
		f.mu.Lock()
		var text []byte
		wait := 500 * time.Millisecond
		switch {
		case f.silent:
		case f.frames != nil:
			if tick >= len(f.frames) {
				f.mu.Unlock()
				return
			}
			text, wait = f.frames[tick].bytes, time.Until(began.Add(f.frames[tick].after))
		default:
			text, told = f.half(tick, told, time.Now())
		}
		f.mu.Unlock()
		if f.frames != nil && wait > 0 {
			time.Sleep(wait)
		}
		if _, err := w.Write(text); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		if f.frames == nil {
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				return
			}
		}
	}
}

// half makes what half a second brings.
func (f *feed) half(tick int, told, now time.Time) ([]byte, time.Time) {
	var b []byte
	if tick%2 == 0 {
		b = append(b, eventOf("topology", f.w.topology(now))...)
	}
	b = append(b, eventOf("gpu", f.w.gpu(told, now))...)
	for range (f.perSecond + tick%2) / 2 {
		x := f.w.decision(now)
		f.records = append([]fields{x}, f.records...)
		b = append(b, eventOf("decision", x)...)
	}
	f.records = f.records[:min(len(f.records), 500)]
	return b, now
}

func eventOf(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
}

// record makes the whole of a stream beforehand, so that the machine's time
// goes to the browser.
func (f *feed) record(length time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := time.Now()
	told := from
	for tick := 0; time.Duration(tick)*500*time.Millisecond < length; tick++ {
		after := time.Duration(tick) * 500 * time.Millisecond
		var b []byte
		b, told = f.half(tick, told, from.Add(after))
		f.frames = append(f.frames, frame{after, b})
	}
}
