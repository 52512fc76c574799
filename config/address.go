package config

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// unixSocket begins a listen address that is a socket file.
const unixSocket = "unix://"

// parseListen takes host:port, :port or unix:///path. Port 0 lets the system
// choose.
func parseListen(_ *leaf, t text) (any, *fault) {
	bad := func() *fault { return faultf("bad listen address %q", t.show) }
	if path, ok := strings.CutPrefix(t.value, unixSocket); ok {
		if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			return nil, bad().hintf("write unix:///path/to/socket")
		}
		return firstError(parseText(nil, t))
	}
	if strings.Contains(t.value, "://") {
		return nil, bad().hintf("write host:port or unix:///path, without http://")
	}
	if _, err := strconv.ParseUint(t.value, 10, 16); err == nil {
		return nil, bad().hintf("did you mean :%s?", t.value)
	}
	host, port, ok := splitHostPort(t.value)
	if !ok || !portInRange(port, 0) || !hostChars(host) {
		return nil, bad().hintf("write host:port, such as 127.0.0.1:8000 or :8000")
	}
	return t.value, nil
}

func firstError(v any, f *fault) (any, *fault) {
	if f != nil {
		return nil, f
	}
	return v, nil
}

// splitHostPort cuts at the last colon; brackets of an IPv6 host are taken off.
// An IPv6 host without brackets is refused, as it hides where the port starts.
func splitHostPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = s[:i], s[i+1:]
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") {
			return "", "", false
		}
		host = host[1 : len(host)-1]
		a, err := netip.ParseAddr(host)
		return host, port, err == nil && a.Is6()
	}
	return host, port, !strings.ContainsAny(host, ":[]")
}

func portInRange(port string, least uint64) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n >= least
}

// hostChars keeps out what would end a host name or hide one: names beyond
// ASCII are left to their punycode form, since a resolver may read a full-width
// digit or an ideographic full stop as part of an address.
func hostChars(host string) bool {
	for _, c := range []byte(host) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("-._:%", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// parseEngineURL returns the canonical scheme://host[:port].
func parseEngineURL(_ *leaf, t text) (any, *fault) {
	u, f := checkURL(t)
	if f != nil {
		return nil, f
	}
	if u.Path != "" && u.Path != "/" {
		base := url.URL{Scheme: u.Scheme, Host: u.Host}
		return nil, faultf("url %q has a path", t.show).hintf("did you mean %s?", base.String())
	}
	u.Path, u.RawPath = "", ""
	return u.String(), nil
}

func parseHTTPURL(_ *leaf, t text) (any, *fault) {
	u, f := checkURL(t)
	if f != nil {
		return nil, f
	}
	return u.String(), nil
}

// checkURL refuses every URL that would lead an HTTP client elsewhere than it
// seems to, or that carries a secret.
func checkURL(t text) (*url.URL, *fault) {
	if strings.Contains(t.value, "@") {
		// Said without the value: it may hold a password.
		return nil, faultf("url carries a user or password").hintf("leave it out, whatever needs a secret reads it from a file")
	}
	if t.value == "" {
		return nil, faultf("no url").hintf("write http://host:port")
	}
	if !strings.Contains(t.value, ":/") && !strings.HasPrefix(t.value, "http") {
		return nil, faultf("url %q has no scheme", t.show).hintf("did you mean http://%s?", t.show)
	}
	u, err := url.Parse(t.value)
	switch {
	case err != nil || !hostChars(strings.NewReplacer("[", "", "]", "").Replace(u.Host)):
		return nil, faultf("bad url %q", t.show).hintf("write http://host:port")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, faultf("url %q is neither http nor https", t.show)
	case u.Opaque != "" || u.Hostname() == "":
		return nil, faultf("url %q names no host", t.show).hintf("write http://host:port")
	case strings.ContainsAny(t.value, "?#"):
		return nil, faultf("url %q has a query or fragment", t.show)
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !portInRange(u.Port(), 1):
		return nil, faultf("url %q has a bad port", t.show)
	}
	if why := forbiddenHost(u.Hostname()); why != "" {
		return nil, faultf("url %q leads to %s", t.show, why)
	}
	return u, nil
}

// endpoint words.
const (
	endpointAuto = "auto"
	endpointOff  = "off"
	endpointTCP  = "tcp://"
)

// parseEndpoint takes auto, off, tcp://host:port or tcp://*:port.
func parseEndpoint(l *leaf, t text) (any, *fault) {
	if t.value == endpointAuto || t.value == endpointOff {
		return t.value, nil
	}
	address, isTCP := strings.CutPrefix(t.value, endpointTCP)
	if !isTCP {
		f := faultf("bad %s endpoint %q", l.name, t.show)
		if best, ok := nearest(t.value, []string{endpointAuto, endpointOff}); ok {
			return nil, f.hintf("did you mean %s?", best)
		}
		return nil, f.hintf("write auto, off, tcp://host:port or tcp://*:port")
	}
	bad := faultf("bad %s endpoint %q", l.name, t.show)
	host, port, ok := splitHostPort(address)
	switch {
	case !ok || host == "" || !portInRange(port, 1):
		return nil, bad.hintf("write tcp://host:port, or tcp://*:port to bind")
	case host == "*":
		return t.value, nil
	case !hostChars(host):
		return nil, bad.hintf("write tcp://host:port, or tcp://*:port to bind")
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return nil, bad.hintf("write tcp://*:%s to bind, or the engine's host to connect", port)
	}
	if why := forbiddenHost(host); why != "" {
		return nil, faultf("%s endpoint %q leads to %s", l.name, t.show, why)
	}
	return t.value, nil
}

// sameEndpoint returns a form in which two endpoints that lead to one socket
// are equal, "" for words.
func sameEndpoint(s string) string {
	address, isTCP := strings.CutPrefix(s, endpointTCP)
	if !isTCP {
		return ""
	}
	host, port, _ := splitHostPort(address)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return ""
	}
	return sameHost(host) + ":" + strconv.FormatUint(n, 10)
}

// sameHost folds the spellings of one host, the loopback names among them.
func sameHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	a, err := netip.ParseAddr(host)
	if err == nil {
		a = a.Unmap()
		host = a.String()
	}
	if host == "localhost" || err == nil && a.IsLoopback() {
		return "localhost"
	}
	return host
}

