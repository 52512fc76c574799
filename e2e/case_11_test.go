package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCaseC11TwoCredentials: any valid credential of a request admits, empty and
// foreign ones beside it do no harm, and the engine gets its own key once.
func TestCaseC11TwoCredentials(t *testing.T) {
	t.Parallel()
	const key, foreign, engineKey = "canary-client-key-1", "canary-vendor-token", "canary-engine-key"
	a := newEngine(t, "a")
	file := filepath.Join(t.TempDir(), "engine-key")
	if err := os.WriteFile(file, []byte(engineKey+"\n"), 0o600); err != nil {
		t.Fatalf("cannot write a key: %v", err)
	}
	r := startWith(t, setup{urls: []string{"a=" + a.url() + ",api_key_file=" + file},
		flags: []string{"--auth.keys-file", keysFile(t, "other-key\r\n"+key+"\r\n")}, notReady: true})
	r.awaitReady()
	cases := []struct {
		name    string
		headers []string
		status  int
	}{
		{"a: empty x-api-key beside a bearer", []string{"X-Api-Key: ", "Authorization: Bearer " + key}, 200},
		{"b: x-api-key alone", []string{"X-Api-Key: " + key}, 200},
		{"c: foreign bearer, own x-api-key", []string{"Authorization: Bearer " + foreign, "X-Api-Key: " + key}, 200},
		{"c, reversed", []string{"X-Api-Key: " + foreign, "Authorization: Bearer " + key}, 200},
		{"d: lower case", []string{"authorization: bearer " + key}, 200},
		{"e: both wrong", []string{"Authorization: Bearer " + foreign, "X-Api-Key: " + foreign}, 401},
		{"both empty", []string{"Authorization: ", "X-Api-Key: "}, 401},
		{"the carriage return of the file", []string{"X-Api-Key: " + key + "x"}, 401},
	}
	for _, path := range []string{chatPath, messagesPath, responsesPath, "/v1/embeddings"} {
		for _, tc := range cases {
			id := r.id("c11")
			resp := r.do(t, request("POST", path, id, chatBody(false), tc.headers...))
			if resp.status != tc.status {
				t.Errorf("%s on %s: %d %.200q, want %d", tc.name, path, resp.status, resp.body, tc.status)
				continue
			}
			if tc.status == 401 {
				dialectShape(t, path, resp)
				continue
			}
			x := waitFor(t, id, a)
			if head := string(x.head); strings.Contains(head, key) || strings.Contains(head, foreign) || strings.Count(head, engineKey) != 1 {
				t.Errorf("%s on %s: the engine's head is %q", tc.name, path, head)
			}
		}
	}
	for _, path := range []string{"/metrics", "/readyz", "/api/v1/topology", "/api/v1/config"} {
		if _, body := r.adminGet(path); strings.Contains(body, "canary") {
			t.Errorf("a key is in %s", path)
		}
	}
	if strings.Contains(r.out.String(), "canary") {
		t.Error("a key is in the log")
	}
	r.oneLineEach()
}
