package tokens

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ardanlabs/jinja"
)

// Template is a model's chat template, ready to render. It is immutable and safe for concurrent use.
//
// Templates come from the operator's files only, never from a request: the library has no limit of its own on
// recursion, and a macro that calls itself for ever would end the process.
type Template struct {
	plain, withTools *variant // the same one unless the model has a template of its own for tools
	special          values   // bos_token and the like
	source           string
	refusal          string // why no rendering can be trusted, empty if one can

	// mergeSystem and disabledEffort are what vLLM finds out about a template for /v1/messages by rendering.
	mergeSystem    bool
	disabledEffort string

	now func() time.Time
}

// variant is one compiled template.
type variant struct {
	source    string
	compiled  *jinja.Template
	parts     bool     // content stays a list of parts ("openai" to vLLM) instead of one string
	developer bool     // the template knows the role
	thinking  bool     // the template reads `thinking`, which transformers fills from 5.2x on only
	markers   []string // texts that the template looks for inside messages
	stable    [shapes]bool
	code      string    // what was compiled
	states    sync.Pool // *renderState
}

// TemplateOptions says what a template needs to know beside its text.
type TemplateOptions struct {
	// ToolUse is a second template that is used when a request has tools (tokenizer_config.json's list form).
	ToolUse string
	// Special maps the names of special tokens (bos_token ..) to their text.
	Special map[string]string
	// ModelType is config.json's model_type: for some types vLLM renders without the template.
	ModelType string
	// Now is the engines' local time, for templates that print the date. Nil: such renderings are refused (note "clock").
	Now func() time.Time
}

// NewTemplate compiles a template and finds out by rendering probes what it does with system messages, with reasoning
// effort, and whether what it makes of old messages stays when new ones are added. The error says what in the
// template is not supported; nothing of it may then be used.
func NewTemplate(source string, o TemplateOptions) (*Template, error) {
	t := &Template{source: source, special: values{}, refusal: ownRenderer(o.ModelType), now: o.Now}
	for name, token := range o.Special {
		t.special[name] = jinja.NewString(token)
	}
	var err error
	if t.plain, err = newVariant(source); err != nil {
		return nil, err
	}
	t.withTools = t.plain
	if o.ToolUse != "" && o.ToolUse != source {
		if t.withTools, err = newVariant(o.ToolUse); err != nil {
			return nil, err
		}
	}
	t.probe()
	return t, nil
}

// ownRenderer names the model types that vLLM 0.32 renders in code of its own instead of by the template
// (renderers/registry.py; gpt_oss goes through Harmony in online_renderer.py).
func ownRenderer(modelType string) string {
	for _, prefix := range [...]string{"gpt_oss", "deepseek_v32", "deepseek_v4", "kimi_k3", "kimi_audio", "cohere", "inkling"} {
		if strings.HasPrefix(modelType, prefix) {
			return "model renderer"
		}
	}
	return ""
}

func newVariant(source string) (v *variant, err error) {
	// The library may panic on sources that it does not expect; a template is refused then.
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("cannot compile the chat template: the library panics: %v", p)
		}
	}()
	pieces, err := lexTemplate(source)
	if err != nil {
		return nil, err
	}
	rewritten, err := rewriteTemplate(pieces)
	if err != nil {
		return nil, err
	}
	compiled, err := jinja.Compile(rewritten)
	if err != nil {
		return nil, fmt.Errorf("cannot compile the chat template: %w", err)
	}
	v = &variant{
		source: source, compiled: compiled, code: rewritten, parts: wantsParts(pieces),
		developer: strings.Contains(source, `"developer"`) || strings.Contains(source, `'developer'`),
		thinking:  mentions(pieces, "thinking"),
		markers:   markersOf(pieces),
	}
	v.states.New = func() any { return newRenderState(v) }
	return v, nil
}

// mentions reports whether a template reads a member of that name.
func mentions(pieces []piece, name string) bool {
	for _, p := range pieces {
		for i, t := range p.tokens {
			if t.text == name && (t.kind == lexString || t.kind == lexName && i > 0 && p.tokens[i-1].op(".")) {
				return true
			}
		}
	}
	return false
}

// markersOf lists the literals that a template looks for in text: what stands beside `in`, in split, startswith and
// the like. A message that holds one may be rendered by its place in the conversation.
func markersOf(pieces []piece) []string {
	var list []string
	for _, p := range pieces {
		for i, t := range p.tokens {
			if t.kind != lexString || len(strings.TrimSpace(t.text)) < 2 {
				continue
			}
			before := i > 0 && (p.tokens[i-1].name("in") || p.tokens[i-1].op("("))
			after := i+1 < len(p.tokens) && (p.tokens[i+1].name("in") || p.tokens[i+1].name("not"))
			if (before || after) && !isRoleWord(t.text) {
				list = append(list, t.text)
			}
		}
	}
	return list
}

// isRoleWord spares the names of members and roles, which templates look for in mappings.
func isRoleWord(s string) bool {
	return isIdentifier(s)
}

