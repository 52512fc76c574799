package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
)

// ExplainOptions say what is to be explained.
type ExplainOptions struct {
	// File holds a request body, "-" reads it from In; an empty File asks for
	// the request ID that Ramjet has served.
	File, ID string
	// Path is what the body would be sent to.
	Path string
	// JSON prints the record as it came.
	JSON bool
	In   io.Reader
	Out  io.Writer
}

// Explain asks a running Ramjet what it would choose for a request, or why it
// chose what it did, and prints that for a terminal 100 columns wide.
func Explain(ctx context.Context, args, env []string, o ExplainOptions) error {
	a, err := findAdmin(args, env)
	if err != nil {
		return err
	}
	answer, err := o.ask(ctx, a)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err = o.Out.Write(answer)
		return err
	}
	var x explanation
	if err := json.Unmarshal(answer, &x); err != nil {
		return fmt.Errorf("cannot read the explanation: %w", err)
	}
	x.print(o.Out)
	return nil
}

func (o *ExplainOptions) ask(ctx context.Context, a *admin) ([]byte, error) {
	if o.File == "" {
		return a.ask(ctx, "GET", "/api/v1/explain/"+url.PathEscape(o.ID), nil)
	}
	var body []byte
	var err error
	if o.File == "-" {
		body, err = io.ReadAll(o.In)
	} else {
		body, err = os.ReadFile(o.File)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the request: %w", err)
	}
	return a.ask(ctx, "POST", "/api/v1/explain?path="+url.QueryEscape(o.Path), body)
}
