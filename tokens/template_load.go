package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxTemplateFile bounds what is read: the longest template that is known has 25 KB, but tokenizer_config.json may
// list 100,000 added tokens beside it.
const maxTemplateFile = 32 << 20

// ErrNoTemplate says that a model's folder has no chat template. Chats of such a model cannot be known.
var ErrNoTemplate = errors.New("no chat template in the model's folder")

// LoadTemplate reads the chat template of the model whose folder, or whose tokenizer.json, is at path:
// chat_template.jinja, else chat_template.json, else the one in tokenizer_config.json, which may be a list with names.
// file, if not empty, is used instead; the special tokens still come from the folder. now is TemplateOptions.Now.
// It is of no use to try again before the files change.
func LoadTemplate(path, file string, now func() time.Time) (*Template, error) {
	folder := path
	if info, err := os.Stat(path); err == nil && !info.IsDir() || err != nil && filepath.Ext(path) == ".json" {
		folder = filepath.Dir(path)
	}
	o := TemplateOptions{Now: now}
	source, err := readFolder(folder, &o)
	if err != nil {
		return nil, err
	}
	if file != "" {
		data, err := readTemplateFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot load the chat template: %w", err)
		}
		source, o.ToolUse = string(data), ""
	}
	if source == "" {
		return nil, fmt.Errorf("cannot load the chat template: %w", ErrNoTemplate)
	}
	t, err := NewTemplate(source, o)
	if err != nil {
		return nil, fmt.Errorf("cannot load the chat template of %s: %w", folder, err)
	}
	return t, nil
}

// readFolder finds the template, the special tokens and the model type. Files that are not there say nothing.
func readFolder(folder string, o *TemplateOptions) (source string, err error) {
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	members := map[string]json.RawMessage{}
	for _, f := range [...]struct {
		name string
		into any
	}{{"tokenizer_config.json", &config}, {"tokenizer_config.json", &members}} {
		if err := readJSON(filepath.Join(folder, f.name), f.into); err != nil {
			return "", err
		}
	}
	o.Special = specialTokens(folder, members)
	var model struct {
		ModelType string `json:"model_type"`
	}
	if err := readJSON(filepath.Join(folder, "config.json"), &model); err != nil {
		return "", err
	}
	o.ModelType = model.ModelType
	data, err := readTemplateFile(filepath.Join(folder, "chat_template.jinja"))
	if err == nil {
		extra, err := readTemplateFile(filepath.Join(folder, "additional_chat_templates", "tool_use.jinja"))
		if err == nil {
			o.ToolUse = string(extra)
		}
		return string(data), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot load the chat template: %w", err)
	}
	var alone struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := readJSON(filepath.Join(folder, "chat_template.json"), &alone); err != nil {
		return "", err
	}
	if len(alone.ChatTemplate) > 0 {
		config.ChatTemplate = alone.ChatTemplate
	}
	return namedTemplates(config.ChatTemplate, o)
}

// namedTemplates reads a template that is one text or a list of {"name", "template"}.
func namedTemplates(raw json.RawMessage, o *TemplateOptions) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", fmt.Errorf("cannot load the chat template: it is neither text nor a list: %w", err)
	}
	source := ""
	for _, t := range list {
		switch t.Name {
		case "default":
			source = t.Template
		case "tool_use":
			o.ToolUse = t.Template
		}
	}
	if source == "" {
		return "", fmt.Errorf("cannot load the chat template: of %d there is none named default", len(list))
	}
	return source, nil
}

// specialTokens collects the named special tokens: tokenizer_config.json's, and what only special_tokens_map.json has.
func specialTokens(folder string, members map[string]json.RawMessage) map[string]string {
	special := map[string]string{}
	older := map[string]json.RawMessage{}
	_ = readJSON(filepath.Join(folder, "special_tokens_map.json"), &older) // a legacy file that may be anything
	for _, name := range [...]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		raw, ok := members[name]
		if !ok {
			raw = older[name]
		}
		var text string
		var token struct{ Content string }
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &token) == nil {
			text = token.Content
		}
		if text != "" {
			special[name] = text
		}
	}
	return special
}

func readTemplateFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxTemplateFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxTemplateFile)
	}
	return os.ReadFile(path)
}

// readJSON reads a file into v; one that is not there leaves v as it is.
func readJSON(path string, v any) error {
	data, err := readTemplateFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}
