package tokens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"
)

// TestSnippets compares small templates with jinja2's own rendering: each is about one thing in which the library,
// left alone, may differ.
func TestSnippets(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/chat/snippets.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Values json.RawMessage
		Rows   []struct {
			Template, Error string
			Text            *string
		}
		Floats [][2]string
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	vars, odd, ok := loads(string(file.Values))
	if !ok || odd != "" {
		t.Fatalf("the values cannot be read: %q", odd)
	}
	rendered := 0
	for _, row := range file.Rows {
		got, err := renderSnippet(row.Template, vars)
		switch {
		case row.Text == nil && err == nil:
			if !libraryIsLax[row.Template] {
				t.Errorf("%q: got %q, jinja2 raises %s", row.Template, got, row.Error)
			}
		case row.Text != nil && err != nil:
			if refused[row.Template] == "" || !strings.Contains(err.Error(), refused[row.Template]) {
				t.Errorf("%q: %v, jinja2 gives %q", row.Template, err, *row.Text)
			}
		case row.Text != nil && got != *row.Text && got != differs[row.Template]:
			t.Errorf("%q: got %q, jinja2 gives %q", row.Template, got, *row.Text)
		default:
			rendered++
		}
	}
	if rendered < len(file.Rows)*9/10 {
		t.Errorf("only %d of %d snippets are as in jinja2", rendered, len(file.Rows))
	}
	for _, f := range file.Floats {
		v, err := strconv.ParseFloat(f[0], 64)
		if got := string(appendPyFloat(nil, v)); err != nil || got != f[1] {
			t.Errorf("repr of %s: got %s, Python gives %s", f[0], got, f[1])
		}
	}
}

// libraryIsLax lists what jinja2 refuses and the library renders: such requests fail at the engine whatever we say.
var libraryIsLax = map[string]bool{"{{ missing.x }}": true, "{{ n + 1 }}{{ n * 2 }}{{ n - 5 }}{{ 7 % 3 }}{{ 7 // 2 }}{{ 1 + 2 ~ 'x' }}": true}

// differs lists what the library cannot be brought to do as jinja2, and what it gives: a tuple that is printed is a
// list to it. No template that is known prints one.
var differs = map[string]string{"{{ (1, 2) }}": "[1, 2]"}

// refused lists what we do not do though jinja2 does, with the reason.
var refused = map[string]string{"{{ '3' | int }}{{ n | int }}": "template feature"}

func renderSnippet(source string, vars jinja.Value) (string, error) {
	v, err := newVariant(source)
	if err != nil {
		return "", err
	}
	tpl := &Template{}
	return tpl.render(v, vars.AsDict().Data)
}

func TestTemplateRefused(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"{{ x":                                     "no end",
		"{# x":                                     "no end",
		"{% include 'x' %}":                        "include",
		"{% extends 'x' %}":                        "extends",
		"{% for x in y recursive %}{% endfor %}":   "for",
		"{% for a, b, c in y %}{% endfor %}":       "for",
		"{% set a, b = 1, 2 %}":                    "set",
		"{{ x | groupby('a') }}":                   "groupby",
		"{{ x is divisibleby 3 }}":                 "divisibleby",
		"{{ '%s' % x }}":                           "formatting",
		"{{ 2 ** 3 }}":                             "**",
		"{{ rj_out }}":                             "taken",
		"{{ 'a' 'b' }}":                            "side by side",
		"{{ \"\\N{BULLET}\" }}":                    "escape",
		"{% if x %}":                               "compile",
		"{{ a ) }}":                                "no end",
		"line\n{{ x | nosuch }}":                   "line 2",
		"{% macro f(a=(1,2)) %}{% endmacro %}":     "default",
		"{{ 1_000 }}":                              "number",
		"{{ a ? b }}":                              "character",
		"{% raw %} never closed":                   "raw",
		"{% endfor %}":                             "endfor",
		"{% call f() %}{% endcall %}":              "call",
		"{% filter upper %}a{% endfilter %}":       "filter",
		"{% set x | trim %} a {% endset %}":        "set",
		"{{ \"\\ud800\" }}":                        "character",
		"{{ '\\x4' }}":                             "character",
		"{% %}":                                    "name",
		"{% autoescape true %}{% endautoescape %}": "autoescape",
	} {
		if _, err := NewTemplate(source, TemplateOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", source, err, want)
		}
	}
}

// TestTemplateCutAnywhere: a template that is cut short is refused or renders, and never panics.
func TestTemplateCutAnywhere(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../sim/model/chat_template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for i := range source {
		if v, err := newVariant(string(source[:i])); err == nil && v == nil {
			t.Fatalf("cut at %d: neither a template nor an error", i)
		}
	}
}

