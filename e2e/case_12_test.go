package e2e

import (
	"encoding/json"
	"reflect"
	"testing"

	"ramjet/e2e/rig"
)

// listed returns the objects of GET /v1/models by id.
func listed(t *testing.T, r *rig.Ramjet, headers ...string) map[string]map[string]any {
	t.Helper()
	resp := r.Do(t, rig.Request("GET", "/v1/models?limit=1000", r.ID("list"), "", headers...))
	var list struct {
		Object string           `json:"object"`
		Data   []map[string]any `json:"data"`
	}
	if err := json.Unmarshal(resp.Body, &list); resp.Status != 200 || err != nil || list.Object != "list" {
		t.Fatalf("/v1/models: %d %v %.300q", resp.Status, err, resp.Body)
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
		a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
		a.ServeModels("org/model-7b", "lora-x")
		b.ServeModels("org/model-7b")
		flags := []string{"--model.aliases=gpt-4o=org/model-7b"}
		if header != "X-None: 1" {
			flags = append(flags, "--auth.keys-file", rig.KeysFile(t, "k1\n"))
		}
		r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: flags, NotReady: true})
		r.AwaitReady()
		list := listed(t, r, header)
		for path, id := range map[string]string{
			"/v1/models/org/model-7b": "org/model-7b", "/v1/models/org%2Fmodel-7b": "org/model-7b", "/v1/models/org%2fmodel-7b?x=1": "org/model-7b",
			"/v1/models/gpt-4o": "gpt-4o", "/v1/models/lora-x": "lora-x",
		} {
			resp := r.Do(t, rig.Request("GET", path, r.ID("c12"), "", header))
			var got map[string]any
			if err := json.Unmarshal(resp.Body, &got); resp.Status != 200 || err != nil || list[id] == nil || !reflect.DeepEqual(got, list[id]) {
				t.Errorf("%s: %d %.300q, want %v", path, resp.Status, resp.Body, list[id])
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
			if resp := r.Do(t, rig.Request("GET", path, r.ID("c12"), "", header)); resp.Status != 404 || resp.Code() != "model_not_found" {
				t.Errorf("%s: %d %.200q, want 404 model_not_found", path, resp.Status, resp.Body)
			}
		}
		aliasReaches(t, r, header, a, b)
		r.OneLineEach()
	}
}

// aliasReaches checks that the engine gets the target's name in place of the
// alias and every other byte as it was.
func aliasReaches(t *testing.T, r *rig.Ramjet, header string, engines ...*rig.Engine) {
	t.Helper()
	id := r.ID("c12")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, `{"messages":[], "model" : "gpt-4o" ,"x":1.50}`, header))
	if resp.Status != 200 {
		t.Errorf("an alias is answered %d %.200q", resp.Status, resp.Body)
		return
	}
	if got := string(rig.WaitFor(t, id, engines...).Body); got != `{"messages":[], "model" : "org/model-7b" ,"x":1.50}` {
		t.Errorf("the engine's body is %q", got)
	}
}
