package faults

import (
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row07TooLarge: 431 for a head, 413 for a length before a byte of it is
// read, 413 for chunks as they are counted; JSON errors, then the end of the
// connection.
func TestB7Row07TooLarge(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--limits.body=64KiB", "--limits.header=8KiB")
	head := "POST " + rig.ChatPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	cases := []struct {
		name   string
		bytes  string
		status int
		code   string
	}{
		{"head", head + "X-A: " + strings.Repeat("a", 9<<10) + "\r\nContent-Length: 0\r\n\r\n", 431, "header_too_large"},
		{"length, nothing sent", head + "Content-Length: 65537\r\n\r\n", 413, "body_too_large"},
		{"chunks", head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(rig.Chunk(strings.Repeat("a", 4096)), 17), 413, "body_too_large"},
		{"one chunk", head + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat("a", 64<<10+1), 413, "body_too_large"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := r.Dial(t)
			c.Send(tc.bytes)
			resp := c.Response(rig.Patience)
			if resp.Status != tc.status || resp.Code() != tc.code {
				t.Errorf("answered %d %q, want %d %s: %.200q", resp.Status, resp.Code(), tc.status, tc.code, resp.Body)
			}
			if ct := resp.Fields.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
				t.Errorf("content type %q", ct)
			}
			if !c.Gone(rig.Patience) {
				t.Error("the connection stays open")
			}
		})
	}
	// The limits themselves are allowed, and count decoded bytes.
	pad := strings.Repeat(" ", 64<<10-len(rig.VectorBody))
	for _, raw := range []string{
		rig.Request("POST", rig.ChatPath, r.ID("fits"), rig.VectorBody+pad),
		head + "Transfer-Encoding: chunked\r\n\r\n" + rig.ChunkEach(rig.VectorBody+pad, 64) + rig.LastChunk,
	} {
		if resp := r.Do(t, raw); resp.Status != 200 {
			t.Errorf("a body of exactly the limit is answered %d %.200q", resp.Status, resp.Body)
		}
	}
	r.Counted(t, 1, "431", "rejected")
	r.Counted(t, 3, "413", "rejected")
}
