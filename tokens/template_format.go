package tokens

import "slices"

// wantsParts reports whether vLLM keeps a message's content as a list of parts for this template ("openai") or joins
// it ("string"). vLLM 0.32 decides by looking for a loop over the content (renderers/hf.py, content format
// detection); what follows answers as that does, including where it is fooled.
func wantsParts(pieces []piece) bool {
	lists := sameAs(pieces, "messages")
	var messages []string
	for _, f := range loopsOf(pieces) {
		for _, name := range lists {
			if len(f.vars) == 1 && accesses(f.over, name, "") {
				messages = append(messages, f.vars[0])
				break
			}
		}
	}
	bound := boundContents(pieces, messages)
	for _, f := range loopsOf(pieces) {
		if slices.ContainsFunc(messages, func(name string) bool { return accesses(f.over, name, "content") }) {
			return true
		}
		if len(f.over) != 1 || f.over[0].kind != lexName {
			continue
		}
		name := f.over[0].text
		if f.macro != "" && slices.Contains(bound[f.macro], name) || f.macro == "" && name == "content" {
			return true
		}
	}
	return false
}

// loopOf is a for block: its variables, what it runs over and the macro that it stands in.
type loopOf struct {
	vars  []string
	over  []lexeme
	macro string
}

func loopsOf(pieces []piece) []loopOf {
	var list []loopOf
	macro := ""
	for _, p := range pieces {
		if p.kind != pieceStatement || len(p.tokens) == 0 {
			continue
		}
		switch p.tokens[0].text {
		case "macro":
			if len(p.tokens) > 1 {
				macro = p.tokens[1].text
			}
		case "endmacro":
			macro = ""
		case "for":
			at := slices.IndexFunc(p.tokens, func(t lexeme) bool { return t.name("in") })
			if at < 0 {
				continue
			}
			f := loopOf{macro: macro, over: p.tokens[at+1:]}
			for _, t := range p.tokens[1:at] {
				if t.kind == lexName {
					f.vars = append(f.vars, t.text)
				}
			}
			if k := topLevel(f.over, "if"); k >= 0 {
				f.over = f.over[:k]
			}
			list = append(list, f)
		}
	}
	return list
}

// sameAs lists name and the variables that are set from it or a part of it.
func sameAs(pieces []piece, name string) []string {
	names := []string{name}
	for i := 0; i < len(names); i++ {
		for _, p := range pieces {
			if p.kind != pieceStatement || len(p.tokens) < 4 || !p.tokens[0].name("set") || !p.tokens[2].op("=") {
				continue
			}
			if target := p.tokens[1].text; accesses(p.tokens[3:], names[i], "") && !slices.Contains(names, target) {
				names = append(names, target)
			}
		}
	}
	return names
}

// accesses reports whether an expression is nothing but the variable (its member, if one is named) with filters,
// slices and tests behind it.
func accesses(tokens []lexeme, variable, member string) bool {
	for len(tokens) > 2 && tokens[0].op("(") && matching(tokens, 0) == len(tokens)-1 {
		tokens = tokens[1 : len(tokens)-1]
	}
	if len(tokens) == 0 || !tokens[0].name(variable) {
		return false
	}
	i := 1
	if member != "" {
		switch {
		case i+1 < len(tokens) && tokens[i].op(".") && tokens[i+1].name(member):
			i += 2
		case i+2 < len(tokens) && tokens[i].op("[") && tokens[i+1].kind == lexString && tokens[i+1].text == member && tokens[i+2].op("]"):
			i += 3
		default:
			return false
		}
	}
	for i < len(tokens) {
		switch t := tokens[i]; {
		case t.op("["):
			end := matching(tokens, i)
			if end < 0 || !slices.ContainsFunc(tokens[i:end], func(t lexeme) bool { return t.op(":") }) {
				return false
			}
			i = end + 1
		case t.op("|") && i+1 < len(tokens), t.name("is") && i+1 < len(tokens) && !tokens[i+1].name("not"):
			i += 2
			if i < len(tokens) && tokens[i].op("(") {
				if i = matching(tokens, i) + 1; i == 0 {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// matching finds the bracket that closes the one at i.
func matching(tokens []lexeme, i int) int {
	depth := 0
	for ; i < len(tokens); i++ {
		switch t := tokens[i]; {
		case t.op("("), t.op("["), t.op("{"):
			depth++
		case t.op(")"), t.op("]"), t.op("}"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// boundContents lists, for each macro, the parameters that some call gives a message's content.
func boundContents(pieces []piece, messages []string) map[string][]string {
	params := map[string][]string{}
	for _, p := range pieces {
		if p.kind == pieceStatement && len(p.tokens) > 2 && p.tokens[0].name("macro") {
			for _, arg := range arguments(p.tokens, 2) {
				params[p.tokens[1].text] = append(params[p.tokens[1].text], arg[0].text)
			}
		}
	}
	bound := map[string][]string{}
	for _, p := range pieces {
		for i, t := range p.tokens {
			names := params[t.text]
			if t.kind != lexName || names == nil || i+1 >= len(p.tokens) || !p.tokens[i+1].op("(") || i > 0 && p.tokens[i-1].name("macro") {
				continue
			}
			for k, arg := range arguments(p.tokens, i+1) {
				name := ""
				if len(arg) > 2 && arg[1].op("=") {
					name, arg = arg[0].text, arg[2:]
				} else if k < len(names) {
					name = names[k]
				}
				if slices.ContainsFunc(messages, func(m string) bool { return accesses(arg, m, "content") }) {
					bound[t.text] = append(bound[t.text], name)
				}
			}
		}
	}
	return bound
}

// arguments cuts what stands between the bracket at i and its end at the commas.
func arguments(tokens []lexeme, i int) [][]lexeme {
	end := matching(tokens, i)
	if end < 0 {
		return nil
	}
	var list [][]lexeme
	depth, from := 0, i+1
	for k := i + 1; k <= end; k++ {
		switch t := tokens[k]; {
		case t.op("("), t.op("["), t.op("{"):
			depth++
		case k < end && (t.op(")") || t.op("]") || t.op("}")):
			depth--
		case k == end, depth == 0 && t.op(","):
			if k > from {
				list = append(list, tokens[from:k])
			}
			from = k + 1
		}
	}
	return list
}
