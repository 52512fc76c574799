package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"ramjet/config"
)

// admin is a running Ramjet's admin port.
type admin struct {
	base  string
	token string
	rt    *http.Transport
}

// findAdmin finds the admin port by --admin, RAMJET_ADMIN_LISTEN, then the
// configuration (CONTRACT section 10.8).
func findAdmin(args, env []string) (*admin, error) {
	port, err := config.LoadAdmin(config.LoadOptions{Args: args, Env: env})
	if err != nil {
		return nil, err
	}
	a := &admin{base: "http://" + reachable(port.Listen), rt: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	if port.TokenFile != "" {
		text, err := os.ReadFile(port.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read admin.token_file: %w", err)
		}
		a.token = strings.TrimSpace(string(text))
	}
	return a, nil
}

// maxAdminAnswer bounds what is read of one answer.
const maxAdminAnswer = 64 << 20

// ask sends one request. An answer other than 200 is an error with the text
// that Ramjet gave.
func (a *admin) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", a.base, err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.rt.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach Ramjet's admin port (--admin names it): %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of %s: %w", a.base, err)
	}
	if resp.StatusCode == http.StatusOK {
		return answer, nil
	}
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &e) == nil && e.Error.Message != "" {
		return nil, fmt.Errorf("cannot do that: %s", e.Error.Message)
	}
	return nil, fmt.Errorf("cannot do that: %s answered %s", a.base, resp.Status)
}