func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"doubling": "{% set ns = namespace(a='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
		"replace":  "{% set ns = namespace(a='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.a = ns.a.replace('x', 'xx') %}{% endfor %}{{ ns.a }}",
		"range":    "{% for i in range(100000000) %}{% endfor %}",
	} {
		start := time.Now()
		vars, _, _ := loads("{}")
		if out, err := renderSnippet(source, vars); err == nil {
			t.Errorf("%s: rendered %d bytes", name, len(out))
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestContentFormat(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		"{% for m in messages %}{{ m.content }}{% endfor %}":                                                                false,
		"{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}":                               true,
		"{% for m in messages %}{% for c in m['content'] %}{{ c.text }}{% endfor %}{% endfor %}":                            true,
		"{% for m in messages[1:] %}{% for c in m.content | list %}{{ c }}{% endfor %}{% endfor %}":                         true,
		"{% set loop_messages = messages %}{% for m in loop_messages %}{% for c in m.content %}{% endfor %}{% endfor %}":    true,
		"{% for m in other %}{% for c in m.content %}{% endfor %}{% endfor %}":                                              false,
		"{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}":                true,
		"{% macro r(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}":   true,
		"{% macro r(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(x=m.content) }}{% endfor %}": true,
		"{% macro r(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.tools) }}{% endfor %}":     false,
		"{% macro r(content) %}{% for c in content %}{% endfor %}{% endmacro %}{{ r(1) }}":                                  false,
	} {
		pieces, err := lexTemplate(source)
		if err != nil {
			t.Fatal(err)
		}
		if got := wantsParts(pieces); got != want {
			t.Errorf("%q: parts %t, vLLM finds %t", source, got, want)
		}
	}
}

func TestLoadTemplate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		file  string // an explicit template
		want  string // rendering of one user message "x", or of an error
	}{
		{name: "jinja file first", files: map[string]string{"chat_template.jinja": "J{{ bos_token }}", "tokenizer_config.json": `{"chat_template":"C","bos_token":"<b>"}`}, want: "J<b>"},
		{name: "config", files: map[string]string{"tokenizer_config.json": `{"chat_template":"C{{ eos_token }}{{ bos_token }}","eos_token":{"content":"<e>"},"bos_token":null}`}, want: "C<e>"},
		{name: "named list", files: map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]}`}, want: "D"},
		{name: "list without default", files: map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":"T"}]}`}, want: "none named default"},
		{name: "processor's file", files: map[string]string{"chat_template.json": `{"chat_template":"P"}`, "tokenizer_config.json": `{"chat_template":"C"}`}, want: "P"},
		{name: "legacy special tokens", files: map[string]string{"chat_template.jinja": "{{ bos_token }}", "special_tokens_map.json": `{"bos_token":"<l>"}`}, want: "<l>"},
		{name: "explicit", files: map[string]string{"chat_template.jinja": "J", "mine.txt": "M{{ bos_token }}", "tokenizer_config.json": `{"bos_token":"<b>"}`}, file: "mine.txt", want: "M<b>"},
		{name: "none", files: map[string]string{"tokenizer_config.json": `{}`}, want: ErrNoTemplate.Error()},
		{name: "absent explicit", files: map[string]string{}, file: "nosuch", want: "cannot load the chat template"},
		{name: "bad config", files: map[string]string{"tokenizer_config.json": `{`}, want: "tokenizer_config.json"},
		{name: "bad template", files: map[string]string{"chat_template.jinja": "{{ x"}, want: "no end"},
		{name: "own renderer", files: map[string]string{"chat_template.jinja": "J", "config.json": `{"model_type":"gpt_oss"}`}, want: "model renderer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file := ""
			if tt.file != "" {
				file = filepath.Join(dir, tt.file)
			}
			tpl, err := LoadTemplate(filepath.Join(dir, "tokenizer.json"), file, nil)
			if err != nil {
				tpl, err = LoadTemplate(dir, file, nil)
			}
			var got string
			if err != nil {
				got = err.Error()
			} else {
				out, note := renderBody(tpl, []byte(`{"messages":[{"role":"user","content":"x"}]}`))
				got = out + note
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestClock: a prompt that holds the date is known only to who knows the engines' date.
func TestClock(t *testing.T) {
	t.Parallel()
	const source = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}"
	for _, tt := range []struct {
		now  func() time.Time
		want string
	}{{nil, "clock"}, {goldenNow, "30 Nov 2026"}} {
		tpl, err := NewTemplate(source, TemplateOptions{Now: tt.now})
		if err != nil {
			t.Fatal(err)
		}
		if out, note := renderBody(tpl, []byte(`{"messages":[{"role":"user","content":"x"}]}`)); out+note != tt.want {
			t.Errorf("got %q, want %q", out+note, tt.want)
		}
	}
}
