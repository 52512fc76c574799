package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// TopOptions say how the view is shown.
type TopOptions struct {
	// Once prints one picture and ends; so does an Out that is no terminal.
	Once bool
	// Interval is the time between two looks, at least 100 ms.
	Interval time.Duration
	// In is where keys come from; nil or not a terminal = none.
	In  *os.File
	Out io.Writer
}

const (
	onceColumns   = 100 // of a picture that no terminal bounds
	topDecisions  = 50  // asked for at once: more rows than a terminal has left
	leastInterval = 100 * time.Millisecond
	topTimeout    = 5 * time.Second
)

// Top shows the engines of a running Ramjet, their leases and match rates, and
// the last decisions, until q, Ctrl-C or the end of ctx. The terminal is then
// as it was.
func Top(ctx context.Context, args, env []string, o TopOptions) error {
	a, err := findAdmin(args, env)
	if err != nil {
		return err
	}
	p, err := look(ctx, a)
	if err != nil {
		return err
	}
	out, _ := o.Out.(*os.File)
	if o.Once || out == nil || !isTerminal(out) {
		_, err := io.WriteString(o.Out, strings.Join(p.lines(onceColumns, 0), "\n")+"\n")
		return err
	}
	t, err := openTerminal(o.In, out)
	if err != nil {
		return err
	}
	defer t.restore()
	return live(ctx, a, t, p, max(o.Interval, leastInterval))
}

// look asks for everything that is shown.
func look(ctx context.Context, a *admin) (*picture, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	p := &picture{zone: time.Local}
	text, err := a.ask(ctx, "GET", "/api/v1/topology", nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &p.topology); err != nil {
		return nil, fmt.Errorf("cannot read the topology: %w", err)
	}
	text, err = a.ask(ctx, "GET", fmt.Sprintf("/api/v1/requests?limit=%d", topDecisions), nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &p.decisions); err != nil {
		return nil, fmt.Errorf("cannot read the decisions: %w", err)
	}
	return p, nil
}

// live draws pictures until q, Ctrl-C or the end of ctx. Looking runs beside,
// so that a key or a new size never waits for an answer.
func live(ctx context.Context, a *admin, t *terminal, p *picture, interval time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type seen struct {
		p   *picture
		err error
	}
	looks := make(chan seen)
	go func() {
		defer close(looks)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			p, err := look(ctx, a)
			select {
			case looks <- seen{p, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	fresh := time.Now()
	for {
		if err := t.draw(p.lines); err != nil {
			return err
		}
		select {
		case s := <-looks:
			if s.err == nil {
				p, fresh = s.p, time.Now()
			} else if !errors.Is(s.err, context.Canceled) {
				old := *p
				old.stale = fmt.Sprintf("for %s: %s", age(time.Since(fresh)), s.err)
				p = &old
			}
		case <-t.resized:
		case key, ok := <-t.keys:
			if !ok {
				t.keys = nil // there is nobody to press one
			}
			if ok && (key == 'q' || key == 'Q' || key == ctrlC) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// ctrlC arrives as a key where the terminal makes no signal of it.
const ctrlC = 3
