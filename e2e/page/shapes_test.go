package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// shapeOf lists the members of a value as paths; lists are judged by their first
// member, and objects whose names are not ours by their values.
func shapeOf(path string, v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			at := path + "." + name
			if strings.HasSuffix(path, "seconds_per_token") {
				at = path + ".N"
			}
			out[at] = true
			shapeOf(at, member, out)
		}
	case []any:
		if len(v) > 0 {
			shapeOf(path+"[]", v[0], out)
		}
	}
}

// readEvents reads a stream until it has seen each of these events.
func readEvents(t *testing.T, url string, names ...string) map[string]any {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stop := time.AfterFunc(patience, func() { _ = res.Body.Close() })
	defer stop.Stop()
	got := map[string]any{}
	lines := bufio.NewReaderSize(res.Body, 1<<20)
	for name := ""; len(got) < len(names); {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended with %d of %v: %v", len(got), names, err)
		}
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = strings.TrimSpace(n)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && slices.Contains(names, name) {
			var v any
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatal(err)
			}
			got[name] = v
		}
	}
	return got
}

// What the page is fed in these tests has the members that the binary sends,
// and none that it does not send: a test on made-up answers shows nothing else.
func TestRecordedShapesAreRamjets(t *testing.T) {
	r := pair(t)
	r.ask(t, "first", "hello")
	r.ask(t, "second", "hello")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 5 {
			time.Sleep(300 * time.Millisecond)
			r.ask(t, fmt.Sprint("later", i), "hello")
		}
	}()
	real := readEvents(t, r.url("api/v1/stream"), "topology", "gpu", "decision")
	<-done
	w := newWorld(2)
	w.changes = []fields{{"time": stampOf(w.started), "engine": "a", "from": "down", "to": "ready", "reason": "r"}}
	f := newFeed(t, w)
	made := readEvents(t, f.URL+"/api/v1/stream", "topology", "gpu", "decision")
	for _, name := range []string{"topology", "gpu", "decision"} {
		a, b := map[string]bool{}, map[string]bool{}
		shapeOf(name, real[name], a)
		shapeOf(name, made[name], b)
		for path := range b {
			// There is no GPU where this runs; gpu/ and web/ prove those members.
			if !a[path] && !strings.Contains(path, ".gpus[]") && !strings.Contains(path, ".series[]") && !strings.HasSuffix(path, "seconds_per_token.N") {
				t.Errorf("the tests feed %s, which Ramjet does not send", path)
			}
		}
		for path := range a {
			if !b[path] && !strings.HasSuffix(path, "seconds_per_token.N") {
				t.Errorf("Ramjet sends %s, which the tests do not feed", path)
			}
		}
	}
}
