package tokens

import (
	"fmt"
	"strings"
	"testing"
)

// longChat is a conversation of n messages, some with tool calls, each of about 1,000 bytes.
func longChat(n int) string {
	prose := strings.Repeat("The quick brown fox says \\\"no\\\" to the lazy dog.\\n", 20)
	items := []string{`{"role":"system","content":"You are careful."}`}
	for i := 0; len(items) < n; i++ {
		switch i % 4 {
		case 0:
			items = append(items, fmt.Sprintf(`{"role":"user","content":"%d %s"}`, i, prose))
		case 1:
			items = append(items, fmt.Sprintf(`{"role":"assistant","content":"","tool_calls":[{"id":"c%d","type":"function","function":{"name":"run","arguments":"{\"path\": \"/a/b\", \"n\": %d}"}}]}`, i, i))
		case 2:
			items = append(items, fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":"%s"}`, i-1, prose))
		case 3:
			items = append(items, fmt.Sprintf(`{"role":"assistant","content":"%d %s"}`, i, prose))
		}
	}
	items = append(items, `{"role":"assistant","content":"`+prose[:200]+`"}`)
	items = append(items, `{"role":"user","content":"and one more question of some words"}`)
	return `{"model":"m","messages":[` + strings.Join(items, ",") + `],"tools":[{"type":"function","function":{"name":"run","description":"Runs.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}]}`
}

func benchTemplates(b *testing.B) map[string]*Template {
	g := readGolden(b)
	list := map[string]*Template{}
	for _, name := range [...]string{"sim", "Qwen3-8B-Q8_0", "Qwen3.5-35B-A3B-Q8_0"} {
		if tpl := provenTemplate(b, g, name); tpl != nil {
			list[name] = tpl
		}
	}
	return list
}

func BenchmarkRenderWhole(b *testing.B) {
	body := longChat(400)
	for name, tpl := range benchTemplates(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				c, _ := parse(b, EndpointChat, body)
				if _, note := c.Render(nil, tpl); note != "" {
					b.Fatal(note)
				}
			}
		})
	}
}

func BenchmarkRenderEnd(b *testing.B) {
	body := longChat(400)
	for name, tpl := range benchTemplates(b) {
		c, _ := parse(b, EndpointChat, body)
		c.Render(nil, tpl)
		seen := c.Shape()
		if _, ok := c.RenderFrom(nil, tpl, c.Items()-2, seen); !ok {
			continue // the template renders a tool loop anew when a user message follows
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				var ok bool
				if dst, ok = c.RenderFrom(dst[:0], tpl, c.Items()-2, seen); !ok {
					b.Fatal("not by its end")
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	body := longChat(400)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		parse(b, EndpointChat, body)
	}
}

func BenchmarkLoadTemplate(b *testing.B) {
	for b.Loop() {
		if _, err := LoadTemplate("../sim/model", "", nil); err != nil {
			b.Fatal(err)
		}
	}
}
