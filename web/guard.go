package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// knownHost reports whether the request is addressed to this listener. A page
// in a browser can make any name of its own resolve to this address, but it
// cannot make an address or a name without dots its own; so those are taken,
// on a loopback listener only the loopback's own. A valid token admits any
// name: no foreign page has it.
func (s *Server) knownHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || !s.o.Loopback
	}
	if !s.o.Loopback && host != "" && !strings.Contains(host, ".") {
		return true
	}
	return *s.token.Load() != "" && s.tokenMatches(bearer(r))
}

// sameOrigin reports whether the request comes from no page or from one of
// this listener. Browsers send Origin with every POST and every cross-origin
// fetch, and Sec-Fetch-Site where there is no Origin.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// allow answers other methods than these with 405.
func allow(next http.Handler, methods ...string) http.Handler {
	list := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", list)
			fail(w, http.StatusMethodNotAllowed, "method_not_allowed", quote(r.URL.Path)+" takes "+list)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// elsewhere reports whether a browser asks for another site's page, or for one
// of this host's other ports. What somebody typed or had as a bookmark is none.
func elsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// guarded admits who holds the token, or anyone on this machine if none is
// set. A foreign page is refused whatever the method: it could not read a
// profile, but it could make this process take one after the other.
func (s *Server) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch given := bearer(r); {
		case elsewhere(r):
			fail(w, http.StatusForbidden, "invalid_request", "requests from pages of another origin are refused; open the address itself")
		case *s.token.Load() == "" && s.o.Loopback:
			next(w, r)
		case *s.token.Load() == "":
			fail(w, http.StatusForbidden, "invalid_request", "this listener can be reached from other machines, so "+quote(r.URL.Path)+
				" needs admin.token_file to be set")
		case given == "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, "invalid_api_key", quote(r.URL.Path)+" needs the header Authorization: Bearer <admin token>")
		case s.tokenMatches(given):
			next(w, r)
		default:
			s.refuseToken(w, r)
		}
	}
}

// refuseToken answers a wrong token late. The number of answers under way is
// bounded, so that guessing cannot hold many connections; beyond it the answer
// is 429 at once, which slows guessing just as well.
func (s *Server) refuseToken(w http.ResponseWriter, r *http.Request) {
	select {
	case s.wrong <- struct{}{}:
		defer func() { <-s.wrong }()
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "queue_full", "too many wrong tokens at once")
		return
	}
	t := time.NewTimer(s.delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	fail(w, http.StatusUnauthorized, "invalid_api_key", "the admin token is wrong")
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// tokenMatches compares hashes, so that neither content nor length shows in
// the time it takes.
func (s *Server) tokenMatches(given string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(*s.token.Load()))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
