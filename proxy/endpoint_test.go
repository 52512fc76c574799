package proxy

import "testing"

func TestEndpoints(t *testing.T) {
	t.Parallel()
	table := newEndpoints([]string{"/extra", "/v1/load_lora_adapter"})
	for path, want := range map[string]kind{
		"/": kindRoot, "/health": kindHealth, "/version": kindPass, "/tokenize": kindJSON, "/detokenize": kindJSON,
		"/pooling": kindJSON, "/classify": kindJSON, "/score": kindJSON, "/rerank": kindJSON, "/v2/rerank": kindPass, "/v2/embed": kindPass,
		"/v1/models": kindModels, "/v1/models/m": kindModel, "/v1/models/org/m": kindModel,
		"/v1/chat/completions": kindChat, "/v1/completions": kindComplete, "/v1/embeddings": kindJSON,
		"/v1/responses": kindResponses, "/v1/responses/resp_1": kindStored, "/v1/responses/resp_1/cancel": kindStored,
		"/v1/messages": kindMessages, "/v1/messages/count_tokens": kindJSON, "/v1/messages/batches": kindPass,
		"/v1/audio/transcriptions": kindUpload, "/v1/audio/translations": kindUpload, "/v1/audio/speech": kindUpload,
		"/v1/realtime": kindRealtime, "/v1/anything": kindPass, "/v1/score": kindPass, "/extra": kindPass, "/v1/load_lora_adapter": kindPass,
	} {
		ep := table.find([]byte(path))
		if ep == nil || ep.kind != want {
			t.Errorf("%s is %+v, want kind %d", path, ep, want)
			continue
		}
		if ep.path == "" {
			t.Errorf("%s has no name", path)
		}
	}
	for _, path := range []string{
		"/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache", "/reset_mm_cache", "/pause", "/resume", "/collective_rpc", "/invocations", "/ping",
		"/load", "/metrics", "/docs", "/openapi.json", "/server_info", "/start_profile", "/stop_profile", "/kv_event_sources", "/admin", "/v1", "/v2", "/v3/x",
		"/v1/unload_lora_adapter", "/v1/unload_lora_adapter/", "/v1/collective_rpc", "/v1/reset_prefix_cache", "/v1/abort_requests", "/V1/chat/completions",
		"/Health", "/extra/", "/extr", "", "x", "*",
	} {
		if ep := table.find([]byte(path)); ep != nil {
			t.Errorf("%q is reachable as %+v", path, ep)
		}
	}
	if newEndpoints(nil).find([]byte("/v1/load_lora_adapter")) != nil {
		t.Error("a guarded path is reachable without being listed")
	}
}

func TestPathFault(t *testing.T) {
	t.Parallel()
	good := []string{
		"/", "/health", "/v1/models", "/v1/models/", "/v1/chat/completions", "/v1/models/m", "/v1/models/org/m", "/v1/models/org%2Fm", "/v1/models/org%2fm",
		"/v1/models/a%20b", "/v1/models/a%3Ab", "/v1/models/qwen-3.8", "/v1/models/...", "/v1/models/.hidden", "/v1/models/a..b", "/v1/models/..a", "/v1/models/a.",
		"/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/responses/a%2Fb", "/v1/x%C3%A9", "/v1/a%20b", "/v1/a+b", "/v1/a~b", "/v1/a:b", "/v1/a@b", "/v1/a=b", "/v1/(a)",
	}
	bad := []string{
		"/v1//models", "//v1/models", "/v1/models//", "/v1/./models", "/v1/../sleep", "/v1/models/..", "/v1/models/.", "/.", "/..", "/v1/..", "/../v1", "/v1/a/../b", "/v1/a/./b",
		"/v1%2Fmodels", "/v1%2fchat/completions", "/%2e%2e/sleep", "/v1/%2e%2e/sleep", "/v1/%2E/x", "/v1/%5c..%5c", "/v1/%5Cx", "/v1\\models", "/v1/models;a=b", "/v1/models%3Ba", "/v1/models%3ba",
		"/v1/%00", "/v1/models/a%00", "/v1/\x00", "/v1/%", "/v1/%2", "/v1/%zz", "/v1/%g0", "/v1/%0g", "/v1/models/%", "/sl%65ep", "/%73leep", "/v1/%63hat/completions", "/v1/chat%2Fcompletions",
		"/v1/models/%6D", "/v1/%2D", "/v1/%5F", "/v1/%7E", "/v1/%30", "/v1/%252e%252e", "/v1/models/%25", "/v1/models/%2e%2e", "/v1/responses/%2E%2E/x", "/v1/responses/..%2fsleep/..",
		"/v1/models/..;/x", "/v1/models/a//b", "/v1/models/a/..", "/v1/models/a/.", "/v1/models/%2e",
	}
	for _, path := range good {
		if fault := pathFault([]byte(path)); fault != "" {
			t.Errorf("%q is refused: %s", path, fault)
		}
	}
	for _, path := range bad {
		if fault := pathFault([]byte(path)); fault == "" {
			t.Errorf("%q passes", path)
		}
	}
	if n := len(good) + len(bad); n < 60 {
		t.Errorf("only %d paths", n)
	}
}

// TestDecodedIDsHoldNoWayOut: an escaped slash in an id is the one exception,
// and what an engine makes of it must still be one id under the same prefix.
func TestDecodedIDsHoldNoWayOut(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/v1/models/%2F..%2Fsleep", "/v1/models/a%2F..%2Fb", "/v1/models/..%2F..%2Fsleep", "/v1/responses/..%2F..%2Fsleep", "/v1/responses/x%2F..%2F..%2F..%2Fsleep",
		"/v1/models/%2F%2Fx", "/v1/models/x%2F.", "/v1/models/.%2Fx", "/v1/responses/%2Fx",
	} {
		if fault := pathFault([]byte(path)); fault == "" {
			t.Errorf("%q passes and decodes to %q", path, unescape([]byte(path)))
		}
	}
	if got := unescape([]byte("org%2Fm%20x")); got != "org/m x" {
		t.Errorf("got %q", got)
	}
}

func TestAppendMillis(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		0: "0.000", -1: "0.000", 0.0000004: "0.000", 0.0000005: "0.001", 0.000012: "0.012", 0.0012344: "1.234",
		0.9999996: "1000.000", 1: "1000.000", 61.0305: "61030.500",
	} {
		if got := string(appendMillis(nil, seconds)); got != want {
			t.Errorf("%v s: %s, want %s", seconds, got, want)
		}
	}
}
