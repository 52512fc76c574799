package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC11TwoCredentials: any valid credential of a request admits, empty and
// foreign ones beside it do no harm, and the engine gets its own key once.
func TestCaseC11TwoCredentials(t *testing.T) {
	t.Parallel()
	const key, foreign, engineKey = "canary-client-key-1", "canary-vendor-token", "canary-engine-key"
	a := rig.NewEngine(t, "a")
	file := filepath.Join(t.TempDir(), "engine-key")
	if err := os.WriteFile(file, []byte(engineKey+"\n"), 0o600); err != nil {
		t.Fatalf("cannot write a key: %v", err)
	}
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + a.URL() + ",api_key_file=" + file},
		Flags: []string{"--auth.keys-file", rig.KeysFile(t, "other-key\r\n"+key+"\r\n")}, NotReady: true})
	r.AwaitReady()
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
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath, "/v1/embeddings"} {
		for _, tc := range cases {
			id := r.ID("c11")
			resp := r.Do(t, rig.Request("POST", path, id, rig.ChatBody(false), tc.headers...))
			if resp.Status != tc.status {
				t.Errorf("%s on %s: %d %.200q, want %d", tc.name, path, resp.Status, resp.Body, tc.status)
				continue
			}
			if tc.status == 401 {
				rig.DialectShape(t, path, resp)
				continue
			}
			x := rig.WaitFor(t, id, a)
			if head := string(x.Head); strings.Contains(head, key) || strings.Contains(head, foreign) || strings.Count(head, engineKey) != 1 {
				t.Errorf("%s on %s: the engine's head is %q", tc.name, path, head)
			}
		}
	}
	for _, path := range []string{"/metrics", "/readyz", "/api/v1/topology", "/api/v1/config"} {
		if _, body := r.AdminGet(path); strings.Contains(body, "canary") {
			t.Errorf("a key is in %s", path)
		}
	}
	r.OneLineEach() // so that the log has all lines
	if strings.Contains(r.Out.String(), "canary") {
		t.Error("a key is in the log")
	}
}
