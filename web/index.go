package web

import (
	"embed"
	"net/http"
	"path"
	"strings"
)

// The page is plain HTML, CSS and JavaScript, embedded as it is written: no
// build step, and nothing of it is asked for elsewhere.
//
//go:embed assets
var assets embed.FS

// assetTypes are the types of the page's files. Others are not served.
var assetTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) { sendAsset(w, "index.html") }

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	if !sendAsset(w, r.PathValue("name")) {
		fail(w, http.StatusNotFound, "path_not_found", "the page has no file "+quote(r.PathValue("name")))
	}
}

// sendAsset reports whether there is one of that name.
func sendAsset(w http.ResponseWriter, name string) bool {
	kind := assetTypes[path.Ext(name)]
	if kind == "" || strings.ContainsAny(name, "/\\") {
		return false
	}
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(text)
	return true
}
