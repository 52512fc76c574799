package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
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
	a := rig.NewEngine(t, "a")
	allow := "HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\naccess-control-allow-methods: POST\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nOK"
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath, "/v1/models", "/sleep"} {
		a.Get(path, allow)
	}
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--auth.keys-file", rig.KeysFile(t, "k1\n")}, NotReady: true})
	r.AwaitReady()
	a.Get("/v1/models", allow) // preflights of a list too
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath} {
		id := r.ID("c10")
		resp := r.Do(t, preflight(path, id))
		if resp.Status != 200 || resp.Fields.Get("Access-Control-Allow-Origin") != "*" || string(resp.Body) != "OK" {
			t.Errorf("preflight of %s: %d %q %.100q", path, resp.Status, resp.Head, resp.Body)
		}
		x := rig.WaitFor(t, id, a)
		if x.Method != "OPTIONS" || x.Target != path || len(x.Body) != 0 {
			t.Errorf("the engine got %s %s with %d bytes", x.Method, x.Target, len(x.Body))
		}
		if resp := r.Post(t, path, rig.ChatBody(false), "Origin: http://app.test"); resp.Status != 401 || resp.Fields.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s without a key: %d, allow origin %q", path, resp.Status, resp.Fields.Get("Access-Control-Allow-Origin"))
		}
		if resp := r.Post(t, path, rig.ChatBody(false), "Authorization: Bearer k1", "Origin: http://app.test"); resp.Status != 200 {
			t.Errorf("%s with a key: %d", path, resp.Status)
		}
	}
	for _, path := range []string{"/sleep", "/reset_prefix_cache", "/v1/load_lora_adapter"} {
		id := r.ID("c10")
		if resp := r.Do(t, preflight(path, id)); resp.Status != 404 || len(a.ByID(id)) != 0 {
			t.Errorf("preflight of %s: %d", path, resp.Status)
		}
	}
	rig.Eventually(t, rig.Patience, "nothing held", func() string {
		if n := r.Metrics().Leases(); n != 0 {
			return fmt.Sprintf("%v leases", n)
		}
		return ""
	})
	r.OneLineEach()
}

// TestCaseC10Kind: an OPTIONS that is no preflight needs the key like any other
// method, and errors without an Origin carry no allow-origin.
func TestCaseC10Kind(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--auth.keys-file", rig.KeysFile(t, "k1\n")}, NotReady: true})
	r.AwaitReady()
	for name, raw := range map[string]string{
		"no origin":  "OPTIONS " + rig.ChatPath + " HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"no method":  "OPTIONS " + rig.ChatPath + " HTTP/1.1\r\nHost: x\r\nOrigin: http://app.test\r\n\r\n",
		"other verb": strings.Replace(preflight(rig.ChatPath, r.ID("c10")), "OPTIONS", "POST", 1),
	} {
		if resp := r.Do(t, raw); resp.Status != 401 && resp.Status != 405 {
			t.Errorf("%s: %d %.200q", name, resp.Status, resp.Body)
		}
	}
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Fields.Get("Access-Control-Allow-Origin") != "" {
		t.Error("allow-origin without an Origin")
	}
	if xs, _ := a.Seen(); len(xs) != 0 {
		t.Errorf("%d requests reached the engine", len(xs))
	}
}
