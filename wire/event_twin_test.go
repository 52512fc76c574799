package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The slow and obvious twin of ClassifyEvent: it splits the block as the
// event-stream rules say and reads the JSON with encoding/json. It is written
// from the API's words, not from the code beside it.

type object = map[string]any

// twinBlock is the event-stream field parser for one block.
func twinBlock(block string) (name string, data []string) {
	block = strings.ReplaceAll(strings.ReplaceAll(block, "\r\n", "\n"), "\r", "\n")
	for _, line := range strings.Split(block, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	return name, data
}

// twinEvent returns ok = false where encoding/json has no opinion.
func twinEvent(d Dialect, event []byte) (info EventInfo, ok bool) {
	info.Usage = unknownUsage
	name, lines := twinBlock(string(event))
	data := strings.TrimSpace(strings.Join(lines, "\n"))
	switch data {
	case "":
		info.Comment = true
		return info, true
	case "[DONE]":
		info.Done = true
		return info, true
	}
	var v object
	dec := json.NewDecoder(strings.NewReader(data))
	dec.UseNumber()
	if !json.Valid([]byte(data)) || dec.Decode(&v) != nil { // More says nothing of a brace behind
		return info, false
	}
	if name == "" && d != DialectOpenAI {
		name, _ = v["type"].(string)
	}
	if twoLevels(v) {
		return info, false
	}
	switch d {
	case DialectResponses:
		twinResponses(name, v, &info)
	case DialectAnthropic:
		twinAnthropic(name, v, &info)
	default:
		twinOpenAI(name, v, &info)
	}
	return info, true
}

// twoLevels reports an event whose inner object repeats a member of the outer
// one: which of them counts is nobody's business.
func twoLevels(v object) bool {
	for _, inner := range []string{"response", "message", "delta"} {
		for key := range obj(v[inner]) {
			if _, twice := v[key]; twice && key != "type" {
				return true
			}
		}
	}
	return false
}

// level finds a member in an event's inner object, or in the event.
func level(v object, inner, key string) any {
	if value, ok := obj(v[inner])[key]; ok {
		return value
	}
	return v[key]
}

func obj(v any) object { o, _ := v.(object); return o }
func list(v any) []any { l, _ := v.([]any); return l }
func text(v any) string {
	s, _ := v.(string)
	return s
}

func filledAny(v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case object:
		return len(v) > 0
	}
	return false
}

func anyFilled(o object, keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return filledAny(o[k]) })
}

func number(v any) int64 {
	n, ok := v.(json.Number)
	if !ok {
		return -1
	}
	count, ok := decimal([]byte(n))
	if !ok {
		return -1
	}
	return count
}

func twinUsage(v any, d Dialect, info *EventInfo) {
	u, ok := v.(object)
	if !ok {
		return
	}
	prompt, completion, details := "prompt_tokens", "completion_tokens", "prompt_tokens_details"
	if d != DialectOpenAI {
		prompt, completion, details = "input_tokens", "output_tokens", "input_tokens_details"
	}
	out := Usage{number(u[prompt]), number(obj(u[details])["cached_tokens"]), number(u[completion])}
	if d == DialectAnthropic {
		out.Cached = number(u["cache_read_input_tokens"])
		if out.Prompt >= 0 {
			out.Prompt += max(0, out.Cached) + max(0, number(u["cache_creation_input_tokens"]))
		}
	}
	info.HasUsage, info.Usage = true, out
}

func twinOpenAI(name string, v object, info *EventInfo) {
	info.Error = v["error"] != nil || v["object"] == "error" || name == "error"
	twinUsage(v["usage"], DialectOpenAI, info)
	choices := list(v["choices"])
	for _, c := range choices {
		c := obj(c)
		if anyFilled(c, "text", "token_ids") || anyFilled(obj(c["delta"]), "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call") {
			info.Delta = true
		}
		if reason := text(c["finish_reason"]); reason != "" {
			info.Finished = true
			info.Abort = info.Abort || reason == "abort"
		}
	}
	info.Generated = len(choices) > 0 && (info.Delta || !info.Abort)
}

func twinAnthropic(name string, v object, info *EventInfo) {
	twinUsage(level(v, "message", "usage"), DialectAnthropic, info)
	info.Error = level(v, "message", "error") != nil || name == "error"
	reason := text(obj(v["delta"])["stop_reason"])
	if reason == "" {
		reason = text(level(v, "message", "stop_reason"))
	}
	info.Finished = reason != "" || name == "message_delta"
	info.Abort = info.Finished && !slices.Contains([]string{"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"}, reason)
	switch name {
	case "ping":
		info.Comment = true
	case "message_start", "content_block_start", "content_block_stop":
		info.Generated = true
	case "content_block_delta":
		info.Generated = true
		info.Delta = anyFilled(obj(v["delta"]), "text", "thinking", "partial_json") || twinOutput(list(level(v, "message", "content")))
	case "message_delta":
		info.Generated = !info.Abort
	case "message_stop":
		info.Done = true
	}
}

func twinOutput(items []any) bool {
	for _, i := range items {
		i := obj(i)
		switch text(i["type"]) {
		case "", "message", "reasoning", "output_text", "reasoning_text", "summary_text", "text", "refusal", "thinking":
		default:
			return true
		}
		if anyFilled(i, "text", "refusal", "arguments", "input", "thinking") || filledAny(i["content"]) && list(i["content"]) == nil ||
			twinOutput(list(i["content"])) || twinOutput(list(i["summary"])) {
			return true
		}
	}
	return false
}

