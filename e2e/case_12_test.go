package e2e

import (
	"encoding/json"
	"reflect"
	"testing"
)

// listed returns the objects of GET /v1/models by id.
func listed(t *testing.T, r *ramjet, headers ...string) map[string]map[string]any {
	t.Helper()
	resp := r.do(t, request("GET", "/v1/models?limit=1000", r.id("list"), "", headers...))
	var list struct {
		Object string           `json:"object"`
		Data   []map[string]any `json:"data"`
	}
	if err := json.Unmarshal(resp.body, &list); resp.status != 200 || err != nil || list.Object != "list" {
		t.Fatalf("/v1/models: %d %v %.300q", resp.status, err, resp.body)
	}
	byID := map[string]map[string]any{}
	for _, o := range list.Data {
		byID[o["id"].(string)] = o
	}
	return byID
}

// TestCaseC12SlashInModel: ids of the form org/name are retrieved plain and
// escaped, aliases too; an unknown one is an unknown model, not an unknown path.
func TestCaseC12SlashInModel(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"X-None: 1", "Authorization: Bearer k1"} {
		a, b := newEngine(t, "a"), newEngine(t, "b")
		a.serveModels("org/model-7b", "lora-x")
		b.serveModels("org/model-7b")
		flags := []string{"--model.aliases=gpt-4o=org/model-7b"}
		if header != "X-None: 1" {
			flags = append(flags, "--auth.keys-file", keysFile(t, "k1\n"))
		}
		r := startWith(t, setup{engines: []*engine{a, b}, flags: flags, notReady: true})
		r.awaitReady()
		list := listed(t, r, header)
		for path, id := range map[string]string{
			"/v1/models/org/model-7b": "org/model-7b", "/v1/models/org%2Fmodel-7b": "org/model-7b", "/v1/models/org%2fmodel-7b?x=1": "org/model-7b",
			"/v1/models/gpt-4o": "gpt-4o", "/v1/models/lora-x": "lora-x",
		} {
			resp := r.do(t, request("GET", path, r.id("c12"), "", header))
			var got map[string]any
			if err := json.Unmarshal(resp.body, &got); resp.status != 200 || err != nil || list[id] == nil || !reflect.DeepEqual(got, list[id]) {
				t.Errorf("%s: %d %.300q, want %v", path, resp.status, resp.body, list[id])
			}
		}
		if target, alias := list["org/model-7b"], list["gpt-4o"]; alias != nil {
			for k, v := range target {
				if k != "id" && !reflect.DeepEqual(alias[k], v) {
					t.Errorf("the alias' %s is %v, the target's %v", k, alias[k], v)
				}
			}
		}
		for _, path := range []string{"/v1/models/org%2Fnone", "/v1/models/org/none", "/v1/models/org", "/v1/models/none"} {
			if resp := r.do(t, request("GET", path, r.id("c12"), "", header)); resp.status != 404 || resp.code() != "model_not_found" {
				t.Errorf("%s: %d %.200q, want 404 model_not_found", path, resp.status, resp.body)
			}
		}
		aliasReaches(t, r, header, a, b)
		r.oneLineEach()
	}
}

// aliasReaches checks that the engine gets the target's name in place of the
// alias and every other byte as it was.
func aliasReaches(t *testing.T, r *ramjet, header string, engines ...*engine) {
	t.Helper()
	id := r.id("c12")
	resp := r.do(t, request("POST", chatPath, id, `{"messages":[], "model" : "gpt-4o" ,"x":1.50}`, header))
	if resp.status != 200 {
		t.Errorf("an alias is answered %d %.200q", resp.status, resp.body)
		return
	}
	if got := string(waitFor(t, id, engines...).body); got != `{"messages":[], "model" : "org/model-7b" ,"x":1.50}` {
		t.Errorf("the engine's body is %q", got)
	}
}
