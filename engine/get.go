package engine

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// newAsker returns what Get asks with: connections of its own, so that a check
// never waits for or spoils a request's, kept between checks for less than the
// engine keeps them.
func (e *Engine) newAsker() *http.Transport {
	return &http.Transport{
		Proxy:               nil,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return e.pool.dialPlain(ctx) },
		TLSClientConfig:     e.pool.tls.Clone(),
		MaxIdleConns:        1,
		TLSHandshakeTimeout: max(e.Dial, 0),
		IdleConnTimeout:     IdleLimit,
	}
}

// Get asks the engine for path on a connection apart from its requests' and
// returns at most limit bytes of the body. It never uses a proxy of the environment, never
// follows a redirect, and tries both address families. The error wraps the
// system's, so that errors.Is finds ECONNREFUSED. Safe for concurrent use.
func (e *Engine) Get(ctx context.Context, path string, limit int64) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL.Scheme+"://"+e.Address()+path, http.NoBody)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot ask %s: %w", e.Name, err)
	}
	if e.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.APIKey)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := e.asker.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot ask %s for %s: %w", e.Name, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return resp.StatusCode, nil, fmt.Errorf("cannot read %s of %s: %w", path, e.Name, err)
	}
	return resp.StatusCode, body, nil
}

func (p *Pool) dialPlain(ctx context.Context) (net.Conn, error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	nc, err := p.dialer.DialContext(ctx, "tcp", p.engine.Address())
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	return nc, nil
}