func twinResponses(name string, v object, info *EventInfo) {
	r := object{}
	for _, key := range []string{"id", "usage", "error", "status", "incomplete_details", "output"} {
		r[key] = level(v, "response", key)
	}
	twinUsage(r["usage"], DialectResponses, info)
	failed := r["error"] != nil
	kind, isResponse := strings.CutPrefix(name, "response.")
	if !isResponse {
		info.Error = failed || name == "error"
		return
	}
	switch kind {
	case "created":
		if id, ok := r["id"].(string); ok {
			info.ResponseID = []byte(id)
		}
	case "queued", "in_progress":
	case "completed", "incomplete", "failed", "cancelled":
		info.Done, info.Finished = true, true
		info.Error = failed || kind == "failed"
		status := kind
		if kind == "completed" {
			status = text(r["status"])
		}
		reason := text(obj(r["incomplete_details"])["reason"])
		output := twinOutput(list(r["output"])) || filledAny(v["delta"]) || info.Usage.Completion > 0
		limit := !slices.Contains([]string{"", "abort", "cancelled", "error"}, reason)
		info.Abort = !limit && (status == "incomplete" || status == "cancelled" || status == "failed" && !output)
		info.Generated = output || status == "completed"
		info.Delta = info.Abort && output
	default:
		info.Generated = true
		info.Delta = strings.HasSuffix(kind, ".delta") && (filledAny(v["delta"]) || twinOutput(list(r["output"])))
	}
}

// variants writes one event in other ways that mean the same.
func variants(event string) []string {
	out := []string{event, strings.ReplaceAll(event, "\n", "\r\n"), strings.ReplaceAll(event, "\n", "\r"), ": note\nid: 5\n" + event}
	name, lines := twinBlock(event)
	var v any
	data := strings.Join(lines, "\n")
	if json.Unmarshal([]byte(data), &v) != nil {
		return out
	}
	head := ""
	if name != "" {
		head = "event:" + name + "\n"
	}
	sorted, _ := json.Marshal(v) // keys in the order of the alphabet
	var indented bytes.Buffer
	_ = json.Indent(&indented, []byte(data), "", "\t")
	return append(out,
		head+"data:"+string(sorted)+"\n\n",
		head+"data: "+strings.ReplaceAll(indented.String(), "\n", "\ndata: ")+"\n\n",
		"data:"+strings.ReplaceAll(indented.String(), "\n", "\r\n: data: x\r\ndata:")+"\r\n"+head+"\r\n",
	)
}

func TestClassifyEventTwin(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, s := range samples {
		for _, event := range variants(s.event) {
			for _, d := range []Dialect{DialectOpenAI, DialectResponses, DialectAnthropic} {
				compared += compareEvent(t, d, []byte(event))
			}
		}
	}
	if compared < 3*5*len(samples) {
		t.Errorf("only %d comparisons", compared)
	}
}

// A field line without a colon has an empty value.
func TestFieldsWithoutColon(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		"event:ping\nevent\ndata:{\"type\":\"error\"}\n\n",
		"event\ndata:{\"type\":\"ping\"}\nid\nretry\n\n",
		"event:ping\ndata:{\"type\":\nevent\ndata:\"error\"}\n\n",
		"data\ndata:{\"type\":\"ping\"}\n\n",
		"data:{\"type\":\ndata\ndata:\"ping\"}\n\n",
		"data:{\"type\":\"ping\"}\ndata\n\n",
	} {
		for _, d := range []Dialect{DialectOpenAI, DialectResponses, DialectAnthropic} {
			if compareEvent(t, d, []byte(event)) != 1 {
				t.Errorf("%q: the twin has no opinion", event)
			}
		}
	}
}

// compareEvent returns 1 if the twin had an opinion.
func compareEvent(t *testing.T, d Dialect, event []byte) int {
	t.Helper()
	want, ok := twinEvent(d, event)
	if !ok {
		return 0
	}
	var got EventInfo
	ClassifyEvent(d, event, &got)
	if show(got) != show(want) {
		t.Errorf("%s: %q, twin %q\n%q", d, show(got), show(want), event)
	}
	return 1
}

// FuzzClassifyEvent compares with the twin on whatever encoding/json reads,
// except where the two are known to read differently: repeated keys within an
// object, keys written with escapes, and deep nesting.
func FuzzClassifyEvent(f *testing.F) {
	for _, s := range samples {
		f.Add(uint8(s.d), []byte(s.event))
	}
	f.Fuzz(func(t *testing.T, d uint8, event []byte) {
		dialect := Dialect(d % 3)
		if len(event) > AbridgeLimit || bytes.Contains(event, []byte(`\u`)) || oddJSON(event) {
			var info EventInfo
			ClassifyEvent(dialect, event, &info)
			return
		}
		compareEvent(t, dialect, event)
	})
}

// oddJSON reports repeated keys, keys with escapes or beyond ASCII (where
// encoding/json replaces broken UTF-8), or nesting beyond ten.
func oddJSON(event []byte) bool {
	_, lines := twinBlock(string(event))
	dec := json.NewDecoder(strings.NewReader(strings.Join(lines, "\n")))
	type level struct {
		keys   map[string]bool
		isKey  bool
		object bool
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		if tok == json.Delim('}') || tok == json.Delim(']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].object {
			top := &stack[n-1]
			if top.isKey = !top.isKey; top.isKey {
				key := fmt.Sprint(tok)
				if top.keys[key] || strings.ContainsAny(key, "\\\"\b\f\n\r\t/") || strings.ContainsFunc(key, func(r rune) bool { return r > 0x7e }) {
					return true
				}
				top.keys[key] = true
				continue
			}
		}
		if tok == json.Delim('{') || tok == json.Delim('[') {
			stack = append(stack, level{keys: map[string]bool{}, object: tok == json.Delim('{')})
		}
		if len(stack) > 10 {
			return true
		}
	}
}
