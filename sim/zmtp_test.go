package sim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// rawPeer is a connection to a publisher's socket whose bytes a test writes itself.
type rawPeer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dialRaw(t *testing.T, endpoint string) *rawPeer {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	return &rawPeer{t, nc, bufio.NewReader(nc)}
}

// send writes b; the other side may have hung up already.
func (r *rawPeer) send(b ...[]byte) {
	for _, b := range b {
		_, _ = r.Write(b)
	}
}

// greet shakes hands as a socket of the given kind.
func (r *rawPeer) greet(kind string) {
	r.t.Helper()
	r.send(zmtpGreeting(), appendReady(nil, kind))
	var g [zmtpGreetingLen]byte
	if _, err := io.ReadFull(r.in, g[:]); err != nil {
		r.t.Fatal(err)
	}
	flags, body, err := readFrame(r.in)
	if err != nil || flags != zmtpCommand || !bytes.HasPrefix(body, []byte("\x05READY")) {
		r.t.Fatalf("got %x %q, %v for READY", flags, body, err)
	}
}

// hungUp checks that the other side ends the connection, after whatever it may send first.
func (r *rawPeer) hungUp(what string) {
	r.t.Helper()
	if _, err := io.Copy(io.Discard, r.in); os.IsTimeout(err) {
		r.t.Errorf("%s: the connection stays", what)
	}
}

// message reads frames up to one that is the last of its message.
func (r *rawPeer) message() (frames []string) {
	r.t.Helper()
	for {
		flags, body, err := readFrame(r.in)
		if err != nil {
			r.t.Fatal(err)
		}
		frames = append(frames, string(body))
		if flags&zmtpMore == 0 {
			return frames
		}
	}
}

func greetingWith(change func(g []byte)) []byte {
	g := zmtpGreeting()
	change(g)
	return g
}

// Whoever does not speak ZMTP 3 with NULL is hung up on, at once, and the others do not notice.
func TestPublisherRefusesBadPeers(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	live, replay := p.endpoints()
	good := dialRaw(t, live)
	good.greet("SUB")
	good.send(appendCommand(nil, "SUBSCRIBE", nil))
	ready := append(zmtpGreeting(), appendReady(nil, "SUB")...)
	long := func(flags byte, n uint64) []byte {
		return binary.BigEndian.AppendUint64([]byte{flags | zmtpLong}, n)
	}
	for name, bad := range map[string][]byte{
		"HTTP":               []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
		"TLS":                append([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), make([]byte, 100)...),
		"zeros":              make([]byte, 100),
		"ZMTP 1":             []byte("\x01\x00\x01\x02kv\x01\x00\x01\x00"),
		"ZMTP 2":             greetingWith(func(g []byte) { g[10] = 1 }),
		"CURVE":              greetingWith(func(g []byte) { copy(g[12:], "CURVE") }),
		"NULLX":              greetingWith(func(g []byte) { copy(g[12:], "NULLX") }),
		"wrong socket":       append(zmtpGreeting(), appendReady(nil, "PUSH")...),
		"no socket type":     append(zmtpGreeting(), appendCommand(nil, "READY", nil)...),
		"READY cut":          append(zmtpGreeting(), appendCommand(nil, "READY", []byte("\x0bSocket-Type\x00\x00\x00\x09SUB"))...),
		"name cut":           append(zmtpGreeting(), appendCommand(nil, "READY", []byte("\xffSocket"))...),
		"data for READY":     append(zmtpGreeting(), appendFrame(nil, 0, []byte("\x05READY"))...),
		"empty command":      append(zmtpGreeting(), zmtpCommand, 0),
		"1 GB frame":         append(bytes.Clone(ready), long(0, 1<<30)...),
		"2^63 frame":         append(bytes.Clone(ready), long(0, 1<<63)...),
		"reserved flags":     append(bytes.Clone(ready), 0x80, 0),
		"command goes on":    append(bytes.Clone(ready), zmtpCommand|zmtpMore, 0),
		"command cut":        append(bytes.Clone(ready), zmtpCommand, 1, 5),
		"PING cut":           append(bytes.Clone(ready), appendCommand(nil, "PING", []byte{0})...),
		"PING long":          append(bytes.Clone(ready), appendCommand(nil, "PING", make([]byte, 19))...),
		"ERROR":              append(bytes.Clone(ready), appendCommand(nil, "ERROR", []byte("\x04oops"))...),
		"many subscriptions": append(bytes.Clone(ready), manySubscriptions()...),
	} {
		peer := dialRaw(t, live)
		peer.send(bad)
		peer.hungUp(name)
	}
	endless := dialRaw(t, replay)
	endless.greet("DEALER")
	endless.send(bytes.Repeat([]byte{zmtpMore, 0}, 1000))
	endless.hungUp("message without end")
	sub := dialRaw(t, replay)
	sub.send(ready)
	sub.hungUp("SUB at a ROUTER")

	audience(t, p, 1)
	p.publish(removal(0))
	if got := good.message(); len(got) != 3 || got[0] != "kv" {
		t.Errorf("the good one got %q", got)
	}
}

