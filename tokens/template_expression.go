package tokens

import (
	"fmt"
	"slices"
	"strings"
)

// rewriteExpression writes an expression anew so that the library means by it what jinja2 means.
func rewriteExpression(tokens []lexeme) (string, error) {
	e := expressionRewriter{in: tokens}
	if err := e.run(); err != nil {
		return "", err
	}
	return e.text(), nil
}

type expressionRewriter struct {
	in  []lexeme
	out []lexeme
	// concat marks bracket depths whose next operand ends a `~`.
	concat []bool
	// closing lists the tokens behind which a bracket of ours closes.
	closing []int
}

func (e *expressionRewriter) emit(kind lexemeKind, text string) {
	e.out = append(e.out, lexeme{kind, text})
}

// filter appends `|rj_name`.
func (e *expressionRewriter) filter(name string) {
	e.emit(lexOp, "|")
	e.emit(lexName, ours+name)
}

// peek returns the token k places ahead, or none.
func (e *expressionRewriter) peek(i int) lexeme {
	if i < len(e.in) {
		return e.in[i]
	}
	return lexeme{kind: lexOp}
}

func (e *expressionRewriter) run() error {
	e.concat = []bool{false}
	for i := 0; i < len(e.in); i++ {
		t := e.in[i]
		if e.endsOperand(t) {
			e.endConcat()
		}
		next, err := e.token(i, t)
		if err != nil {
			return err
		}
		i = next
		if slices.Contains(e.closing, i) {
			e.emit(lexOp, ")")
		}
	}
	e.endConcat()
	return nil
}

// endsOperand reports whether t ends the right side of a `~`, which binds tighter than + in jinja2.
func (e *expressionRewriter) endsOperand(t lexeme) bool {
	if t.kind == lexName {
		return slices.Contains(operatorNames, t.text)
	}
	return t.kind == lexOp && strings.Contains(" ~ + - == != < > <= >= , : = ) ] } ", " "+t.text+" ")
}

func (e *expressionRewriter) endConcat() {
	if top := len(e.concat) - 1; e.concat[top] {
		e.concat[top] = false
		e.filter("text")
	}
}

// token rewrites the token at i and returns the index of the last one it used.
func (e *expressionRewriter) token(i int, t lexeme) (int, error) {
	if t.kind == lexString {
		if e.peek(i+1).kind == lexString {
			return 0, fmt.Errorf("string literals side by side are not supported")
		}
		e.out = append(e.out, t)
		return i, nil
	}
	if t.kind == lexName {
		return e.word(i, t)
	}
	switch t.text {
	case "|":
		return e.pipe(i)
	case ".":
		return e.dot(i)
	case "[":
		if next, done := e.subscript(i); done {
			return next, nil
		}
		e.concat = append(e.concat, false)
	case "(", "{":
		e.concat = append(e.concat, false)
	case ")", "]", "}":
		if len(e.concat) < 2 {
			return 0, fmt.Errorf("a bracket closes that was not open")
		}
		e.concat = e.concat[:len(e.concat)-1]
	case "~":
		e.filter("text")
		e.out = append(e.out, t)
		e.concat[len(e.concat)-1] = true
		return i, nil
	case "%":
		if i > 0 && e.in[i-1].kind == lexString {
			return 0, fmt.Errorf("formatting with %% is not supported")
		}
	case "*", "/", "//":
		if e.concat[len(e.concat)-1] {
			return 0, fmt.Errorf("arithmetic beside ~ is not supported")
		}
	case "**":
		return 0, fmt.Errorf("the operator ** is not supported")
	}
	e.out = append(e.out, t)
	return i, nil
}

