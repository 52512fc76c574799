package web

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// assetTexts are the page's files by name.
func assetTexts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := assets.ReadFile(name)
		all[path.Base(name)] = string(text)
		return err
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

// unsafeInPage are ways by which a name could become markup or code, and ways
// to ask another machine for something. The policy of the server forbids them
// too; this finds them before a browser does.
var unsafeInPage = []struct{ pattern, why string }{
	{`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc`, "it parses text as markup; make text nodes"},
	{`\beval\b|new Function|setTimeout\(\s*['"\x60]|setInterval\(\s*['"\x60]|javascript:`, "it runs text as code"},
	{`\son[a-z]+\s*=\s*["']`, "a listener in markup is refused by the policy"},
	{`\sstyle\s*=\s*["']|<style|'style',`, "a style in markup is refused by the policy"},
	{`<script(?:>| [^>]*>)[^<]`, "a script in markup is refused by the policy"},
	{`@import|url\(\s*['"]?(?:https?:)?//`, "the page asks nobody else for anything"},
}

func TestPageIsSafeAndAlone(t *testing.T) {
	t.Parallel()
	address := regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s'"]*`)
	for name, text := range assetTexts(t) {
		for _, u := range unsafeInPage {
			if found := regexp.MustCompile(u.pattern).FindString(text); found != "" {
				t.Errorf("%s has %q: %s", name, found, u.why)
			}
		}
		for _, a := range address.FindAllString(text, -1) {
			if !strings.HasPrefix(a, "http://www.w3.org/") { // the name of a vocabulary, never asked for
				t.Errorf("%s names the address %q", name, a)
			}
		}
		if lines := strings.Count(text, "\n"); lines > 600 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}

// Every file is served with its type, and every file that the page names is
// there.
func TestPageIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	named := regexp.MustCompile(`(?:from '\./|assets/)([a-z]+\.[a-z]+)`)
	texts := assetTexts(t)
	used := map[string]bool{"index.html": true}
	for name, text := range texts {
		w := r.ask("GET", "/assets/"+name)
		if w.Code != 200 || w.Body.String() != text || w.Header().Get("Content-Type") != assetTypes[path.Ext(name)] || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'self';") {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if used[m[1]] = true; texts[m[1]] == "" {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	for name := range texts {
		if !used[name] {
			t.Errorf("nobody uses %s", name)
		}
	}
	if w := r.ask("GET", "/"); w.Code != 200 || w.Body.String() != texts["index.html"] || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("/: %d %v", w.Code, w.Header())
	}
	for _, name := range []string{"", "nothing.js", "..%2fserver.go", "index.go", "%2e%2e%2fguard.go", `..%5cguard.go`, "page.css/../x"} {
		if w := r.ask("GET", "/assets/"+name); w.Code == 200 {
			t.Errorf("%q is served", name)
		}
	}
	wantError(t, r.ask("POST", "/assets/main.js"), 405, "method_not_allowed")
}