// metadataNames are host names of cloud metadata services.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"}

// metadataAddrs are metadata services outside the link-local ranges: AWS over
// IPv6, Alibaba Cloud, Azure's host agent, Oracle Cloud.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// forbiddenHost says what a host leads to if it must not be reached, in every
// spelling that a resolver understands; "" if it may.
func forbiddenHost(host string) string {
	name := strings.TrimRight(strings.ToLower(host), ".")
	for _, m := range metadataNames {
		if name == m {
			return "a cloud metadata service"
		}
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		var ok bool
		if addr, ok = looseIPv4(name); !ok {
			return ""
		}
	}
	return ForbiddenAddr(addr)
}

// ForbiddenAddr says what an engine's address leads to if it must not be
// reached (link-local, multicast, cloud metadata, also embedded in IPv6), "" if
// it may. A dialer asks it after resolving, since a name that was harmless at
// load time can be pointed elsewhere later.
func ForbiddenAddr(a netip.Addr) string {
	a = embeddedIPv4(a.WithZone("").Unmap())
	for _, m := range metadataAddrs {
		if a == m {
			return "a cloud metadata service"
		}
	}
	if a.IsLinkLocalUnicast() {
		return "a link-local address"
	}
	if a.IsMulticast() {
		return "a multicast address"
	}
	return ""
}

// embeddedIPv4 takes the IPv4 address out of IPv4-compatible (::/96), NAT64
// (64:ff9b::/96, RFC 6052) and 6to4 (2002::/16, RFC 3056) addresses.
func embeddedIPv4(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return a
	}
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// looseIPv4 reads the forms that inet_aton(3) takes: one to four parts, each
// decimal, 0x hex or 0 octal, the last filling the remaining bytes.
func looseIPv4(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		base, digits := 10, p
		switch {
		case strings.HasPrefix(p, "0x"):
			base, digits = 16, p[2:]
		case len(p) > 1 && p[0] == '0':
			base, digits = 8, p[1:]
		}
		n, err := strconv.ParseUint(digits, base, 32)
		width := 8
		if i == len(parts)-1 {
			width = 8 * (5 - len(parts))
		}
		if err != nil || n >= 1<<width {
			return netip.Addr{}, false
		}
		v = v<<width | n
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

// isLoopback reports whether a listen address can only be reached from this
// machine.
func isLoopback(listen string) bool {
	host, _, _ := splitHostPort(listen)
	return sameHost(host) == "localhost"
}

// overlap reports whether two listen addresses cannot both be bound.
func overlap(a, b string) bool {
	if strings.HasPrefix(a, unixSocket) || strings.HasPrefix(b, unixSocket) {
		return a == b
	}
	ha, pa, _ := splitHostPort(a)
	hb, pb, _ := splitHostPort(b)
	na, _ := strconv.ParseUint(pa, 10, 16)
	nb, _ := strconv.ParseUint(pb, 10, 16)
	if na != nb || na == 0 {
		return false
	}
	return isWildcard(ha) || isWildcard(hb) || sameHost(ha) == sameHost(hb)
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// parseURLPath takes an exact path as it is judged: absolute, without anything
// that another reader may take differently.
func parseURLPath(_ *leaf, t text) (any, *fault) {
	bad := func() *fault { return faultf("bad path %q", t.show) }
	switch {
	case !strings.HasPrefix(t.value, "/"):
		return nil, bad().hintf("did you mean /%s?", t.show)
	case strings.Contains(t.value, "*"):
		return nil, bad().hintf("there are no wildcards: list each path")
	case strings.Trim(t.value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-.") != "":
		return nil, bad().hintf("letters, digits and / _ - . only")
	}
	if t.value == "/" {
		return t.value, nil
	}
	for _, segment := range strings.Split(t.value[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nil, bad().hintf("no empty, . or .. segments")
		}
	}
	return t.value, nil
}
