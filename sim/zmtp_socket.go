package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// zmtpSocket holds the connections of one ZeroMQ socket: those that it accepts and those that it makes. Its methods
// may be called from any goroutine; listen and dial come before close.
type zmtpSocket struct {
	kind  string   // PUB or ROUTER
	peers []string // types of sockets that may talk to it

	done chan struct{} // closed by close
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool
	ln     net.Listener
	conns  map[net.Conn]struct{}
}

func newZMTPSocket(kind string, peers ...string) *zmtpSocket {
	return &zmtpSocket{kind: kind, peers: peers, done: make(chan struct{}), conns: map[net.Conn]struct{}{}}
}

// parseEndpoint splits tcp://HOST:PORT (`*` is every address) or ipc://PATH.
func parseEndpoint(endpoint string) (network, address string, err error) {
	switch {
	case strings.HasPrefix(endpoint, "tcp://"):
		host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
		if err != nil || port == "" {
			return "", "", fmt.Errorf("cannot use endpoint %q: it must be tcp://HOST:PORT or ipc://PATH", endpoint)
		}
		if host == "*" {
			host = ""
		}
		if port == "*" { // libzmq's word for any free port
			port = "0"
		}
		return "tcp", net.JoinHostPort(host, port), nil
	case strings.HasPrefix(endpoint, "ipc://") && len(endpoint) > len("ipc://"):
		return "unix", strings.TrimPrefix(endpoint, "ipc://"), nil
	default:
		return "", "", fmt.Errorf("cannot use endpoint %q: it must be tcp://HOST:PORT or ipc://PATH", endpoint)
	}
}

// listen binds the endpoint and gives every peer that completes a handshake to serve, in a goroutine of its own, until
// the socket closes. It returns the endpoint with the port that was bound.
func (s *zmtpSocket) listen(endpoint string, serve func(*zmtpConn)) (string, error) {
	network, address, err := parseEndpoint(endpoint)
	if err != nil {
		return "", err
	}
	if network == "unix" {
		removeSocket(address)
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return "", fmt.Errorf("cannot bind %s: %w", endpoint, err)
	}
	s.mu.Lock()
	s.ln = ln
	s.mu.Unlock()
	s.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			switch {
			case err == nil:
				s.wg.Go(func() { s.talk(nc, serve) })
			case errors.Is(err, net.ErrClosed):
				return
			case !s.pause(10 * time.Millisecond): // out of descriptors: do not spin
				return
			}
		}
	})
	if network == "tcp" {
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://")) // was parsed above
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			return "", fmt.Errorf("cannot read the bound address: %w", err)
		}
		if host == "*" {
			return "tcp://*:" + port, nil
		}
		return "tcp://" + net.JoinHostPort(host, port), nil
	}
	return endpoint, nil
}

// removeSocket removes the socket that a dead process left behind; libzmq does so too.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path) // if it stays, binding says why
	}
}

// zmtpRedial is the pause between attempts to connect, libzmq's ZMQ_RECONNECT_IVL; up to as much again is added, so
// that a herd does not stay one.
const zmtpRedial = 100 * time.Millisecond

// dial connects to the endpoint and, whenever the connection ends, again, until the socket closes.
func (s *zmtpSocket) dial(endpoint string, serve func(*zmtpConn)) error {
	network, address, err := parseEndpoint(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		<-s.done
		cancel()
	})
	s.wg.Go(func() {
		for {
			dialer := net.Dialer{Timeout: zmtpHandshakeLimit}
			if nc, err := dialer.DialContext(ctx, network, address); err == nil {
				s.talk(nc, serve)
			}
			if !s.pause(zmtpRedial + rand.N(zmtpRedial)) {
				return
			}
		}
	})
	return nil
}

// talk shakes hands and serves one connection to its end.
func (s *zmtpSocket) talk(nc net.Conn, serve func(*zmtpConn)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.conns[nc] = struct{}{}
	s.mu.Unlock()
	if c, err := zmtpHandshake(nc, s.kind, s.peers...); err == nil {
		serve(c)
	}
	_ = nc.Close()
	s.mu.Lock()
	delete(s.conns, nc)
	s.mu.Unlock()
}

// pause waits for d and reports false when the socket closed meanwhile.
func (s *zmtpSocket) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

// close ends every connection, undelivered messages and all (vLLM closes its sockets with no linger), and returns when
// no goroutine of the socket is left. Calling it again does nothing.
func (s *zmtpSocket) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
		if s.ln != nil {
			_ = s.ln.Close()
		}
		for nc := range s.conns {
			_ = nc.Close()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// serveBoth runs the writer of out beside read, and returns when both have ended; either ends the other.
func serveBoth(c *zmtpConn, out *zmtpOutbox, read func() error) {
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { out.writeTo(c.nc, stop) })
	_ = read() // the peer is gone or talks nonsense: the end of its connection either way
	_ = c.nc.Close()
	close(stop)
	writer.Wait()
}
