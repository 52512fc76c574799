package fuzz

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramjet/wire"
)

var (
	startLine  = regexp.MustCompile(`^(` + httpToken + `+) ([!-"$-\[\]-~]+) HTTP/1\.([01])$`)
	fieldLine  = regexp.MustCompile(`^(` + httpToken + `+):[ \t]*(` + httpText + `*?)[ \t]*$`)
	hostValue  = regexp.MustCompile(`^([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]{2,}\])(:[0-9]{0,5})?$`)
	plainCount = regexp.MustCompile(`^[0-9]{1,19}$`)
	codings    = regexp.MustCompile(`(?i)^(?:[ \t]*(?:gzip|x-gzip|deflate|compress|x-compress)[ \t]*,)+[ \t]*chunked$`)
	optionList = regexp.MustCompile(`^[ \t,]*(?:` + httpToken + `+[ \t]*(?:,[ \t,]*` + httpToken + `+[ \t]*)*)?[ \t,]*$`)
	options    = regexp.MustCompile(httpToken + `+`)
)

// twinHead is what a request head says, or the status of its refusal (0: ok,
// 1: more bytes needed).
type twinHead struct {
	status                 int
	method, target         string
	minor                  int
	fields                 []string // name, value, name, value
	host                   string
	length                 int64
	chunked, keep, expects bool
	upgrade                string
	end                    int
}

// twinRequest reads a head by splitting it into lines and matching each whole
// line, in the order of RFC 9112 sections 2 to 7.
func twinRequest(raw []byte) (h twinHead) {
	text := latin(raw)
	lead := 0
	for lead < 3 && strings.HasPrefix(text[2*lead:], "\r\n") {
		lead++
	}
	if lead > 2 {
		return twinHead{status: 400}
	}
	text = text[2*lead:]
	end := strings.Index(text, "\r\n\r\n")
	if end < 0 {
		return twinHead{status: twinUnfinished(text)}
	}
	lines := strings.Split(text[:end], "\r\n")
	if strings.Contains(text[:end+4], "\n") && strings.Count(text[:end+4], "\n") != strings.Count(text[:end+4], "\r\n") {
		return twinHead{status: 400}
	}
	h.length = -1
	h.end = 2*lead + len([]rune(text[:end+4]))
	if h.status = h.start(lines[0]); h.status != 0 {
		return h
	}
	h.status = h.headers(lines[1:])
	return h
}

// twinUnfinished judges a head that is not whole.
func twinUnfinished(text string) int {
	for i, c := range text {
		if c == '\n' && (i == 0 || text[i-1] != '\r') {
			return 400
		}
	}
	line, _, whole := strings.Cut(text, "\r\n")
	switch {
	case text == "" || text == "\r":
		return 1
	case !regexp.MustCompile("^" + httpToken).MatchString(text):
		return 400
	case whole:
		if status := new(twinHead).start(line); status != 0 {
			return status
		}
	}
	return 1
}

func (h *twinHead) start(line string) int {
	m := startLine.FindStringSubmatch(line)
	if m == nil {
		return 400
	}
	h.method, h.target = m[1], m[2]
	h.minor = int(m[3][0] - '0')
	switch {
	case h.target[0] == '/', h.target == "*" && h.method == "OPTIONS":
		return 0
	case h.method == "CONNECT":
		return 501
	}
	return 400
}

func (h *twinHead) headers(lines []string) int {
	values := map[string][]string{}
	var connection []string
	for i, line := range lines {
		if i == wire.MaxFields {
			return 431
		}
		m := fieldLine.FindStringSubmatch(line)
		if m == nil {
			return 400
		}
		h.fields = append(h.fields, m[1], m[2])
		name := strings.ToLower(m[1])
		values[name] = append(values[name], m[2])
		alias := strings.ReplaceAll(name, "_", "-")
		if alias != name && slices.Contains([]string{"content-length", "keep-alive", "proxy-connection", "transfer-encoding", "http2-settings"}, alias) {
			return 400
		}
		switch name {
		case "connection":
			if !optionList.MatchString(m[2]) {
				return 400
			}
			connection = append(connection, options.FindAllString(strings.ToLower(m[2]), -1)...)
			if len(connection) > 32 {
				return 400
			}
		case "content-length":
			n, err := strconv.ParseUint(m[2], 10, 63)
			if !plainCount.MatchString(m[2]) || err != nil || n > 1<<62 || h.length >= 0 && h.length != int64(n) {
				return 400
			}
			h.length = int64(n)
		}
	}
	return h.settle(values, connection)
}

