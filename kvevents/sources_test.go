package kvevents

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseSources(t *testing.T) {
	t.Parallel()
	// As vLLM 0.32 answers.
	real := `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5601","replay_endpoint":"tcp://127.0.0.1:5602","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv"}}`
	for name, c := range map[string]struct{ body, host, want string }{
		"real":            {real, "10.0.0.7", "0 tcp://10.0.0.7:5601 tcp://10.0.0.7:5602 kv 10000 false"},
		"real, local":     {real, "127.0.0.1", "0 tcp://127.0.0.1:5601 tcp://127.0.0.1:5602 kv 10000 false"},
		"real, IPv6":      {real, "::1", "0 tcp://[::1]:5601 tcp://[::1]:5602 kv 10000 false"},
		"no replay":       {`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:1","replay_endpoint":null,"topic":""}}`, "h", "0 tcp://h:1   0 false"},
		"another host":    {`{"0":{"enable_kv_cache_events":true,"endpoint":"tcp://[::]:1","replay_endpoint":"tcp://10.1.1.1:2","buffer_steps":5}}`, "h", "0 tcp://h:1 tcp://10.1.1.1:2  5 false"},
		"connects out":    {`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:5557","replay_endpoint":"tcp://*:2","topic":"x"}}`, "h", "0 tcp://*:5557 tcp://h:2 x 0 true"},
		"ipc":             {`{"0":{"enable_kv_cache_events":true,"endpoint":"ipc:///e","replay_endpoint":"ipc:///r"}}`, "h", "0 ipc:///e ipc:///r  0 false"},
		"two ranks":       {`{"1":{"enable_kv_cache_events":true,"endpoint":"tcp://*:2"},"0":{"enable_kv_cache_events":true,"endpoint":"tcp://*:1"}}`, "h", "0 tcp://h:1   0 false|1 tcp://h:2   0 false"},
		"off":             {`{"0":{"enable_kv_cache_events":false,"endpoint":"tcp://*:1"}}`, "h", ""},
		"null publisher":  {`{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:1"}}`, "h", ""},
		"none":            {`{}`, "h", ""},
		"a bad rank":      {`{"x":{"enable_kv_cache_events":true,"endpoint":"tcp://*:1"}}`, "h", `"x" is no rank`},
		"a bad endpoint":  {`{"0":{"enable_kv_cache_events":true,"endpoint":"inproc://x"}}`, "h", "inproc is neither"},
		"a bad replay":    {`{"0":{"enable_kv_cache_events":true,"endpoint":"tcp://*:1","replay_endpoint":"x"}}`, "h", "is not tcp://"},
		"an error's body": {`{"detail":"Not Found"}`, "h", "cannot read the event sources"},
		"a list":          {`[]`, "h", "cannot read the event sources"},
		"cut":             {real[:50], "h", "cannot read the event sources"},
		"empty":           {``, "h", "cannot read the event sources"},
	} {
		got, err := ParseSources([]byte(c.body), c.host)
		var shown []string
		for _, s := range got {
			shown = append(shown, fmt.Sprint(s.Rank, " ", s.Events, " ", s.Replay, " ", s.Topic, " ", s.BufferSteps, " ", s.ConnectsOut))
		}
		text := strings.Join(shown, "|")
		if err != nil {
			if text = err.Error(); !strings.Contains(text, c.want) || c.want == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}
