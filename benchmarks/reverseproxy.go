package benchmarks

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"
)

// ModeReverseProxy runs the standard library's proxy: arguments are the address to listen on and the engines.
const ModeReverseProxy = "reverseproxy"

// ReverseProxy serves httputil.ReverseProxy on address, in turns in front of engines, until the process ends. It is set
// up as a careful Go programmer would: every piece is flushed at once, connections to the engines are kept for less than
// uvicorn's 5 s and as many as are needed.
func ReverseProxy(address string, engines []string) error {
	if len(engines) == 0 {
		return errors.New("cannot run the reverse proxy: no engine")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot run the reverse proxy: %w", err)
	}
	if _, err := RaiseDescriptors(); err != nil {
		return err
	}
	server := http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: newReverseProxy(engines)}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot run the reverse proxy: %w", err)
	}
	return nil
}

// newReverseProxy returns the standard library's proxy as a handler; safe for concurrent use.
func newReverseProxy(engines []string) http.Handler {
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme = "http"
			r.Out.URL.Host = engines[turn.Add(1)%uint64(len(engines))]
		},
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 4 * time.Second, DisableCompression: true},
		FlushInterval: -1,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without it the server closes a request's body at the first byte of the answer; vLLM's head comes so soon that
		// the transport has not seen the body's end by then, takes that for a failure and cuts the stream.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}

// reverseProxyStarter runs this program as the standard library's proxy, with as many Ps as the machine has cores.
func reverseProxyStarter(self, name string) starter {
	return func(dir string, engines []string) (*target, error) {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		p, err := startProcess(dir, name, append([]string{self, ModeReverseProxy, address}, engines...)...)
		if err != nil {
			return nil, err
		}
		t := &target{name: name, addresses: []string{address}, process: p}
		return t.settle(func() bool { return answers200("http://" + address + "/health") })
	}
}
