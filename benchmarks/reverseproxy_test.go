package benchmarks

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// The standard library's proxy relays streams byte for byte, also when an engine's head comes before its transport has
// seen the end of the request.
func TestReverseProxyRelaysStreams(t *testing.T) {
	t.Parallel()
	var engines []string
	for range 2 {
		e, err := NewEngine("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		engines = append(engines, e.Addr())
	}
	server := httptest.NewServer(newReverseProxy(engines))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	res, err := Load(LoadSpec{Mode: ModeStream, Targets: []string{address}, Streams: 8, Requests: 20, Tokens: 3, PaceMicros: 1000})
	if err != nil || res.Errors != 0 || res.Requests != 160 {
		t.Errorf("%d of %d requests failed: %s %v", res.Errors, res.Requests, res.FirstError, err)
	}
	if !answersChat(address) {
		t.Error("no short answer")
	}
	if err := ReverseProxy(address, nil); err == nil {
		t.Error("a proxy without engines runs")
	}
}
