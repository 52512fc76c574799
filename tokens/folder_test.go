package tokens

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFindModelFolder(t *testing.T) {
	t.Parallel()
	hub := t.TempDir()
	put := func(path, text string) string {
		t.Helper()
		path = filepath.Join(hub, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(path)
	}
	// As huggingface_hub lays it out: refs/main names the snapshot.
	put("models--Qwen--Qwen3-8B/snapshots/aaa/tokenizer.json", "{}")
	main := put("models--Qwen--Qwen3-8B/snapshots/bbb/tokenizer.json", "{}")
	put("models--Qwen--Qwen3-8B/snapshots/ccc/config.json", "{}")
	put("models--Qwen--Qwen3-8B/refs/main", "bbb\n")
	// Without a reference, or with one to what is not there, the newest that is whole.
	old := put("models--a--b/snapshots/old/tokenizer.json", "{}")
	newest := put("models--a--b/snapshots/new/tokenizer.json", "{}")
	put("models--a--b/snapshots/half/config.json", "{}")
	put("models--a--b/refs/main", "gone")
	if err := os.Chtimes(old, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	alone := put("models--gpt2/snapshots/x/tokenizer.json", "{}")
	put("models--only--weights/snapshots/x/model.safetensors", "")
	put("models--evil--ref/snapshots/ok/tokenizer.json", "{}")
	put("models--evil--ref/refs/main", "../../models--gpt2/snapshots/x")
	local := put("folder/tokenizer.json", "{}")
	for _, c := range []struct{ root, want string }{
		{"Qwen/Qwen3-8B", main}, {"a/b", newest}, {"gpt2", alone}, {local, local},
		{"evil/ref", filepath.Join(hub, "models--evil--ref/snapshots/ok")},
		{"only/weights", ""}, {"no/such", ""}, {"", ""}, {"a/../b", ""}, {"../gpt2", ""}, {"a/b/c", ""}, {`a\b`, ""}, {"/nowhere", ""}, {"a/", ""}, {"/", ""}, {"./a", ""},
	} {
		got, err := FindModelFolder(c.root, hub)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.root, got, err)
		}
		if err != nil && (!errors.Is(err, ErrNoModelFolder) || !strings.HasPrefix(err.Error(), "cannot find")) {
			t.Errorf("%q: %v", c.root, err)
		}
	}
	if _, err := FindModelFolder("a/b", ""); !errors.Is(err, ErrNoModelFolder) {
		t.Errorf("without a cache: %v", err)
	}
	if _, err := FindModelFolder("a/b", filepath.Join(hub, "absent")); !errors.Is(err, ErrNoModelFolder) {
		t.Errorf("the cache's folder is absent: %v", err)
	}
}
