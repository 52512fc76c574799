package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"ramjet/config"
)

// Health asks a running Ramjet's admin port whether the process serves. A nil
// error means yes.
func Health(ctx context.Context, out io.Writer, args, env []string, limit time.Duration) error {
	port, err := config.LoadAdmin(config.LoadOptions{Args: args, Env: env})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	url := "http://" + reachable(port.Listen) + "/livez"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", url, err)
	}
	// No proxy of the environment stands between a container and itself.
	rt := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("cannot reach Ramjet: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot call Ramjet healthy: %s answered %s", url, resp.Status)
	}
	fmt.Fprintln(out, "ok")
	return nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}
