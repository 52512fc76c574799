// Package proxy is the way of a request: it accepts, limits and understands
// it, lets route choose an engine, sends it there, and relays the answer byte
// for byte while it watches both sides.
//
// One goroutine serves one client connection and everything on it. What other
// goroutines may touch of a request is its gate (gate.go), nothing else. The
// package never decides which engine is better (route) or healthy (probe), and
// it never rebuilds a body: it relays bytes.
//
// The way, file by file: conn.go reads a head, admit.go judges it, body.go
// reads the body, handle.go understands and forwards it, attempt.go runs it on
// one engine, deliver.go and relay*.go bring the answer back, finish.go closes
// the books.
package proxy