func manySubscriptions() []byte {
	var b []byte
	for i := range subscriberTopics + 1 {
		b = appendCommand(b, "SUBSCRIBE", binary.BigEndian.AppendUint32(nil, uint32(i)))
	}
	return b
}

// A peer that goes at any byte of its handshake and first commands leaves nothing behind.
func TestPublisherPeerCutAtEveryByte(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv", replay: "tcp://127.0.0.1:0"}, kvTuning{})
	live, replay := p.endpoints()
	for endpoint, all := range map[string][]byte{
		live:   append(append(zmtpGreeting(), appendReady(nil, "SUB")...), appendCommand(nil, "SUBSCRIBE", []byte("kv"))...),
		replay: append(append(zmtpGreeting(), appendReady(nil, "DEALER")...), append([]byte{zmtpMore, 0}, appendFrame(nil, 0, make([]byte, 8))...)...),
	} {
		for n := range all {
			peer := dialRaw(t, endpoint)
			peer.send(all[:n])
			peer.Close()
		}
	}
	for _, s := range []*zmtpSocket{p.pub.zmtpSocket, p.router.zmtpSocket} {
		await(t, "no connection left", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns) == 0
		})
	}
	audience(t, p, 0)
}

// Both ways to subscribe, and the end of a subscription. ZMTP 3.0 peers send messages, 3.1 peers commands.
func TestPublisherSubscriptions(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(on bool, topic string) []byte{
		"3.0": func(on bool, topic string) []byte {
			if on {
				return appendFrame(nil, 0, []byte("\x01"+topic))
			}
			return appendFrame(nil, 0, []byte("\x00"+topic))
		},
		"3.1": func(on bool, topic string) []byte {
			if on {
				return appendCommand(nil, "SUBSCRIBE", []byte(topic))
			}
			return appendCommand(nil, "CANCEL", []byte(topic))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestPublisher(t, kvPublisherOptions{topic: "kv"}, kvTuning{})
			live, _ := p.endpoints()
			peer := dialRaw(t, live)
			peer.greet("SUB")
			peer.send(appendFrame(nil, 0, nil), appendFrame(nil, 0, []byte("\x07junk")), appendCommand(nil, "UNKNOWN", nil), appendCommand(nil, "PONG", nil))
			peer.send(appendFrame(nil, zmtpMore, []byte("\x01kv")), appendFrame(nil, 0, []byte("\x01kv"))) // no subscription: two frames
			peer.send(form(true, "nope"))
			await(t, "a subscription", func() bool { return subscriptions(p) == 1 })
			audience(t, p, 0)
			peer.send(form(true, "k"), form(true, "kv"))
			audience(t, p, 1)
			await(t, "all subscriptions", func() bool { return subscriptions(p) == 3 })
			peer.send(form(false, "kv"))
			await(t, "one less", func() bool { return subscriptions(p) == 2 })
			audience(t, p, 1)
			peer.send(form(false, "k"), form(false, "never"))
			audience(t, p, 0)
		})
	}
}

// A heartbeat is answered with its own context, ahead of what is queued; a peer that announced a time to live and then
// says nothing is gone.
func TestPublisherHeartbeat(t *testing.T) {
	t.Parallel()
	p := newTestPublisher(t, kvPublisherOptions{topic: "kv"}, kvTuning{})
	live, _ := p.endpoints()
	peer := dialRaw(t, live)
	peer.greet("SUB")
	peer.send(appendCommand(nil, "SUBSCRIBE", nil), appendCommand(nil, "PING", []byte("\x00\x00context")))
	flags, body, err := readFrame(peer.in)
	if err != nil || flags != zmtpCommand || string(body) != "\x04PONGcontext" {
		t.Fatalf("got %x %q, %v", flags, body, err)
	}
	audience(t, p, 1)
	peer.send(appendCommand(nil, "PING", []byte("\x00\x02"))) // 200 ms
	start := time.Now()
	peer.hungUp("silence for longer than the time to live")
	if d := time.Since(start); d < 150*time.Millisecond {
		t.Errorf("hung up after %v", d)
	}
	audience(t, p, 0)
}

