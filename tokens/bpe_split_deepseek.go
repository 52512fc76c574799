package tokens

// partDeepSeek cuts text as the first two Split steps of DeepSeek-V3 do: up to three digits, runs of Chinese characters
// and kana, and what lies between.
func partDeepSeek(t *classTable, s string, i int) int {
	c, n := t.at(s, i)
	if c&classNumber != 0 {
		return numbers(t, s, i+n, 2)
	}
	inside := cjkAt(s, i)
	for i += n; i < len(s); i += n {
		c, n = t.at(s, i)
		if c&classNumber != 0 || cjkAt(s, i) != inside {
			break
		}
	}
	return i
}

// cjkAt says whether a character of [一-龥぀-ゟ゠-ヿ] (U+4E00-9FA5, U+3040-30FF) stands at i.
func cjkAt(s string, i int) bool {
	if s[i] < 0xe3 || s[i] > 0xe9 || i+3 > len(s) {
		return false // these characters have three bytes, the first of which is E3 to E9
	}
	r := rune(s[i]&0x0f)<<12 | rune(s[i+1]&0x3f)<<6 | rune(s[i+2]&0x3f)
	return r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff
}

// nextDeepSeek scans the third expression. It does not cover every character (controls, for instance): what lies
// between two matches is a piece of its own.
func nextDeepSeek(t *classTable, s string, i int) int {
	if end := matchDeepSeek(t, s, i); end > 0 {
		return end
	}
	for i < len(s) {
		_, n := t.at(s, i)
		i += n
		if i < len(s) && matchDeepSeek(t, s, i) > 0 {
			break
		}
	}
	return i
}

// matchDeepSeek returns the end of a match that begins at i, or 0.
func matchDeepSeek(t *classTable, s string, i int) int {
	const word = classLetter | classMark
	c, n := t.at(s, i)
	if c&word != 0 {
		return t.skip(s, i+n, word)
	}
	if c&classSymbol != 0 && s[i] < 0x80 && asciiLetterAt(s, i+1) {
		for i += 2; asciiLetterAt(s, i); i++ {
		}
		return i
	}
	if c&(classNewline|classSymbol) == 0 {
		if after, m := t.at(s, i+n); after&word != 0 {
			return t.skip(s, i+n+m, word)
		}
	}
	at := i
	if s[i] == ' ' {
		at++
	}
	if first, m := t.at(s, at); first&classSymbol != 0 {
		at = t.skip(s, at+m, classSymbol)
		return t.skip(s, at, classNewline)
	}
	if c&classSpace != 0 {
		return t.space(s, i, true)
	}
	return 0
}

func asciiLetterAt(s string, i int) bool {
	return i < len(s) && 'a' <= s[i]|0x20 && s[i]|0x20 <= 'z'
}
