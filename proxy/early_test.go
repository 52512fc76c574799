package proxy

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/engine"
)

// early is an engine that answers 413 when it has the head, and closes.
type early struct {
	addr string
}

func startEarly(t *testing.T) *early {
	t.Helper()
	ln := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { answerEarly(nc) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return &early{addr: ln.Addr().String()}
}

func answerEarly(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	br := bufio.NewReader(nc)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		if strings.TrimSpace(line) == "" {
			break
		}
	}
	_, _ = nc.Write([]byte("HTTP/1.1 413 Too Large\r\nContent-Type: text/plain\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large"))
	_ = nc.(*net.TCPConn).CloseWrite()
	// It reads a little more, as servers do so that the answer is not lost.
	_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = br.Discard(1 << 20)
}

func (e *early) use(_ int, o *engine.Options) { o.URL.Host = e.addr }
