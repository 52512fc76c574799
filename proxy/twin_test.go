package proxy

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/telemetry"
)

// TestTwinAgrees sends the whole corpus through the verbatim relay and through
// its twin, on real sockets, and compares what clients decode. The two share
// neither head parser nor chunk scanner.
func TestTwinAgrees(t *testing.T) {
	all := corpus()
	script := func(x *exchange) {
		c := all[at(x)]
		x.write(c.headFor(c.wire), c.wire)
		if c.closes {
			x.close()
		}
	}
	for _, minor := range []string{"1.1", "1.0"} {
		t.Run("HTTP/"+minor, func(t *testing.T) {
			t.Parallel()
			verbatim := start(t, []script_{script})
			twin := start(t, []script_{script}, func(s *setup) { s.StreamRelay = true })
			for i, c := range all {
				if testing.Short() && i%5 != 0 {
					continue
				}
				request := strings.Replace(numbered(c.path, i), "HTTP/1.1", "HTTP/"+minor, 1)
				verbatim.ask(request).want(t, 200, c.decoded)
				twin.ask(request).want(t, 200, c.decoded)
			}
		})
	}
}

// TestTwinEndsCutStreamsAlike cuts streams at some bytes; what the two give
// their clients then must be the same.
func TestTwinEndsCutStreamsAlike(t *testing.T) {
	body := framings[0].frame(dialectBodies[0].events)
	script := func(x *exchange) {
		x.write(chunkedHead, body[:at(x)])
		x.close()
	}
	verbatim := start(t, []script_{script})
	twin := start(t, []script_{script}, func(s *setup) { s.StreamRelay = true })
	var ends []telemetry.End
	for i := len(chunk(roleEvent)); i < len(body)-len(chunk(doneEvent)+endOfBody); i += 29 {
		request := numbered(chatPath, i)
		a, b := verbatim.ask(request), twin.ask(request)
		if string(a.body) != string(b.body) || (a.err == nil) != (b.err == nil) || a.StatusCode != b.StatusCode {
			t.Errorf("cut at %d: verbatim %d %q (%v), twin %d %q (%v)", i, a.StatusCode, a.body, a.err, b.StatusCode, b.body, b.err)
		}
		if a.err != nil || !strings.Contains(string(a.body), "engine_died") {
			t.Errorf("cut at %d: no error event in %q (%v)", i, a.body, a.err)
		}
		ends = append(ends, telemetry.EndEngineDied)
	}
	verbatim.ends(ends...)
	twin.ends(ends...)
}

// script_ spares a name that tests shadow.
type script_ = script

// numbered is a streaming request that tells the engine which case it is.
func numbered(path string, i int) string {
	return post(path, `{"model":"m","stream":true,"messages":[],"input":"","prompt":""}`, fmt.Sprintf("X-Case: %d", i))
}

// at is the case of a numbered request.
func at(x *exchange) int {
	var i int
	if _, err := fmt.Sscan(x.req.Header.Get("X-Case"), &i); err != nil {
		x.e.t.Errorf("no case: %v", err)
	}
	return i
}
