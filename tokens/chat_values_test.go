//go:build !race

package tokens

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"ramjet/wire"
)

// bytesOf is how many bytes f allocates.
func bytesOf(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestManyValues: a body that is made of nothing but small values is too long, and costs no more than a common one.
func TestManyValues(t *testing.T) {
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 8 << 20, MaxTime: 20 * time.Millisecond, Cache: 16 << 20})
	const user, size = `{"role":"user","content":"x"}`, 7 << 20
	fill := func(part string) string { return strings.TrimSuffix(strings.Repeat(part+",", size/(len(part)+1)), ",") }
	parts := fill(`{"type":"text","text":"x"}`)
	for name, body := range map[string]string{
		"parts":     `{"messages":[{"role":"user","content":[` + parts + `]}],"input":[{"role":"user","content":[` + parts + `]}]}`[:],
		"tools":     `{"messages":[` + user + `],"input":"x","tools":[{"type":"function","name":"f","input_schema":{"enum":[` + fill("1") + `]},"function":{"name":"f","parameters":{"enum":[` + fill("1") + `]}}}]}`,
		"arguments": `{"messages":[` + user + `,{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":[` + fill("[]") + `]}"}}]}]}`,
		"kwargs":    `{"messages":[` + user + `],"input":"x","chat_template_kwargs":{"a":[` + fill(`{}`) + `]}}`,
	} {
		var p wire.Peeked
		var scr Scratch
		if err := p.Peek([]byte(body)); err != nil {
			t.Fatal(name, err)
		}
		s.maxBytes = len(body)
		for e := EndpointChat; e <= EndpointResponses; e++ {
			if e == EndpointCompletions || e == EndpointResponses && !strings.Contains(body, `"input"`) || e == EndpointMessages && name == "arguments" {
				continue
			}
			var note string
			start := time.Now()
			if got := bytesOf(func() { _, note = s.Ids(nil, e, []byte(body), &p, &scr) }); note != noteTooLong || got > 64<<20+uint64(len(body)) {
				t.Errorf("%s, %v: %q, %d MB allocated", name, e, note, got>>20)
			} else {
				t.Logf("%s, %v: %d MB, %v", name, e, got>>20, time.Since(start))
			}
		}
	}
}

// TestToolsAreReadOnce: when a conversation grows, what its tools take is not taken again.
func TestToolsAreReadOnce(t *testing.T) {
	s := testSource(t)
	var per [2]uint64
	for i, values := range []int{10, 30000} {
		body := longChat(12)
		body = body[:len(body)-1] + `,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"enum":[` + strings.TrimSuffix(strings.Repeat(`"x",`, values), ",") + `]}}}]}`
		c, note := parse(t, EndpointChat, body)
		if note != "" {
			t.Fatal(note)
		}
		if _, note := c.Render(nil, s.template); note != "" {
			t.Fatal(note)
		}
		seen := c.Shape()
		per[i] = bytesOf(func() {
			for range 10 {
				if _, ok := c.RenderFrom(nil, s.template, c.Items()-2, seen); !ok {
					t.Error("not by its end")
				}
				if _, ok := c.Boundary(s.template); !ok {
					t.Error("no boundary")
				}
			}
		})
	}
	if per[1] > per[0]+per[0]/2+64<<10 {
		t.Errorf("%s bytes with few and many values in the tools", fmt.Sprint(per))
	}
}
