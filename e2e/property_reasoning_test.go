package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC21DroppedReasoning: engines whose template leaves out reasoning before the last question hit less of a
// conversation when the next question comes, and Ramjet says how much less: the match ends where the rendered ids part,
// on every turn, inside a loop of tools and behind it.
func TestCaseC21DroppedReasoning(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t, "--drop-reasoning")
	dir := rig.SimModelFolder(t)
	template := filepath.Join(dir, "chat_template.jinja")
	editFile(t, template, `{%- for message in turns -%}`, `{%- set ns = namespace(last=-1) -%}{%- for m in turns -%}{%- if m.role == 'user' -%}`+
		`{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}{%- for message in turns -%}`)
	editFile(t, template, `{%- if message.reasoning -%}`, `{%- if message.reasoning and loop.index0 > ns.last -%}`)
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: dir, Flags: append([]string{rig.PatientTokens}, rig.QuickHealth...), Settled: rig.Both(rig.Said("token ids compared"), rig.Trusted)})
	a := r.Asker(t)
	defer a.Close()
	load := rig.NewTalkLoad(21, 60)
	var messages []object
	longest, cut, whole := 0, 0, 0 // tokens of the turn before; turns that lost some of it, and that did not
	for question := range 4 {
		messages = append(messages, object{"role": "user", "content": load.Text(60)})
		for step := range 3 {
			body, err := json.Marshal(object{"model": "m", "messages": messages, "max_tokens": 8, "stream": true, "stream_options": object{"include_usage": true}})
			if err != nil {
				t.Fatal(err)
			}
			r.InStep(t, sims...)
			p := a.Chat(r.ID("reasoning"), string(body))
			if !p.Ok() || p.Match != p.Cached || r.Explain(t, p.ID).Keys != "exact" {
				t.Errorf("question %d, step %d: %v", question, step, &p)
			}
			switch {
			case longest == 0:
			case step == 0 && p.Cached+32 < longest:
				cut++
			case step > 0 && p.Cached+32 >= longest:
				whole++
			default:
				t.Errorf("question %d, step %d: %d tokens cached of a turn before with %d", question, step, p.Cached, longest)
			}
			longest = p.Prompt
			id := fmt.Sprintf("call_%d_%d", question, step)
			call := object{"id": id, "type": "function", "function": object{"name": "look", "arguments": `{"at":"the harbour"}`}}
			if step < 2 {
				messages = append(messages, object{"role": "assistant", "content": "", "reasoning": load.Text(60), "tool_calls": []object{call}},
					object{"role": "tool", "tool_call_id": id, "content": load.Text(20)})
			} else {
				messages = append(messages, object{"role": "assistant", "content": p.Text, "reasoning": load.Text(60)})
			}
		}
	}
	if cut != 3 || whole != 8 {
		t.Errorf("%d of 3 new questions lost reasoning, %d of 8 steps kept all", cut, whole)
	}
}
