package rig

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// NewRawServer starts a server that is an engine for GETs and answers a POST as
// soon as it has its head, without reading the body, and closes. It returns its
// address.
func NewRawServer(t testing.TB, answer string) string {
	t.Helper()
	ln, err := Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatalf("cannot listen: %v", err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answerHeads(conn, answer)
		}
	}()
	return ln.Addr().String()
}

func answerHeads(conn net.Conn, answer string) {
	defer func() { _ = conn.Close() }()
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		for rest := line; rest != "\r\n"; {
			if rest, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		if strings.HasPrefix(line, "POST ") {
			_, _ = io.WriteString(conn, answer)
			return
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(line, "GET "), " ")
		_, _ = io.WriteString(conn, ownWords("GET", path))
	}
}
