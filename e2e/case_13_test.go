package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC13ContextOverflow: a deterministic error of the client passes as it
// is: same status, type and bytes, one attempt, nobody blamed.
func TestCaseC13ContextOverflow(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	body := `{"object":"error","type":"BadRequestError","message":"too long: 262462 > 262144","code":400}`
	for _, status := range []int{400, 413, 422} {
		play := func(x *rig.Exchange) {
			if len(x.Body) > 1000 {
				x.Write(rig.FullResponse(status, "application/json", body))
				return
			}
			x.Plain()
		}
		a.On(play)
		b.On(play)
		for i := range 34 {
			id := r.ID("c13")
			resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.LongChatBody(i%2 == 0, 2000)))
			if resp.Status != status || string(resp.Body) != body || resp.Fields.Get("Content-Type") != "application/json" {
				t.Fatalf("answered %d %q %.200q", resp.Status, resp.Fields.Get("Content-Type"), resp.Body)
			}
			if n := len(a.ByID(id)) + len(b.ByID(id)); n != 1 || resp.Fields.Get("X-Ramjet-Attempts") != "1" {
				t.Fatalf("%d engines asked, X-Ramjet-Attempts %q", n, resp.Fields.Get("X-Ramjet-Attempts"))
			}
		}
	}
	rig.NeverMoved(t, r, a, b)
	r.Served(r.ID("short"), true)
}

// TestCaseC13Kind: the other answers that must not be taken for failures of the
// engine: 401, 404, 409, 429, on every dialect.
func TestCaseC13Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath, "/v1/embeddings", "/v1/completions"} {
		for _, status := range []int{401, 404, 409, 429} {
			body := fmt.Sprintf(`{"error":{"message":"no %d","type":"x","param":null,"code":%d}}`, status, status)
			play := func(x *rig.Exchange) { x.Write(rig.FullResponse(status, "application/json", body)) }
			a.On(play)
			b.On(play)
			for range 3 {
				resp := r.Post(t, path, rig.ChatBody(strings.HasSuffix(path, "completions")))
				if resp.Status != status || string(resp.Body) != body || resp.Fields.Get("X-Ramjet-Attempts") != "1" {
					t.Errorf("%s %d: answered %d in %q attempts %.200q", path, status, resp.Status, resp.Fields.Get("X-Ramjet-Attempts"), resp.Body)
				}
			}
		}
	}
	rig.NeverMoved(t, r, a, b)
}
