package sim

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// modelFS holds the built-in model's folder, as a checkpoint's folder without weights. tokenizer.json is made by
// model/gen.
//
//go:generate go run -C .. ./sim/model/gen/main.go
//go:embed model/*.json model/*.jinja
var modelFS embed.FS

// WriteModel writes the built-in model's tokenizer.json, tokenizer_config.json, chat_template.jinja and config.json
// into dir, which it makes if needed. Files of these names are replaced.
func WriteModel(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot write model: %w", err)
	}
	files, err := fs.Sub(modelFS, "model")
	if err != nil {
		return fmt.Errorf("cannot write model: %w", err)
	}
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("cannot write model: %w", err)
		}
		return nil
	})
}