func TestFrames(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 255, 256, 65535, zmtpFrameLimit} {
		body := bytes.Repeat([]byte("x"), n)
		frame := appendFrame(nil, zmtpMore, body)
		if want := 2 + n; n < 256 && len(frame) != want || n >= 256 && len(frame) != 9+n {
			t.Errorf("%d bytes make a frame of %d", n, len(frame))
		}
		flags, got, err := readFrame(bufio.NewReader(bytes.NewReader(frame)))
		if err != nil || flags&^zmtpLong != zmtpMore || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: got %x, %d bytes, %v", n, flags, len(got), err)
		}
		for cut := range min(len(frame), 300) {
			if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:cut]))); err == nil {
				t.Errorf("%d bytes cut at %d: no error", n, cut)
			} else if (err == io.EOF) != (cut == 0) {
				t.Errorf("%d bytes cut at %d: %v", n, cut, err)
			}
		}
	}
	if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(appendFrame(nil, 0, make([]byte, zmtpFrameLimit+1))))); err == nil {
		t.Error("a frame over the limit is read")
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"tcp://*:5557":         "tcp :5557",
		"tcp://127.0.0.1:0":    "tcp 127.0.0.1:0",
		"tcp://127.0.0.1:*":    "tcp 127.0.0.1:0",
		"tcp://[::1]:5557":     "tcp [::1]:5557",
		"ipc:///run/kv.sock":   "unix /run/kv.sock",
		"tcp://127.0.0.1":      "",
		"tcp://127.0.0.1:":     "",
		"ipc://":               "",
		"inproc://kv":          "",
		"127.0.0.1:5557":       "",
		"":                     "",
		"tcp://[::1:5557":      "",
		"udp://127.0.0.1:5557": "",
	} {
		network, address, err := parseEndpoint(in)
		if got := strings.TrimSpace(network + " " + address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

// A socket file of a dead process does not keep the next one from binding.
func TestPublisherOverUnixSocket(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/kv"
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	p := newTestPublisher(t, kvPublisherOptions{endpoint: "ipc://" + path}, kvTuning{})
	peer := startZMQ(t, "sub", "ipc://"+path)
	audience(t, p, 1)
	p.publish(removal(3))
	if got := peer.next(); got[1] != hexSeq(0) {
		t.Errorf("got %v", got)
	}
}

// Bytes of anybody's end in an error or a connection served; never in a panic or in memory beyond a frame's limit.
func FuzzSimZMTP(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(append(zmtpGreeting(), appendReady(nil, "SUB")...), appendCommand(nil, "SUBSCRIBE", []byte("kv"))...))
	f.Add(append(append(zmtpGreeting(), appendReady(nil, "SUB")...), appendCommand(nil, "PING", []byte("\x00\x01abc"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := zmtpHandshake(&readOnly{r: bytes.NewReader(b)}, "PUB", "SUB", "XSUB")
		if err != nil {
			return
		}
		s := &subscriber{out: newOutbox(1), topics: map[string]struct{}{}}
		newPubSocket(1).serve(c, s)
		if len(s.topics) > subscriberTopics {
			t.Errorf("%d subscriptions", len(s.topics))
		}
	})
}

// readOnly is a connection that reads from r and swallows what is written.
type readOnly struct{ r io.Reader }

func (c *readOnly) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c *readOnly) Write(b []byte) (int, error)      { return len(b), nil }
func (c *readOnly) Close() error                     { return nil }
func (c *readOnly) LocalAddr() net.Addr              { return nil }
func (c *readOnly) RemoteAddr() net.Addr             { return nil }
func (c *readOnly) SetDeadline(time.Time) error      { return nil }
func (c *readOnly) SetReadDeadline(time.Time) error  { return nil }
func (c *readOnly) SetWriteDeadline(time.Time) error { return nil }
