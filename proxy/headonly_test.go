package proxy

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"ramjet/engine"
)

// refuseByHead answers every request 401 as soon as its head is there, and
// reads its body only then, as a check of keys in front of an engine does.
func refuseByHead(t *testing.T) (addr string) {
	ln := listen(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = nc.Close() }()
				br := bufio.NewReaderSize(nc, 64<<10)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_, _ = io.WriteString(nc, sized("401 Unauthorized", "application/json", "{}"))
					_, _ = io.Copy(io.Discard, req.Body)
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// TestRefusedByTheHead: the answer may be there before the body is written, and
// no later event tells of it. One request in a thousand hung where the wait
// for it began behind the head.
func TestRefusedByTheHead(t *testing.T) {
	t.Parallel()
	addr := refuseByHead(t)
	f := start(t, []script{func(*exchange) {}}, func(s *setup) {
		s.engine = func(_ int, o *engine.Options) { o.URL.Host = addr }
	})
	request := post(chatPath, `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("x", 20<<10)+`"}]}`)
	var wg sync.WaitGroup
	for range 16 {
		c := f.dial()
		wg.Go(func() {
			for range 250 {
				if _, err := io.WriteString(c.nc, request); err != nil {
					t.Error(err)
					return
				}
				resp, err := http.ReadResponse(c.br, nil)
				if err != nil || resp.StatusCode != 401 {
					t.Errorf("no answer although it was there: %v, %v", resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	wg.Wait()
}
