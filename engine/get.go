package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// newAsker returns what Get and Post ask with: connections of its own, so that a check
// never waits for or spoils a request's, kept between checks for less than the
// engine keeps them.
func (e *Engine) newAsker() *http.Transport {
	return &http.Transport{
		Proxy:           nil,
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return e.pool.dialPlain(ctx) },
		TLSClientConfig: e.pool.tls.Clone(),
		MaxIdleConns:    1,
		IdleConnTimeout: IdleLimit,
	}
}

// Get asks the engine for path on a connection apart from its requests' and
// returns at most limit bytes of the body. It never uses a proxy of the environment, never
// follows a redirect, and tries both address families. The error wraps the
// system's, so that errors.Is finds ECONNREFUSED. Safe for concurrent use.
func (e *Engine) Get(ctx context.Context, path string, limit int64) (status int, body []byte, err error) {
	return e.ask(ctx, http.MethodGet, path, nil, limit)
}

// Post is Get with a JSON body, which is only read. It is for questions that change nothing, since it may be sent twice.
func (e *Engine) Post(ctx context.Context, path string, body []byte, limit int64) (status int, answer []byte, err error) {
	return e.ask(ctx, http.MethodPost, path, body, limit)
}

func (e *Engine) ask(ctx context.Context, method, path string, body []byte, limit int64) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL.Scheme+"://"+e.Address()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("cannot ask %s: %w", e.Name, err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		// What is posted here changes nothing, so that a kept connection that the engine closed meanwhile may be tried
		// again afresh; the transport wants to be told so by this key, which is not sent (net/http, Transport).
		req.Header["Idempotency-Key"] = nil
	}
	if key := e.Settings().APIKey; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := e.asker.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot ask %s for %s: %w", e.Name, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return resp.StatusCode, nil, fmt.Errorf("cannot read %s of %s: %w", path, e.Name, err)
	}
	return resp.StatusCode, answer, nil
}

func (p *Pool) dialPlain(ctx context.Context) (net.Conn, error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	nc, err := p.dialer.DialContext(ctx, "tcp", p.engine.Address())
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	return Quiet(nc)
}
