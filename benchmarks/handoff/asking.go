package handoff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ModeAsk is the name of the mode in which cmd/handoffbench starts itself as a router that asks.
const ModeAsk = "ask"

// Ask serves on address as a router that needs token ids and has them from the engine: it posts every chat to /tokenize,
// reads the ids, and then passes the chat on as it is. It routes nowhere else and does nothing besides, so that what it
// costs is the question. It returns when serving ends.
func Ask(address, engine string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST "+chatPath, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = ids(client, engine, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		pass(w, r, client, engine+chatPath, body)
	})
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return s.ListenAndServe()
}

// ids asks for the ids of a chat.
func ids(client *http.Client, engine string, body []byte) error {
	resp, err := client.Post(engine+"/tokenize", "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot ask for ids: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var v struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return fmt.Errorf("cannot read the ids: %w", err)
	}
	if len(v.Tokens) == 0 {
		return fmt.Errorf("cannot read the ids: status %d and none", resp.StatusCode)
	}
	return nil
}

// pass relays a request and its answer, event by event.
func pass(w http.ResponseWriter, r *http.Request, client *http.Client, url string, body []byte) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if _, failed := w.Write(buffer[:n]); failed != nil {
				return
			}
			_ = flush.Flush()
		}
		if err != nil {
			return
		}
	}
}
