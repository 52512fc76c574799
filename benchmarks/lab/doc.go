// Package lab is what the programs that measure have in common: children and their CPU clocks, the description of the
// machine, figures over rounds. It measures nothing by itself and knows nothing of Ramjet but its command line.
//
// Nothing here is safe for concurrent use, but a Process may be asked for its clocks from any goroutine.
package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// Save writes a document and makes its folder.
func Save(name, content string) error {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(content), 0o644) //nolint:gosec // a document for everybody
	}
	if err != nil {
		return fmt.Errorf("cannot save the figures: %w", err)
	}
	return nil
}