func (h *twinHead) settle(values map[string][]string, connection []string) int {
	if te := values["transfer-encoding"]; te != nil {
		switch {
		case h.length >= 0 || h.minor == 0 || len(te) > 1:
			return 400
		case codings.MatchString(te[0]):
			return 501
		case !strings.EqualFold(te[0], "chunked") || len(te[0]) != 7:
			return 400
		}
		h.chunked = true
	}
	hosts := values["host"]
	if len(hosts) > 1 || len(hosts) == 0 && h.minor == 1 || len(hosts) == 1 && !hostValue.MatchString(hosts[0]) {
		return 400
	}
	h.host = strings.Join(hosts, "")
	has := func(s string) bool { return slices.Contains(connection, s) }
	h.keep = !has("close") && (h.minor == 1 || has("keep-alive"))
	if up := values["upgrade"]; up != nil && has("upgrade") && h.minor == 1 {
		h.upgrade = up[0]
	}
	if e := values["expect"]; e != nil {
		h.expects = h.minor == 1 && strings.ToLower(e[len(e)-1]) == "100-continue"
	}
	return 0
}

// scanHead parses in growing pieces.
func scanHead(t *testing.T, raw, plan []byte) (h twinHead) {
	t.Helper()
	var r wire.RequestHead
	var buf []byte
	n, err := r.Parse(nil)
	cuts(raw, plan, func(piece []byte) bool {
		buf = append(bytes.Clone(buf), piece...) // another buffer each time
		n, err = r.Parse(buf)
		return n == 0 && err == nil
	})
	if err != nil {
		var e *wire.HeadError
		if !errors.As(err, &e) || n != 0 || e.Code == "" || e.Message == "" {
			t.Fatalf("n = %d, %#v", n, err)
		}
		return twinHead{status: e.Status}
	}
	if n == 0 {
		return twinHead{status: 1}
	}
	h = twinHead{method: string(r.Method), target: string(r.Target), minor: r.Minor, host: string(r.Host), length: r.ContentLength,
		chunked: r.Chunked, keep: r.KeepAlive, expects: r.ExpectContinue, upgrade: latin(r.UpgradeTo), end: n}
	for _, f := range r.Fields {
		h.fields = append(h.fields, string(f.Name), latin(f.Value))
	}
	return h
}

func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\r\nPOST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 2\r\n\r\n{}",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3,3\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: Upgrade, close,\r\nUpgrade: websocket\r\nX: \xa0\x85\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET /\r\n", "\x16\x03\x01", "GET / HTTP/1.1\r\nHost: x\r\ncontent_length: 3\r\n\r\n", "\r\n\r\n\r\n", "GET / HTTP/1.1\r\n",
	} {
		for _, plan := range []string{"", "\x01", "\x03\x10"} {
			f.Add([]byte(s), []byte(plan))
		}
	}
	f.Fuzz(func(t *testing.T, raw, plan []byte) {
		if len(raw) > 1<<15 {
			return
		}
		got, want := scanHead(t, raw, plan), twinRequest(raw)
		if want.status > 1 || want.status == 1 {
			want = twinHead{status: want.status}
		}
		// Refused early or late: the twin reads all of raw, in which a bare
		// LF behind the head's first fault may be what it names.
		if got.status > 1 && want.status > 1 {
			return
		}
		if got.status != want.status || got.status == 0 && !sameHead(got, want) {
			t.Fatalf("parser %+v\ntwin   %+v", got, want)
		}
		if got.status == 0 {
			secondOpinion(t, raw, got)
		}
	})
}

func sameHead(a, b twinHead) bool {
	return slices.Equal(a.fields, b.fields) && a.method == b.method && a.target == b.target && a.minor == b.minor && a.host == b.host &&
		a.length == b.length && a.chunked == b.chunked && a.keep == b.keep && a.expects == b.expects && a.upgrade == b.upgrade && a.end == b.end
}

// secondOpinion: what is accepted here, net/http reads the same way, or
// refuses for a reason of its own.
func secondOpinion(t *testing.T, raw []byte, h twinHead) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimLeft(raw, "\r\n"))))
	if err != nil {
		return
	}
	length := max(h.length, 0)
	if h.chunked {
		length = -1
	}
	if r.Method != h.method || r.RequestURI != h.target || r.ProtoMinor != h.minor || r.Host != h.host || r.ContentLength != length {
		t.Fatalf("parser %+v\nnet/http %s %s 1.%d host %q length %d", h, r.Method, r.RequestURI, r.ProtoMinor, r.Host, r.ContentLength)
	}
}
