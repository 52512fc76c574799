package web

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ramjet/engine"
)

// TestReload answers what was taken over, or where the file is wrong.
func TestReload(t *testing.T) {
	t.Parallel()
	var result Reloaded
	r := newRig(t, func(o *Options) { o.Reload = func() Reloaded { return result } })
	result = Reloaded{Digest: "d", Changed: []string{"route.tie"}, NeedsRestart: []string{"listen"}}
	w := r.ask("POST", "/-/reload")
	if want := `{"reloaded":true,"digest":"d","changed":["route.tie"],"needs_restart":["listen"],"warnings":[]}` + "\n"; w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	result = Reloaded{Digest: "d", Err: errors.New("ramjet.yaml:3:5: rout: unknown key; did you mean route?"),
		Problems: []ReloadProblem{{File: "ramjet.yaml", Line: 3, Column: 5, Key: "rout", Message: "unknown key; did you mean route?"}}}
	w = r.ask("POST", "/-/reload")
	wantError(t, w, 422, "invalid_request")
	for _, want := range []string{"the old configuration is still in use: ramjet.yaml:3:5", `"reloaded":false`,
		`"problems":[{"file":"ramjet.yaml","line":3,"column":5,"key":"rout","message":"unknown key; did you mean route?"}]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s lacks %s", w.Body, want)
		}
	}
}

// TestReloadIsAMutation: no GET, and 501 where nothing can be loaded.
func TestReloadIsAMutation(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Reload = func() Reloaded { t.Error("a GET reloads"); return Reloaded{} } })
	wantError(t, r.ask("GET", "/-/reload"), 405, "method_not_allowed")
	wantError(t, newRig(t, nil).ask("POST", "/-/reload"), 501, "not_implemented")
}

// TestEnginesComeAndGo in what the page shows.
func TestEnginesComeAndGo(t *testing.T) {
	t.Parallel()
	list := []*engine.Engine{}
	r := newRig(t, func(o *Options) { o.Present = func() []*engine.Engine { return list } })
	if got := r.ask("GET", "/api/v1/topology").Body.String(); !strings.Contains(got, `"engines":[]`) {
		t.Errorf("%s", got)
	}
	list = slices.Clone(r.o.Engines)[:1]
	if got := r.ask("GET", "/api/v1/topology").Body.String(); strings.Count(got, `"state_reason"`) != 1 {
		t.Errorf("%s", got)
	}
}

// TestTokenIsReplaced: the old one is refused from then on.
func TestTokenIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Token = "old" })
	r.delay = 0
	r.SetToken("new")
	if r.tokenMatches("old") || !r.tokenMatches("new") {
		t.Error("the token is still the old one")
	}
}
