package web

import "net/http"

// indexPage is the same for everyone: it shows nothing of a request and needs
// no escaping.
const indexPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Ramjet</title>
<h1>Ramjet, admin port</h1>
<ul>
<li><a href="/health">/health</a>: engines and their states
<li><a href="/readyz">/readyz</a>: can a request be served, and why not
<li><a href="/livez">/livez</a>: the process serves
<li><a href="/metrics">/metrics</a>: Prometheus metrics
<li><a href="/api/v1/topology">/api/v1/topology</a>: everything in one object
<li><a href="/api/v1/config">/api/v1/config</a>: effective configuration, redacted
<li><a href="/debug/pprof/">/debug/pprof/</a>: profiles
</ul>
<p>By POST: /api/v1/engines/NAME/drain, /api/v1/engines/NAME/ready, /api/v1/engines/NAME/eject, /-/reload
</html>
`

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(indexPage))
}
