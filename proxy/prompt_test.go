package proxy

import (
	"context"
	"testing"

	"ramjet/tokens"
)

// drawn is a flight whose prompt is to be verified beside it.
func drawn(t *testing.T, m *tokens.Model, o Options) *flight {
	t.Helper()
	f := &flight{s: &Server{Options: o}, live: &live{}, prompt: &prompt{}}
	prepareIn(t, m, f)
	return f
}

func prepareIn(t *testing.T, m *tokens.Model, f *flight) {
	t.Helper()
	body := []byte(`{"prompt":"Once upon a time"}`)
	f.body.buf, f.body.n = &buffer{b: body}, len(body)
	if err := f.peek.Peek(body); err != nil {
		t.Fatal(err)
	}
	if m.Prepare(&f.prompt.prep, tokens.EndpointCompletions, nil, body, &f.peek); !f.prompt.prep.Exact {
		t.Fatal(f.prompt.prep.Note)
	}
}

func simModel(t *testing.T) *tokens.Model {
	t.Helper()
	s, _, err := tokens.LoadSource("../sim/model", "", nil, tokens.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return tokens.NewModel(tokens.ModelOptions{Source: s})
}

// TestNoTasksInVain: where there is no room for a task none is made, and the
// next request is taken in place of this one.
func TestNoTasksInVain(t *testing.T) {
	t.Parallel()
	m := simModel(t)
	room, tasks := false, 0
	f := drawn(t, m, Options{
		Beside:     func(func(context.Context)) bool { tasks++; return true },
		BesideRoom: func() bool { return room },
	})
	for range 3 {
		f.beside(nil)
		prepareIn(t, m, f)
	}
	if tasks != 0 {
		t.Errorf("%d tasks though there was no room", tasks)
	}
	room = true
	f.beside(nil)
	prepareIn(t, m, f)
	f.beside(nil)
	if tasks != 1 {
		t.Errorf("%d tasks, want that of the first that there was room for", tasks)
	}
	f.s.BesideRoom = nil
	f = drawn(t, simModel(t), f.s.Options)
	if f.beside(nil); tasks != 2 {
		t.Error("no task where nobody speaks of room")
	}
}
