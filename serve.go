package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"ramjet/config"
	"ramjet/proxy"
	"ramjet/web"
)

// serve runs the proxy until it is told to stop: the first signal drains, the
// second ends at once.
func serve(load func() (*config.Config, error), portFile string) int {
	// Before all that takes time: a signal while Ramjet starts is obeyed once it runs.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	// A log whose reader has died loses its lines; Go would end the process, and every stream with it.
	signal.Ignore(syscall.SIGPIPE)
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	memory := limitMemory()
	a, err := assemble(load, os.Stderr)
	if err != nil {
		return report(err)
	}
	sayMemory(a.log, a.cfg, memory)
	if err := a.listen(); err != nil {
		a.close()
		return report(err)
	}
	if err := a.start(portFile); err != nil {
		a.close()
		return report(err)
	}
	a.followFiles(hangUps)
	select {
	case <-signals:
		a.drain(signals)
	case err = <-a.failed:
	}
	a.close()
	return report(err)
}

// assemble loads the configuration and builds what serves by it. Fingerprints
// are taken before the files are used, so that what changes meanwhile is read
// once more.
func assemble(load func() (*config.Config, error), logTo io.Writer) (*app, error) {
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	seen := printsOf(readFiles(cfg))
	a, err := build(cfg, logTo, true)
	if err != nil {
		return nil, err
	}
	a.load = load
	a.saw(seen)
	a.taken = maps.Clone(seen)
	return a, nil
}

// listen binds every port, so that a port in use is found before anything
// runs.
func (a *app) listen() error {
	sockets, err := inheritSockets()
	if err != nil {
		return err
	}
	defer func() { sockets.close() }()
	for _, address := range a.cfg.Listen {
		ln := sockets.take(address)
		if ln != nil {
			a.inherited = append(a.inherited, ln)
		} else if ln, err = listenOn(address); err != nil {
			return fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		a.public = append(a.public, ln)
	}
	ln := sockets.take(a.cfg.Admin.Listen)
	if ln == nil {
		ln, err = net.Listen("tcp", a.cfg.Admin.Listen)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", a.cfg.Admin.Listen, err)
	}
	a.admin = ln
	sockets.tell(a.log)
	return nil
}

func listenOn(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return listenTCP(address)
	}
	// A socket file that a former process left behind would keep this one
	// from starting. Only a refusal tells that nobody listens there: one whose
	// backlog is full, or that others may not use, is in use.
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return nil, syscall.EADDRINUSE
	}
	if info, statErr := os.Lstat(path); statErr == nil && info.Mode()&os.ModeSocket != 0 && errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	return net.Listen("unix", path)
}

// start begins to check engines and to serve.
func (a *app) start(portFile string) error {
	ctx, cancel := context.WithCancel(context.Background())
	a.stop, a.life = cancel, ctx
	a.wg.Go(func() { a.monitor.Run(ctx) })
	a.wg.Go(func() { a.prompts.run(ctx) })
	a.wg.Go(func() { a.beside.run(ctx) })
	a.wg.Go(func() { a.feeds.run(ctx) })
	a.wg.Go(func() { a.gpus.Run(ctx) })
	a.wg.Go(func() { a.web.Run(ctx) })
	a.adminServer = a.web.HTTPServer()
	a.wg.Go(func() {
		if err := a.adminServer.Serve(a.admin); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.fail(fmt.Errorf("cannot serve the admin port: %w", err))
		}
	})
	for _, ln := range a.public {
		a.wg.Go(func() {
			if err := a.proxy.Serve(ln); err != nil {
				a.fail(err)
			}
		})
	}
	a.announce()
	if portFile == "" {
		return nil
	}
	return writePorts(portFile, a.public[0].Addr().String(), a.admin.Addr().String())
}

// writePorts tells tests and scripts where we listen. The file appears whole.
func writePorts(name, public, admin string) error {
	text := "public=" + public + "\nadmin=" + admin + "\n"
	if err := os.WriteFile(name+".tmp", []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write the port file: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("cannot write the port file: %w", err)
	}
	return nil
}

// announce says what runs and what is off.
func (a *app) announce() {
	for _, w := range a.cfg.Warnings {
		a.log.Warn(w.String())
	}
	for _, ln := range a.public {
		a.log.Info("listening", "version", version, "public", ln.Addr().String(), "admin", "http://"+a.admin.Addr().String(),
			"config", a.cfg.File(), "digest", a.cfg.Digest())
	}
	for _, e := range a.roster.Load().engines() {
		a.log.Info("engine", "engine", e.Name, "url", e.URL.String(), "profile", e.Settings().Profile)
	}
}

// drain lets requests finish. A second signal ends the wait.
func (a *app) drain(signals <-chan os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	limit := a.current.Load().Timeouts.Drain
	if limit > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), limit)
	}
	defer cancel()
	a.log.Info("draining; a second signal ends at once", "requests", a.proxy.InFlight(), "limit", limit.String())
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	for _, ln := range a.inherited {
		a.proxy.Retire(ln) // the next process takes who connects from here on
	}
	a.proxy.Drain(ctx)
}

func (a *app) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// close stops everything in the reverse order of its start.
func (a *app) close() {
	a.proxy.Close()
	for _, ln := range a.public {
		_ = ln.Close()
	}
	if a.adminServer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if a.adminServer.Shutdown(ctx) != nil {
			_ = a.adminServer.Close()
		}
		cancel()
	} else if a.admin != nil {
		_ = a.admin.Close()
	}
	a.reloading.Lock() // none begins any more, whoever still asks for one
	a.life = nil
	a.reloading.Unlock()
	if a.stop != nil {
		a.stop()
	}
	a.wg.Wait()
	if a.journal != nil {
		a.journal.Close()
	}
	for _, m := range a.everyMember() {
		m.engine.Close()
	}
	a.watch.Close()
	a.log.Info("stopped")
	_ = a.log.Close() // and with it a.out, behind what the log held back
}

// listeners of an app and what serves them.
type servers struct {
	public      []net.Listener
	inherited   inherited // those of public that others may accept from when we do not any more
	admin       net.Listener
	proxy       *proxy.Server
	web         *web.Server
	adminServer *http.Server
	stop        context.CancelFunc
	failed      chan error
	wg          sync.WaitGroup
}

// tlsConfig returns nil without a certificate.
func tlsConfig(cfg *config.Config) (*tls.Config, error) {
	if cfg.TLS.Cert == "" {
		return nil, nil
	}
	return proxy.LoadTLS(cfg.TLS.Cert, cfg.TLS.Key)
}
