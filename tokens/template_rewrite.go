package tokens

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The library differs from jinja2 in places that matter to a prompt, and none of them can be set from outside: what
// None and floats print as, how text around tags is trimmed, string methods, filters, `~` and `is` binding loosely,
// loop variables that outlive an iteration. So a template is written anew before it is compiled: literal text becomes
// string literals, and filters, methods and printed values go through functions of ours (template_filters.go).

// ours is the prefix of the names that the rewriting brings in.
const ours = "rj_"

// rewriter turns pieces into source for the library.
type rewriter struct {
	out    strings.Builder
	scopes []loopScope
	loops  int
}

// loopScope is a for block that is open. Assignments inside it end with the iteration in jinja2; the library keeps
// them, so that each is set back to its outer value where an iteration begins.
type loopScope struct {
	resets []string
	id     int
}

// rewriteTemplate returns the source to compile.
func rewriteTemplate(pieces []piece) (string, error) {
	var r rewriter
	for i, p := range pieces {
		if err := r.piece(pieces, i); err != nil {
			return "", fmt.Errorf("cannot use line %d of the template: %w", p.line, err)
		}
	}
	return r.out.String(), nil
}

func (r *rewriter) piece(pieces []piece, i int) error {
	p := &pieces[i]
	switch p.kind {
	case pieceText:
		r.out.WriteString("{{" + quote(p.text) + "}}")
		return nil
	case pieceStatement:
	case pieceOutput:
		text, err := rewriteExpression(p.tokens)
		if err != nil {
			return err
		}
		if printsText(p.tokens) {
			r.out.WriteString("{{" + text + "}}")
		} else {
			r.out.WriteString("{{(" + text + ")|" + ours + "out}}")
		}
		return nil
	}
	if len(p.tokens) == 0 || p.tokens[0].kind != lexName {
		return fmt.Errorf("a statement without a name")
	}
	return r.statement(pieces, i)
}

// printsText reports whether an output is text already whatever the values are: a literal, or `'literal' + ..`
// without a choice. Everything else is printed as Python would.
func printsText(tokens []lexeme) bool {
	if len(tokens) == 0 || tokens[0].kind != lexString {
		return false
	}
	if len(tokens) == 1 {
		return true
	}
	if !tokens[1].op("+") {
		return false
	}
	for _, t := range tokens {
		if t.kind == lexName && slices.Contains(operatorNames, t.text) || t.op("==") || t.op("!=") || t.op("<") || t.op(">") {
			return false
		}
	}
	return true
}

// operatorNames are the words that are operators and no values.
var operatorNames = []string{"and", "or", "not", "in", "is", "if", "else"}

func (r *rewriter) statement(pieces []piece, i int) error {
	p := &pieces[i]
	word, rest := p.tokens[0].text, p.tokens[1:]
	switch word {
	case "if", "elif":
		return r.simple(word, rest)
	case "else", "endif", "endmacro", "endset", "break", "continue", "generation", "endgeneration":
		r.out.WriteString("{% " + word + " %}")
		return nil
	case "endfor":
		if len(r.scopes) == 0 {
			return fmt.Errorf("endfor without for")
		}
		r.scopes = r.scopes[:len(r.scopes)-1]
		r.out.WriteString("{% endfor %}")
		return nil
	case "for":
		return r.loop(pieces, i)
	case "set":
		return r.set(rest)
	case "macro":
		return r.macro(rest)
	}
	return fmt.Errorf("the statement %q is not supported", word)
}

func (r *rewriter) simple(word string, tokens []lexeme) error {
	text, err := rewriteExpression(tokens)
	if err != nil {
		return err
	}
	r.out.WriteString("{% " + word + " " + text + " %}")
	return nil
}

func (r *rewriter) set(tokens []lexeme) error {
	at := slices.IndexFunc(tokens, func(t lexeme) bool { return t.op("=") })
	if at < 0 {
		if len(tokens) != 1 || tokens[0].kind != lexName {
			return fmt.Errorf("this form of set is not supported")
		}
		r.out.WriteString("{% set " + tokens[0].text + " %}")
		return nil
	}
	target := tokens[:at]
	plain := len(target) == 1 && target[0].kind == lexName
	member := len(target) == 3 && target[0].kind == lexName && target[1].op(".") && target[2].kind == lexName
	if !plain && !member {
		return fmt.Errorf("this form of set is not supported")
	}
	text, err := rewriteExpression(tokens[at+1:])
	if err != nil {
		return err
	}
	name := target[0].text
	if member {
		name += "." + target[2].text
	}
	r.out.WriteString("{% set " + name + " = " + text + " %}")
	return nil
}