func (e *expressionRewriter) word(i int, t lexeme) (int, error) {
	if strings.HasPrefix(t.text, ours) {
		return 0, fmt.Errorf("the name %s is taken", t.text)
	}
	e.out = append(e.out, t)
	if t.text != "is" {
		return i, nil
	}
	i++
	if e.peek(i).name("not") {
		e.emit(lexName, "not")
		i++
	}
	test := e.peek(i)
	if test.kind != lexName || !slices.Contains(knownTests, test.text) {
		return 0, fmt.Errorf("the test %q is not supported", test.text)
	}
	if test.text == "sequence" {
		// To jinja2 strings and mappings are sequences; the library's `iterable` is just that set.
		test.text = "iterable"
	}
	e.out = append(e.out, test)
	if !slices.Contains(testsWithArgument, test.text) || e.peek(i+1).op("(") {
		return i, nil
	}
	arg := e.peek(i + 1)
	if end := matching(e.in, i+1); arg.op("[") && end > 0 {
		e.emit(lexOp, "(")
		e.closing = append(e.closing, end)
		return i, nil
	}
	if arg.kind == lexOp {
		return 0, fmt.Errorf("this argument of the test %q is not supported", test.text)
	}
	e.emit(lexOp, "(")
	e.out = append(e.out, arg)
	e.emit(lexOp, ")")
	return i + 1, nil
}

var (
	knownTests = []string{"defined", "undefined", "none", "boolean", "integer", "float", "number", "string", "mapping", "iterable",
		"sequence", "true", "false", "eq", "equalto", "ne", "in", "odd", "even"}
	testsWithArgument = []string{"eq", "equalto", "ne", "in"}
)

func (e *expressionRewriter) pipe(i int) (int, error) {
	name := e.peek(i + 1)
	if name.kind != lexName || !isOurFilter(name.text) {
		return 0, fmt.Errorf("the filter %q is not supported", name.text)
	}
	e.filter(name.text)
	return i + 1, nil
}

// dot turns a method call into a filter with the same arguments.
func (e *expressionRewriter) dot(i int) (int, error) {
	name := e.peek(i + 1)
	if name.kind != lexName && name.kind != lexNumber {
		return 0, fmt.Errorf("nothing behind a dot")
	}
	if e.peek(i+2).op("(") && isMethod(name.text) {
		e.filter("m_" + name.text)
		return i + 1, nil
	}
	if name.kind == lexNumber || isMethod(name.text) {
		e.member(name.text)
		return i + 1, nil
	}
	e.emit(lexOp, ".")
	e.out = append(e.out, name)
	return i + 1, nil
}

// member reads a member through our own function, where the library would take a method for it.
func (e *expressionRewriter) member(name string) {
	e.filter("get")
	e.emit(lexOp, "(")
	e.emit(lexString, name)
	e.emit(lexOp, ")")
}

// subscript rewrites x['name'], which the library takes for x[0] where x is text.
func (e *expressionRewriter) subscript(i int) (int, bool) {
	key := e.peek(i + 1)
	if key.kind != lexString || !e.peek(i+2).op("]") || i == 0 || !endsValue(e.in[i-1]) {
		return 0, false
	}
	if !isIdentifier(key.text) || isMethod(key.text) {
		e.member(key.text)
	} else {
		e.emit(lexOp, ".")
		e.emit(lexName, key.text)
	}
	return i + 2, true
}

// endsValue reports whether a value may end with t, so that a bracket behind it is a subscript.
func endsValue(t lexeme) bool {
	if t.kind == lexName {
		return !slices.Contains(operatorNames, t.text)
	}
	return t.kind == lexString || t.op(")") || t.op("]") || t.op("}")
}

func isIdentifier(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if !isWord(s[i]) {
			return false
		}
	}
	return true
}

// text writes the tokens so that no two run together and no bracket looks like the end of a tag.
func (e *expressionRewriter) text() string {
	var b strings.Builder
	for i, t := range e.out {
		if i > 0 && (t.kind == lexName || t.kind == lexNumber || t.text == "}" || t.text == "%" || t.text == "-") {
			b.WriteByte(' ')
		}
		if t.kind == lexString {
			b.WriteString(quote(t.text))
		} else {
			b.WriteString(t.text)
		}
		if t.kind == lexName || t.op("{") || t.op("-") {
			b.WriteByte(' ')
		}
	}
	return b.String()
}
