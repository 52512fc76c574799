package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestCaseC13ContextOverflow: a deterministic error of the client passes as it
// is: same status, type and bytes, one attempt, nobody blamed.
func TestCaseC13ContextOverflow(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	body := `{"object":"error","type":"BadRequestError","message":"too long: 262462 > 262144","code":400}`
	for _, status := range []int{400, 413, 422} {
		play := func(x *exchange) {
			if len(x.body) > 1000 {
				x.write(fullResponse(status, "application/json", body))
				return
			}
			x.plain()
		}
		a.on(play)
		b.on(play)
		for i := range 34 {
			id := r.id("c13")
			resp := r.do(t, request("POST", chatPath, id, longChatBody(i%2 == 0, 2000)))
			if resp.status != status || string(resp.body) != body || resp.fields.get("Content-Type") != "application/json" {
				t.Fatalf("answered %d %q %.200q", resp.status, resp.fields.get("Content-Type"), resp.body)
			}
			if n := len(a.byID(id)) + len(b.byID(id)); n != 1 || resp.fields.get("X-Ramjet-Attempts") != "1" {
				t.Fatalf("%d engines asked, X-Ramjet-Attempts %q", n, resp.fields.get("X-Ramjet-Attempts"))
			}
		}
	}
	neverMoved(t, r, a, b)
	r.served(r.id("short"), true)
}

// TestCaseC13Kind: the other answers that must not be taken for failures of the
// engine: 401, 404, 409, 429, on every dialect.
func TestCaseC13Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, path := range []string{chatPath, messagesPath, responsesPath, "/v1/embeddings", "/v1/completions"} {
		for _, status := range []int{401, 404, 409, 429} {
			body := fmt.Sprintf(`{"error":{"message":"no %d","type":"x","param":null,"code":%d}}`, status, status)
			play := func(x *exchange) { x.write(fullResponse(status, "application/json", body)) }
			a.on(play)
			b.on(play)
			for range 3 {
				resp := r.post(t, path, chatBody(strings.HasSuffix(path, "completions")))
				if resp.status != status || string(resp.body) != body || resp.fields.get("X-Ramjet-Attempts") != "1" {
					t.Errorf("%s %d: answered %d in %q attempts %.200q", path, status, resp.status, resp.fields.get("X-Ramjet-Attempts"), resp.body)
				}
			}
		}
	}
	neverMoved(t, r, a, b)
}
