package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"
)

// hole is a listener whose backlog is full: it drops whoever asks for more, as
// a firewall does.
func hole(t testing.TB, at netip.AddrPort) netip.AddrPort {
	t.Helper()
	family := syscall.AF_INET
	var sa syscall.Sockaddr = &syscall.SockaddrInet4{Addr: [4]byte(at.Addr().AsSlice()), Port: int(at.Port())}
	if at.Addr().Is6() {
		family, sa = syscall.AF_INET6, &syscall.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Skip("no sockets of this family: ", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, sa); err != nil {
		t.Skip("cannot bind: ", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(c) })
		_ = syscall.SetNonblock(c, true)
		_ = syscall.Connect(c, bound)
	}
	if b, ok := bound.(*syscall.SockaddrInet4); ok {
		return netip.AddrPortFrom(at.Addr(), uint16(b.Port))
	}
	return netip.AddrPortFrom(at.Addr(), uint16(bound.(*syscall.SockaddrInet6).Port))
}

// names is a name server that knows one name.
func names(t testing.TB, addrs ...netip.Addr) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(answerName(buf[:n], addrs), from)
		}
	}()
	t.Cleanup(func() { _ = pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// answerName answers one question (RFC 1035 section 4).
func answerName(q []byte, addrs []netip.Addr) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	kind := binary.BigEndian.Uint16(q[end-4:])
	a := append([]byte{}, q[:end]...)
	a[2], a[3] = 0x84, 0x00
	binary.BigEndian.PutUint16(a[6:], 0)
	binary.BigEndian.PutUint32(a[8:], 0)
	n := uint16(0)
	for _, addr := range addrs {
		want := uint16(1)
		if addr.Is6() {
			want = 28
		}
		if want != kind {
			continue
		}
		n++
		a = append(a, 0xc0, 0x0c)
		a = binary.BigEndian.AppendUint16(a, kind)
		a = append(a, 0, 1, 0, 0, 0, 1)
		raw := addr.AsSlice()
		a = binary.BigEndian.AppendUint16(a, uint16(len(raw)))
		a = append(a, raw...)
	}
	binary.BigEndian.PutUint16(a[6:], n)
	return a
}

// TestBlackHoledFirstAddress: the other address family is tried after a short
// head start, so that a new connection costs less than 300 ms on a machine that
// has time for it.
func TestBlackHoledFirstAddress(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	good := p.ln.Addr().(*net.TCPAddr).AddrPort()
	bad := hole(t, netip.AddrPortFrom(netip.IPv6Loopback(), good.Port()))
	e := p.engine(t, func(o *Options) { o.URL.Host, o.Dial = fmt.Sprintf("engine.test:%d", good.Port()), time.Minute })
	e.pool.dialer.Resolver = names(t, bad.Addr(), good.Addr())
	if d := e.pool.dialer.FallbackDelay; d <= 0 || d > 200*time.Millisecond {
		t.Errorf("the other family waits for %v", d)
	}
	began := time.Now()
	c, err := e.Pool().Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > patience {
		t.Errorf("took %v", d)
	}
	if got := c.RemoteAddr().(*net.TCPAddr).AddrPort(); got != good {
		t.Errorf("connected to %v", got)
	}
	_ = c.Close()
}

// TestNameIsResolvedAtEveryDial: a restarted container may have moved.
func TestNameIsResolvedAtEveryDial(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	good := p.ln.Addr().(*net.TCPAddr).AddrPort()
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.9")} // nobody listens there
	e := p.engine(t, func(o *Options) { o.URL.Host = fmt.Sprintf("engine.test:%d", good.Port()) })
	e.pool.dialer.Resolver = names(t, addrs...)
	if _, err := e.Pool().Dial(t.Context()); !Refused(err) {
		t.Errorf("got %v", err)
	}
	e.pool.dialer.Resolver = names(t, good.Addr())
	c, err := e.Pool().Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestDialLimit(t *testing.T) {
	t.Parallel()
	bad := hole(t, netip.MustParseAddrPort("127.0.0.1:0"))
	at := func(limit time.Duration) *Engine {
		return New(Options{Name: "a", Dial: limit, URL: &url.URL{Scheme: "http", Host: bad.String()}})
	}
	began := time.Now()
	_, err := at(50 * time.Millisecond).Pool().Dial(t.Context())
	if d := time.Since(began); err == nil || d < 50*time.Millisecond || d > 5*time.Second {
		t.Errorf("took %v, %v", d, err)
	}
	if Refused(err) || !DialLate(err) {
		t.Errorf("a dropped packet is taken for a refusal, or not for our limit: %v", err)
	}
	if got := at(0).Settings().Dial; got != time.Second {
		t.Errorf("the default is %v", got)
	}
	// Without a limit the caller's context is the only one.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := at(-1).Pool().Dial(ctx); err == nil {
		t.Error("dialled a hole")
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := at(time.Minute).Pool().Dial(ctx); err == nil {
		t.Error("dialled a hole")
	}
}

// TestRefusalHidesNoTimeOut: of two addresses one refuses at once and the other
// swallows packets. The limit ended the dial, and it must not count as a
// refusal, which would put the engine down.
func TestRefusalHidesNoTimeOut(t *testing.T) {
	t.Parallel()
	bad := hole(t, netip.MustParseAddrPort("127.0.0.1:0"))
	e := New(Options{Name: "a", Dial: 100 * time.Millisecond, URL: &url.URL{Scheme: "http", Host: fmt.Sprintf("engine.test:%d", bad.Port())}})
	for _, p := range []*Pool{e.pool, e.checks} {
		p.dialer.Resolver = names(t, netip.MustParseAddr("127.0.0.9"), bad.Addr()) // nobody listens at the first
	}
	_, err := e.Pool().Dial(t.Context())
	if Refused(err) || !DialLate(err) {
		t.Errorf("got %v", err)
	}
	var op *net.OpError
	_, _, err = e.Get(t.Context(), "/health", 10)
	if Refused(err) || !DialLate(err) || !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("a check got %v", err)
	}
}

// TestSystemsTimeOutIsNotOurs: without a limit the system gives up some day,
// and that is the engine's failure.
func TestSystemsTimeOutIsNotOurs(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)})
	if DialLate(err) {
		t.Error("a time-out of the system's is taken for the dial limit")
	}
}

// TestNoAmbientProxy: proxies of the environment are for other programs.
func TestNoAmbientProxy(t *testing.T) {
	trap := newPeer(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://"+trap.ln.Addr().String())
	}
	if os.Getenv("HTTP_PROXY") == "" {
		t.Fatal("no trap")
	}
	p := newPeer(t)
	e := p.engine(t)
	c := dial(t, e)
	if c.RemoteAddr().String() != p.ln.Addr().String() {
		t.Errorf("dialled %v", c.RemoteAddr())
	}
	_ = c.Close()
	go func() {
		nc := p.conn(t, 1)
		_, _ = nc.Read(make([]byte, 1000))
		_, _ = nc.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	}()
	status, body, err := e.Get(t.Context(), "/health", 10)
	if status != 200 || string(body) != "ok" || err != nil {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	trap.mu.Lock()
	defer trap.mu.Unlock()
	if len(trap.got) > 0 {
		t.Error("the proxy was used")
	}
}
