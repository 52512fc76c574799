package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestB7Row07TooLarge: 431 for a head, 413 for a length before a byte of it is
// read, 413 for chunks as they are counted; JSON errors, then the end of the
// connection.
func TestB7Row07TooLarge(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--limits.body=64KiB", "--limits.header=8KiB")
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	cases := []struct {
		name   string
		bytes  string
		status int
		code   string
	}{
		{"head", head + "X-A: " + strings.Repeat("a", 9<<10) + "\r\nContent-Length: 0\r\n\r\n", 431, "header_too_large"},
		{"length, nothing sent", head + "Content-Length: 65537\r\n\r\n", 413, "body_too_large"},
		{"chunks", head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk(strings.Repeat("a", 4096)), 17), 413, "body_too_large"},
		{"one chunk", head + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat("a", 64<<10+1), 413, "body_too_large"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := r.dial(t)
			c.send(tc.bytes)
			resp := c.response(patience)
			if resp.status != tc.status || resp.code() != tc.code {
				t.Errorf("answered %d %q, want %d %s: %.200q", resp.status, resp.code(), tc.status, tc.code, resp.body)
			}
			if ct := resp.fields.get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
				t.Errorf("content type %q", ct)
			}
			if !c.gone(patience) {
				t.Error("the connection stays open")
			}
		})
	}
	// The limits themselves are allowed, and count decoded bytes.
	pad := strings.Repeat(" ", 64<<10-len(vectorBody))
	for _, raw := range []string{
		request("POST", chatPath, r.id("fits"), vectorBody+pad),
		head + "Transfer-Encoding: chunked\r\n\r\n" + chunkEach(vectorBody+pad, 64) + lastChunk,
	} {
		if resp := r.do(t, raw); resp.status != 200 {
			t.Errorf("a body of exactly the limit is answered %d %.200q", resp.status, resp.body)
		}
	}
	r.counted(t, 1, "431", "rejected")
	r.counted(t, 3, "413", "rejected")
}

// chunkEach frames s in chunks of n bytes.
func chunkEach(s string, n int) string {
	var b strings.Builder
	for len(s) > 0 {
		k := min(n, len(s))
		fmt.Fprint(&b, chunk(s[:k]))
		s = s[k:]
	}
	return b.String()
}