func (r *rewriter) macro(tokens []lexeme) error {
	if len(tokens) < 3 || tokens[0].kind != lexName || !tokens[1].op("(") || !tokens[len(tokens)-1].op(")") {
		return fmt.Errorf("this form of macro is not supported")
	}
	r.out.WriteString("{% macro " + tokens[0].text + "(")
	for i, t := range tokens[2 : len(tokens)-1] {
		// The library cuts the parameters at commas without looking: only plain values may be defaults.
		simple := t.kind != lexOp || t.op(",") || t.op("=")
		if !simple || t.kind == lexString && strings.ContainsAny(t.text, ",=()") {
			return fmt.Errorf("the default of parameter %d of a macro is not supported", i)
		}
		if t.kind == lexString {
			r.out.WriteString(quote(t.text))
		} else {
			r.out.WriteString(t.text)
		}
	}
	r.out.WriteString(") %}")
	return nil
}

// loop writes a for block's head, and behind it what sets the block's variables back.
func (r *rewriter) loop(pieces []piece, i int) error {
	tokens := pieces[i].tokens[1:]
	at := slices.IndexFunc(tokens, func(t lexeme) bool { return t.name("in") })
	if at < 1 || at > 3 || slices.ContainsFunc(tokens, func(t lexeme) bool { return t.name("recursive") }) {
		return fmt.Errorf("this form of for is not supported")
	}
	var vars []string
	for _, t := range tokens[:at] {
		if t.kind == lexName {
			vars = append(vars, t.text)
		}
	}
	over, cond := tokens[at+1:], []lexeme(nil)
	if k := topLevel(over, "if"); k >= 0 {
		over, cond = over[:k], over[k+1:]
	}
	text, err := rewriteExpression(over)
	if err != nil {
		return err
	}
	if cond != nil {
		more, err := rewriteExpression(cond)
		if err != nil {
			return err
		}
		text += " if " + more
	}
	r.loops++
	scope := loopScope{id: r.loops, resets: assignedIn(pieces[i+1:], vars)}
	r.scopes = append(r.scopes, scope)
	for _, name := range scope.resets {
		r.out.WriteString("{% set " + scope.saved(name) + " = " + name + " %}")
	}
	r.out.WriteString("{% for " + strings.Join(vars, ",") + " in " + text + " %}")
	for _, name := range scope.resets {
		r.out.WriteString("{% set " + name + " = " + scope.saved(name) + " %}")
	}
	return nil
}

func (s *loopScope) saved(name string) string { return ours + strconv.Itoa(s.id) + "_" + name }

// topLevel finds a word outside of all brackets.
func topLevel(tokens []lexeme, word string) int {
	depth := 0
	for i, t := range tokens {
		switch {
		case t.op("("), t.op("["), t.op("{"):
			depth++
		case t.op(")"), t.op("]"), t.op("}"):
			depth--
		case depth == 0 && t.name(word):
			return i
		}
	}
	return -1
}

// assignedIn lists the variables that the body of a for block assigns and that must be set back: those of inner loops
// and macros are theirs, and one whose first mention is its assignment, outside of any condition, cannot be seen.
func assignedIn(body []piece, vars []string) []string {
	loops, macros, conds := 0, 0, 0
	seen := map[string]bool{}
	var names []string
	for _, p := range body {
		if p.kind == pieceText {
			continue
		}
		tokens := p.tokens
		target := ""
		if p.kind == pieceStatement {
			switch word := tokens[0].text; word {
			case "for":
				loops++
			case "endfor":
				loops--
			case "macro":
				macros++
			case "endmacro":
				macros--
			case "if":
				conds++
			case "endif":
				conds--
			case "set":
				if loops == 0 && macros == 0 && len(tokens) > 1 && (len(tokens) == 2 || tokens[2].op("=")) {
					target = tokens[1].text
					tokens = tokens[min(3, len(tokens)):]
				}
			}
			if loops < 0 {
				break
			}
		}
		for _, t := range tokens {
			if t.kind == lexName {
				seen[t.text] = true
			}
		}
		if target == "" || slices.Contains(vars, target) || slices.Contains(names, target) {
			continue
		}
		if seen[target] || conds > 0 {
			names = append(names, target)
		}
		seen[target] = true
	}
	return names
}

// quote writes a string literal that the library reads as s.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\t", `\t`).Replace(s) + "'"
}
