package wire

import "bytes"

// FirstElements returns the front of a JSON array up to the end of its n-th
// element, or of its last one when it has no more: the same bytes whether or
// not others follow. Anything but an array is returned as it is. array must be
// valid JSON, as a Span of Peeked is.
func FirstElements(array []byte, n int) []byte {
	if len(array) == 0 || array[0] != '[' {
		return array
	}
	depth := 0
	for i := 0; i < len(array); i++ {
		switch array[i] {
		case '"':
			i = stringEnd(array, i+1)
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return bytes.TrimRight(array[:i], " \t\r\n")
			}
		case ',':
			if depth == 1 {
				if n--; n == 0 {
					return bytes.TrimRight(array[:i], " \t\r\n")
				}
			}
		}
	}
	return array
}

// stringEnd returns the position of the quote that ends the string whose
// content begins at i.
func stringEnd(b []byte, i int) int {
	for i < len(b) {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		i += q
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i++
	}
	return i
}
