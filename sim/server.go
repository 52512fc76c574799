package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the vLLM release that the simulator stands in for; it is what
// GET /version says.
const Version = "0.32.0"

// ErrDied is returned by Serve when a die fault struck and ExitOnDie is set.
var ErrDied = errors.New("the simulated engine died")

// ServerOptions describe one simulated vLLM server. The zero value of a field
// means its default.
type ServerOptions struct {
	Core  CoreOptions
	Model string // served model names, separated by commas; default "sim". The first one is reported.

	Listen   string       // TCP address; default 127.0.0.1:0
	Listener net.Listener // takes the place of Listen; the server closes it
	// Control is a second address for the /sim/ paths alone. Unlike the main port it survives the faults
	// die, refuse and a restart; "" = none.
	Control string

	Events EventOptions // published only with an endpoint
	// Handoff says what becomes of token ids that come beside messages: HandoffBoth (default) or another.
	Handoff    string
	Adapters   string // names of LoRA adapters, separated by commas; served beside Model, with a cache of their own
	HideCached bool   // usage without prompt_tokens_details, as without --enable-prompt-tokens-details
	// DropReasoning has the template leave out the reasoning of messages before the last one of a user, as the
	// templates of Qwen3 do.
	DropReasoning bool
	DevMode       bool // POST /reset_prefix_cache is served, as with VLLM_SERVER_DEV_MODE

	APIKey     string        // asked of /v1, /v2 and /inference paths; "" = none
	KeepAlive  time.Duration // idle time after an answer; default 5 s, uvicorn's
	StartDelay time.Duration // connections are refused for so long, as while vLLM loads its model
	ExitOnDie  bool          // Serve ends with ErrDied when a die fault without seconds strikes
}

// Server is one simulated vLLM server behind uvicorn's HTTP. All methods may
// be called from any goroutine.
type Server struct {
	o                   ServerOptions
	core                *Core
	models              []string
	adapters            []string
	events              *kvPubSub // nil without events
	frontend            frontend
	handoff             atomic.Pointer[string]
	handed, toConnector atomic.Int64        // requests whose ids were used; whose kv_transfer_params went to the connector
	routes              map[string]endpoint // never changes
	addr                string
	created             int64 // Unix time, reported by /v1/models
	faults              *faultBox
	journal             *journal
	meters              *meters
	store               *responseStore
	started             atomic.Int64 // start of the simulated process, Unix nanoseconds
	phase               atomic.Int32 // phaseServing and so on
	wg                  sync.WaitGroup
	died                chan struct{}
	ctx                 context.Context // the server's life, from NewServer to the end of Serve
	cancel              context.CancelFunc

	mu       sync.Mutex   // guards what follows
	listener net.Listener // nil while connections are refused
	control  net.Listener
	conns    map[*conn]struct{}
	epoch    uint64 // counts openings and closings, so that an old timer does not reopen
	hangs    uint64 // counts hangs, so that an old timer does not end a later one
}

const (
	phaseServing  = iota
	phaseDraining // requests run to their end, new ones are answered oddly
	phaseStopping // everything was aborted, connections end with their answers
)

// NewServer binds the ports and returns a server that Serve runs.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Model == "" {
		o.Model = "sim"
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 5 * time.Second
	}
	s := &Server{
		o: o, models: strings.Split(o.Model, ","), routes: routeTable(), created: time.Now().Unix(), conns: map[*conn]struct{}{},
		faults: newFaultBox(), journal: newJournal(), meters: newMeters(), store: newResponseStore(), died: make(chan struct{}, 1),
	}
	if o.Adapters != "" {
		s.adapters = strings.Split(o.Adapters, ",")
	}
	if err := s.SetHandoff(cmp.Or(o.Handoff, HandoffBoth)); err != nil {
		return nil, err
	}
	if s.o.Core.HashSeed == 0 {
		s.o.Core.HashSeed = hashSeed()
	}
	if n := NewCore(s.o.Core).Options().MaxModelLen; n < 1 {
		return nil, errors.New("cannot serve: the KV blocks are too few for one sequence")
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	s.core = NewCore(s.o.Core)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.started.Store(time.Now().UnixNano())
	return s, nil
}

// bind opens the ports: that of the API, of the control, of the events.
func (s *Server) bind() (err error) {
	ln := s.o.Listener
	if ln == nil {
		if ln, err = net.Listen("tcp", s.o.Listen); err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
	}
	s.listener, s.addr = ln, ln.Addr().String()
	if s.o.Control != "" {
		if s.control, err = net.Listen("tcp", s.o.Control); err != nil {
			_ = ln.Close()
			return fmt.Errorf("cannot listen for control: %w", err)
		}
	}
	if err = s.openEvents(); err != nil {
		_ = ln.Close()
		if s.control != nil {
			_ = s.control.Close()
		}
		return err
	}
	if s.o.StartDelay > 0 {
		_ = ln.Close()
		s.listener = nil
		s.suspendEvents()
	}
	return nil
}

// Addr is the address of the main port, HOST:PORT; it stays the same through
// refusals and restarts.
func (s *Server) Addr() string { return s.addr }

// URL is http:// and Addr.
func (s *Server) URL() string { return "http://" + s.addr }

// ControlAddr is the address of the control port, "" without one.
func (s *Server) ControlAddr() string {
	if s.control == nil {
		return ""
	}
	return s.control.Addr().String()
}

// Core returns the engine core behind the server.
func (s *Server) Core() *Core { return s.core }