// variant chooses as transformers does: the template for tools as soon as there are any.
func (t *Template) variant(tools bool) *variant {
	if tools {
		return t.withTools
	}
	return t.plain
}

// renderState is what one rendering needs; it is reused. The library copies vars for each rendering, so that only
// the functions that the template mentions are in it.
type renderState struct {
	t       *Template
	vars    values
	filters map[string]filter // ourFilters; filters that apply others find them here
	scratch []byte
	left    int // bytes that may still be made
	// usedClock says that the template asked for the date.
	usedClock bool
}

// maxRendered bounds the bytes that filters and the whole rendering may make: no prompt comes near it, and a template
// that doubles a string in a loop ends there.
const maxRendered = 64 << 20

// maxRange is jinja2's own limit in a sandbox (sandbox.MAX_RANGE).
const maxRange = 100000

func newRenderState(v *variant) *renderState {
	s := &renderState{vars: values{}, filters: ourFilters}
	define := func(name string, f filter) {
		if strings.Contains(v.code, name) {
			s.vars[name] = s.function(f)
		}
	}
	for name, f := range ourFilters {
		define(ours+name, f)
	}
	for name, f := range ourMethods {
		define(ours+"m_"+name, f)
	}
	define("raise_exception", func(*renderState, []jinja.Value, values) (jinja.Value, error) {
		return jinja.Undefined(), errRefused
	})
	define("strftime_now", strftimeNow)
	define("range", rangeOf)
	define("namespace", namespaceOf)
	for _, name := range [...]string{"dict", "cycler", "joiner", "lipsum"} {
		define(name, methodUnsupported)
	}
	return s
}

func (s *renderState) function(f filter) jinja.Value {
	return jinja.NewCallable("function", func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
		if s.left--; s.left < 0 {
			return jinja.Undefined(), errTooMuch
		}
		return f(s, args, named)
	})
}

// spend takes n bytes off what may be made.
func (s *renderState) spend(n int) error {
	if s.left -= n; s.left < 0 {
		return errTooMuch
	}
	return nil
}

// render runs a template with the variables given; they may hide special tokens and nothing else (see reserved).
func (t *Template) render(v *variant, vars values) (out string, err error) {
	s := v.states.Get().(*renderState)
	s.t, s.left, s.usedClock = t, maxRendered, false
	functions := len(s.vars)
	for name, token := range t.special {
		s.vars[name] = token
	}
	var hidden values
	for name, value := range vars {
		if old, ok := s.vars[name]; ok && t.special[name].IsUndefined() {
			if hidden == nil {
				hidden = values{}
			}
			hidden[name] = old // only the probe of a bare environment hides functions
		}
		s.vars[name] = value
	}
	// The library indexes arguments unchecked and panics on values that it does not expect. This is the one place
	// where a panic is contained: a template that panics is one that cannot be rendered.
	defer func() {
		if p := recover(); p != nil {
			out, err = "", errFailed
		}
		for name := range vars {
			delete(s.vars, name)
		}
		for name := range t.special {
			delete(s.vars, name)
		}
		for name, value := range hidden {
			s.vars[name] = value
		}
		if s.t = nil; len(s.vars) == functions {
			v.states.Put(s)
		}
	}()
	out, err = v.compiled.RenderValues(s.vars)
	if err == nil && s.usedClock && t.now == nil {
		err = errClock
	}
	return out, err
}

// noteOf turns an error of a rendering into its note.
func noteOf(err error) string {
	for _, known := range [...]error{errRefused, errUnsupported, errClock, errTooMuch} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return errFailed.Error()
}

func strftimeNow(s *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	format, ok := text(args, 0)
	if !ok {
		return jinja.Undefined(), errFailed
	}
	s.usedClock = true
	at := time.Unix(0, 0).UTC()
	if s.t.now != nil {
		at = s.t.now()
	}
	var b []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b = append(b, format[i])
			continue
		}
		i++
		at, layout := at, map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'H': "15", 'M': "04"}[format[i]]
		if layout == "" {
			return jinja.Undefined(), errUnsupported
		}
		b = at.AppendFormat(b, layout)
	}
	return jinja.NewString(string(b)), nil
}

func rangeOf(_ *renderState, args []jinja.Value, _ values) (jinja.Value, error) {
	bounds := [3]int64{0, 0, 1}
	if len(args) < 1 || len(args) > 3 {
		return jinja.Undefined(), errFailed
	}
	for i, v := range args {
		if !v.IsInt() {
			return jinja.Undefined(), errFailed
		}
		bounds[i] = v.AsInt()
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return jinja.Undefined(), errFailed
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) >= maxRange {
			return jinja.Undefined(), errFailed
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}

func namespaceOf(_ *renderState, args []jinja.Value, named values) (jinja.Value, error) {
	if len(args) > 0 {
		return jinja.Undefined(), errUnsupported
	}
	ns := jinja.NewDict()
	for name, v := range named {
		ns.AsDict().Set(name, v)
	}
	return ns, nil
}
