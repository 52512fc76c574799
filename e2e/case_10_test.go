package e2e

import (
	"strings"
	"testing"
)

const preflightFields = "Origin: http://app.test\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"

func preflight(path, id string) string {
	return "OPTIONS " + path + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + id + "\r\n" + preflightFields + "\r\n"
}

// TestCaseC10Preflight: a browser's preflight carries no key by design. It goes
// to an engine without one and without a lease; the request itself still needs
// the key, guarded paths stay unreachable, and errors can be read by the page.
func TestCaseC10Preflight(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	allow := "HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\naccess-control-allow-methods: POST\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nOK"
	for _, path := range []string{chatPath, messagesPath, responsesPath, "/v1/models", "/sleep"} {
		a.get(path, allow)
	}
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--auth.keys-file", keysFile(t, "k1\n")}, notReady: true})
	r.awaitReady()
	a.get("/v1/models", allow) // preflights of a list too
	for _, path := range []string{chatPath, messagesPath, responsesPath} {
		id := r.id("c10")
		resp := r.do(t, preflight(path, id))
		if resp.status != 200 || resp.fields.get("Access-Control-Allow-Origin") != "*" || string(resp.body) != "OK" {
			t.Errorf("preflight of %s: %d %q %.100q", path, resp.status, resp.head, resp.body)
		}
		x := waitFor(t, id, a)
		if x.method != "OPTIONS" || x.target != path || len(x.body) != 0 {
			t.Errorf("the engine got %s %s with %d bytes", x.method, x.target, len(x.body))
		}
		if resp := r.post(t, path, chatBody(false), "Origin: http://app.test"); resp.status != 401 || resp.fields.get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s without a key: %d, allow origin %q", path, resp.status, resp.fields.get("Access-Control-Allow-Origin"))
		}
		if resp := r.post(t, path, chatBody(false), "Authorization: Bearer k1", "Origin: http://app.test"); resp.status != 200 {
			t.Errorf("%s with a key: %d", path, resp.status)
		}
	}
	for _, path := range []string{"/sleep", "/reset_prefix_cache", "/v1/load_lora_adapter"} {
		id := r.id("c10")
		if resp := r.do(t, preflight(path, id)); resp.status != 404 || len(a.byID(id)) != 0 {
			t.Errorf("preflight of %s: %d", path, resp.status)
		}
	}
	if n := r.metrics().leases(); n != 0 {
		t.Errorf("%v leases", n)
	}
	r.oneLineEach()
}

// TestCaseC10Kind: an OPTIONS that is no preflight needs the key like any other
// method, and errors without an Origin carry no allow-origin.
func TestCaseC10Kind(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--auth.keys-file", keysFile(t, "k1\n")}, notReady: true})
	r.awaitReady()
	for name, raw := range map[string]string{
		"no origin":  "OPTIONS " + chatPath + " HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"no method":  "OPTIONS " + chatPath + " HTTP/1.1\r\nHost: x\r\nOrigin: http://app.test\r\n\r\n",
		"other verb": strings.Replace(preflight(chatPath, r.id("c10")), "OPTIONS", "POST", 1),
	} {
		if resp := r.do(t, raw); resp.status != 401 && resp.status != 405 {
			t.Errorf("%s: %d %.200q", name, resp.status, resp.body)
		}
	}
	if resp := r.post(t, chatPath, chatBody(false)); resp.fields.get("Access-Control-Allow-Origin") != "" {
		t.Error("allow-origin without an Origin")
	}
	if xs, _ := a.seen(); len(xs) != 0 {
		t.Errorf("%d requests reached the engine", len(xs))
	}
}
