package tokens

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoModelFolder says that a model's files are not on this machine.
var ErrNoModelFolder = errors.New("the model's files are not here")

// FindModelFolder returns the folder with the tokenizer.json of a model. root is what an engine's /v1/models names so:
// a folder, or a name as at Hugging Face, "owner/name"; hub is the folder of the local cache (HF_HUB_CACHE, else
// HF_HOME/hub, else ~/.cache/huggingface/hub), empty for none. Of several snapshots the one is taken that refs/main
// names, else the newest. The error wraps ErrNoModelFolder.
func FindModelFolder(root, hub string) (path string, err error) {
	if filepath.IsAbs(root) {
		if hasTokenizer(root) {
			return root, nil
		}
		return "", fmt.Errorf("cannot find a tokenizer.json in %s: %w", root, ErrNoModelFolder)
	}
	owner, name, found := strings.Cut(root, "/")
	if !found { // models without an owner, such as gpt2
		owner, name = "", root
	}
	if hub == "" || name == "" || !fs.ValidPath(root) || strings.Contains(name, "/") || strings.ContainsAny(root, `\:`) {
		return "", fmt.Errorf("cannot find the files of model %q: %w", root, ErrNoModelFolder)
	}
	folder := "models--" + name
	if owner != "" {
		folder = "models--" + owner + "--" + name
	}
	folder = filepath.Join(hub, folder)
	if ref, err := os.ReadFile(filepath.Join(folder, "refs", "main")); err == nil {
		commit := strings.TrimSpace(string(ref))
		if fs.ValidPath(commit) && !strings.Contains(commit, "/") {
			if path := filepath.Join(folder, "snapshots", commit); hasTokenizer(path) {
				return path, nil
			}
		}
	}
	return newestSnapshot(root, folder)
}

func newestSnapshot(root, folder string) (path string, err error) {
	entries, err := os.ReadDir(filepath.Join(folder, "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read the cache of model %q: %w", root, err)
	}
	var newest time.Time
	for _, entry := range entries {
		snapshot := filepath.Join(folder, "snapshots", entry.Name())
		info, err := os.Stat(snapshot)
		if err == nil && hasTokenizer(snapshot) && (path == "" || info.ModTime().After(newest)) {
			path, newest = snapshot, info.ModTime()
		}
	}
	if path == "" {
		return "", fmt.Errorf("cannot find the files of model %q in %s: %w", root, folder, ErrNoModelFolder)
	}
	return path, nil
}

func hasTokenizer(folder string) bool {
	info, err := os.Stat(filepath.Join(folder, "tokenizer.json"))
	return err == nil && info.Mode().IsRegular()
}

// LoadSource reads a model's tokenizer and chat template from path, a folder or a tokenizer.json, and makes a Source.
// template, if not empty, is the file of the chat template (tokens.chat_template). The error says that there is no
// usable tokenizer. A template that cannot be used is no error but a warning: the source then knows completions only.
func LoadSource(path, template string, now func() time.Time, o SourceOptions) (s *Source, warning, err error) {
	tok, err := LoadTokenizer(path)
	if err != nil {
		return nil, nil, err
	}
	tpl, warning := LoadTemplate(path, template, now)
	if warning != nil {
		tpl = nil
	}
	return NewSource(tok, tpl, o), warning, nil
}

// Identity names the tokenizer of the source; see Tokenizer.Identity.
func (s *Source) Identity() string { return s.tokenizer.Identity() }

// Refusal says why no chat can be known by this source, "" if chats can: a note out of Notes.
func (s *Source) Refusal() string {
	if s.template == nil {
		return noteNoTemplate
	}
	return s.template.refusal
}