// Serve runs the engine and answers requests until ctx ends; then it closes
// every connection and returns nil once all its goroutines are gone. It is
// called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.cancel()
	s.wg.Go(func() { _ = s.core.Run(s.ctx) })
	if s.events != nil {
		s.wg.Go(func() { s.events.run(s.ctx) })
	}
	s.mu.Lock()
	if s.control != nil {
		s.acceptFrom(s.control, true)
	}
	if s.listener != nil {
		s.acceptFrom(s.listener, false)
	}
	s.mu.Unlock()
	if s.o.StartDelay > 0 {
		s.reopenAfter(s.o.StartDelay, s.resumeEvents)
	}
	var err error
	select {
	case <-ctx.Done():
	case <-s.died:
		err = ErrDied
	}
	s.cancel()
	s.closeListener()
	if s.control != nil {
		_ = s.control.Close()
	}
	s.closeConns(func(*conn) bool { return true })
	s.wg.Wait()
	return err
}

// acceptFrom starts the accept loop of ln. The caller holds mu.
func (s *Server) acceptFrom(ln net.Listener, control bool) {
	s.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				time.Sleep(10 * time.Millisecond) // out of descriptors: do not spin
				continue
			}
			s.admit(&conn{s: s, nc: nc, in: input{r: nc}, control: control}, ln)
		}
	})
}

// admit serves c unless its listener was closed meanwhile: what a dead
// process had accepted dies with it.
func (s *Server) admit(c *conn, ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || !c.control && s.listener != ln {
		c.close(true)
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		c.serve(s.ctx)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// closeListener makes new connections be refused.
func (s *Server) closeListener() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
}

// closeConns closes the connections that which picks. Those of the control
// port stay, unless the server itself ends.
func (s *Server) closeConns(which func(*conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if (!c.control || s.ctx.Err() != nil) && which(c) {
			c.close(false)
		}
	}
}

// reopenAfter opens the port again after d, unless it was opened or closed
// by something else meanwhile. before runs first.
func (s *Server) reopenAfter(d time.Duration, before func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.epoch
	s.wg.Go(func() {
		if pause(s.ctx, d) {
			s.reopen(epoch, before)
		}
	})
}

// reopen binds the port of old. A port that is still held by the kernel is
// asked for again for a second.
func (s *Server) reopen(epoch uint64, before func()) {
	for try := 0; ; try++ {
		s.mu.Lock()
		if s.epoch != epoch || s.listener != nil || s.ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		if before != nil && try == 0 {
			before()
		}
		ln, err := net.Listen("tcp", s.addr)
		if err == nil {
			s.epoch++
			s.listener = ln
			s.acceptFrom(ln, false)
		}
		s.mu.Unlock()
		if err == nil || try == 100 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// refuse closes the port for d (one second if 0). Requests under way go on;
// idle connections are closed, because a pooled one would hide the refusal.
func (s *Server) refuse(d time.Duration) {
	if d == 0 {
		d = time.Second
	}
	s.closeListener()
	s.closeConns((*conn).idle)
	s.reopenAfter(d, nil)
}

// die does what SIGKILL does: the port and every connection close at once.
// The engine stays away until a restart, or comes back fresh after d if d > 0.
func (s *Server) die(d time.Duration) {
	s.closeListener()
	s.suspendEvents()
	s.closeConns(func(*conn) bool { return true })
	if d == 0 {
		if s.o.ExitOnDie {
			select {
			case s.died <- struct{}{}:
			default:
			}
		}
		s.core.Restart()
		return
	}
	s.core.Restart()
	s.reopenAfter(d, s.freshProcess)
}

// Restart kills the engine and starts it anew after down: cache, counters,
// event sequence and start time begin again, the port and the address stay.
func (s *Server) Restart(down time.Duration) {
	s.closeListener()
	s.suspendEvents()
	s.closeConns(func(*conn) bool { return true })
	s.core.Restart()
	s.reopenAfter(down, s.freshProcess)
}

// freshProcess forgets what a process holds in memory.
func (s *Server) freshProcess() {
	s.core.Restart()
	s.core.Hang(false)
	s.resumeEvents()
	s.store.reset()
	s.frontend.reset()
	s.meters.reset()
	s.phase.Store(phaseServing)
	s.started.Store(time.Now().UnixNano())
}

// hang stops the scheduler, for d if d > 0: the API process goes on answering
// /health with 200 while nothing is generated.
func (s *Server) hang(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs++
	hang := s.hangs
	s.core.Hang(true)
	if d == 0 {
		return
	}
	s.wg.Go(func() {
		if !pause(s.ctx, d) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hangs == hang {
			s.core.Hang(false)
		}
	})
}

// Shutdown does what SIGTERM does to vLLM. With abort, its default, every
// request ends at once and cleanly with the reason "abort", then the port
// closes. Without, it is --shutdown-timeout: requests run to their end while
// new ones are accepted and answered with nothing. It returns when no request
// is left or ctx ends; Serve goes on until its own context ends.
func (s *Server) Shutdown(ctx context.Context, abort bool) {
	if abort {
		s.phase.Store(phaseStopping)
		s.core.AbortAll(FinishAbort)
	} else {
		s.phase.Store(phaseDraining)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.busy() && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	s.closeListener()
	s.closeConns((*conn).idle)
}

// busy reports whether any request is being answered.
func (s *Server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.control && !c.idle() {
			return true
		}
	}
	return s.journal.inFlight() > 0 // a background response has no connection
}
