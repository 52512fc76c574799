package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/config"
)

// TestProbeOfTheModels: what is wrong with the list is said, and nothing is
// made that is for serve to make.
func TestProbeOfTheModels(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2") // nothing here governs the test's processors
	for body, want := range map[string]string{
		`{"data":[]}`: "GET /v1/models: it lists none",
		`{}`:          "GET /v1/models: it lists none",
		`no`:          "cannot read the models",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = w.Write([]byte(body))
			}
		}))
		folder := filepath.Join(t.TempDir(), "journal")
		cfg, err := config.Load(config.LoadOptions{Args: []string{"--engine=a=" + s.URL, "--journal.path=" + folder}})
		if err != nil {
			t.Fatal(err)
		}
		var out lines
		if probeEngines(t.Context(), cfg, &out) {
			t.Errorf("%s: all is well", body)
		}
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("%s: printed\n%s", body, text)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("the journal's folder: %v", err)
		}
		s.Close()
	}
}
