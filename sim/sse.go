package sim

import (
	"strconv"
	"unicode/utf8"
)

// doneEvent ends OpenAI's streams; Responses and Messages have none.
var doneEvent = []byte("data: [DONE]\n\n")

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string the way pydantic writes it: only
// quotes, backslashes and control characters are escaped, everything else is
// UTF-8 as it is.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// appendStringOrNull appends a JSON string, or null for "".
func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// appendIDs appends token ids as a JSON array.
func appendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// appendIDsOrNull appends token ids if they were asked for, else null.
func appendIDsOrNull(dst []byte, ids []uint32, wanted bool) []byte {
	if !wanted {
		return append(dst, "null"...)
	}
	return appendIDs(dst, ids)
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// appendCountOrNull appends n, or null if it is negative.
func appendCountOrNull(dst []byte, n int) []byte {
	if n < 0 {
		return append(dst, "null"...)
	}
	return appendInt(dst, n)
}

// usage is what an answer reports about its tokens.
type usage struct {
	prompt, output, cached int
	created                int  // blocks' worth of prompt tokens newly cached; -1 = null, as completions report it
	hidden                 bool // no prompt_tokens_details
}

// append appends the usage object. Streams leave null members out (full =
// false), plain answers write them.
func (u usage) append(dst []byte, full bool) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = appendInt(dst, u.prompt)
	dst = append(dst, `,"total_tokens":`...)
	dst = appendInt(dst, u.prompt+u.output)
	dst = append(dst, `,"completion_tokens":`...)
	dst = appendInt(dst, u.output)
	if u.hidden {
		if full {
			dst = append(dst, `,"prompt_tokens_details":null,"completion_tokens_details":null`...)
		}
		return append(dst, '}')
	}
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = appendInt(dst, u.cached)
	switch {
	case u.created >= 0:
		dst = append(dst, `,"created_cache_tokens":`...)
		dst = appendInt(dst, u.created)
	case full:
		dst = append(dst, `,"created_cache_tokens":null`...)
	}
	if full {
		dst = append(dst, `,"multimodal_tokens":null`...)
	}
	dst = append(dst, '}')
	if full {
		dst = append(dst, `,"completion_tokens_details":null`...)
	}
	return append(dst, '}')
}
