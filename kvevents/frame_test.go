package kvevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// readAll reads a stream of frames to its end and shows each message.
func readAll(r io.Reader, most int) (shown []string, err error) {
	reader := NewReader(r, most)
	var m Message
	for {
		if err := reader.Next(&m); err != nil {
			if err == io.EOF {
				return shown, nil
			}
			return shown, err
		}
		kind := "message"
		if m.Command {
			kind = "command"
		}
		shown = append(shown, fmt.Sprintf("%s %q", kind, m.Frames))
	}
}

func stream() []byte {
	b := appendMessage(nil, []byte("kv"), make([]byte, 8), bytes.Repeat([]byte("x"), 300))
	b = appendCommand(b, commandPing, []byte{0, 10, 'c'})
	b = appendMessage(b, nil)
	return appendMessage(b, nil, []byte("y"))
}

func TestFramesComeBackInAnyPieces(t *testing.T) {
	t.Parallel()
	want := []string{
		fmt.Sprintf("message [\"kv\" %q %q]", make([]byte, 8), bytes.Repeat([]byte("x"), 300)),
		`command ["\x04PING\x00\nc"]`, `message [""]`, `message ["" "y"]`,
	}
	for _, r := range []io.Reader{bytes.NewReader(stream()), iotest.OneByteReader(bytes.NewReader(stream())), iotest.HalfReader(bytes.NewReader(stream()))} {
		got, err := readAll(r, 0)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestFramesCutAtEveryByte(t *testing.T) {
	t.Parallel()
	whole := stream()
	all, _ := readAll(bytes.NewReader(whole), 0)
	boundaries := 0
	for i := range whole {
		got, err := readAll(bytes.NewReader(whole[:i]), 0)
		if err == nil {
			boundaries++
		} else if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", i, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(all[:len(got)]) {
			t.Errorf("cut at %d: %v", i, got)
		}
	}
	if boundaries != len(all) { // in front of each message, and no other place
		t.Errorf("%d cuts were no error", boundaries)
	}
}

func long(flags byte, size uint64, body string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size), body...)
}

func TestFramesThatNobodySends(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"1 GB":                  {long(0, 1<<30, "x"), "more than 67108864 bytes"},
		"2^62":                  {long(0, 1<<62, "x"), "more than 67108864 bytes"},
		"2^64-1":                {long(0, 1<<64-1, "x"), "more than 67108864 bytes"},
		"together too long":     {append(long(flagMore, 40<<20, strings.Repeat("x", 40<<20)), long(0, 40<<20, "")...), "more than 67108864 bytes"},
		"endless frames":        {bytes.Repeat([]byte{flagMore, 0}, 100), "more than 16 frames"},
		"reserved flags":        {[]byte{0x08, 0}, "frame flags 0x08"},
		"HTTP":                  {[]byte("HTTP/1.1 400 Bad Request\r\n"), "frame flags 0x48"},
		"a command with more":   {[]byte{flagCommand | flagMore, 0}, "a command inside a message"},
		"a command in between":  {[]byte{flagMore, 0, flagCommand, 0}, "a command inside a message"},
		"a command of 1 MB":     {long(flagCommand, 1<<20, ""), "a command of 1048576 bytes"},
		"announced and not had": {long(0, 60<<20, "x"), "unexpected EOF"},
	} {
		before, after := new(runtime.MemStats), new(runtime.MemStats)
		runtime.ReadMemStats(before)
		_, err := readAll(bytes.NewReader(c.bytes), 0)
		runtime.ReadMemStats(after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		// Other tests allocate meanwhile; what is announced here is far more than all of them.
		if n := after.TotalAlloc - before.TotalAlloc; len(c.bytes) < 1<<20 && n > 50<<20 {
			t.Errorf("%s: %d bytes allocated for %d", name, n, len(c.bytes))
		}
	}
}

// greeting makes a greeting of its own.
func greeting(major, minor byte, mechanism string) []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, major, minor
	copy(g[12:32], mechanism)
	return g
}

func ready(kind string) []byte {
	return appendCommand(nil, commandReady, appendProperty(nil, "socket-type", kind))
}

func TestHandshakeWithEveryPeer(t *testing.T) {
	t.Parallel()
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		sends []byte
		minor byte
		want  string // "" is success
	}{
		"3.1":                     {join(greeting(3, 1, "NULL"), ready("PUB")), 1, ""},
		"3.1 XPUB":                {join(greeting(3, 1, "NULL"), ready("XPUB")), 1, ""},
		"3.0":                     {join(greeting(3, 0, "NULL"), ready("PUB")), 0, ""},
		"a later 3":               {join(greeting(3, 9, "NULL"), ready("PUB")), 9, ""},
		"a later version":         {join(greeting(4, 0, "NULL"), ready("PUB")), 1, ""},
		"more properties":         {join(greeting(3, 1, "NULL"), appendCommand(nil, commandReady, appendProperty(appendProperty(nil, "Resource", "r"), propertyType, "PUB"))), 1, ""},
		"2.0":                     {[]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1, 1}, 0, "speaks revision 1 of ZMTP"},
		"1.0":                     {[]byte{1, 0}, 0, "begins with 0x01"},
		"1.0, a long identity":    {[]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 0, "speaks ZMTP 1.0"},
		"HTTP":                    {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 0, "begins with 0x48; is this another protocol's port?"},
		"garbage":                 {bytes.Repeat([]byte{0x5a}, 100), 0, "begins with 0x5a"},
		"garbage behind 0xff":     {bytes.Repeat([]byte{0xff}, 100), 0, "speaks ZMTP 1.0"},
		"CURVE":                   {greeting(3, 1, "CURVE"), 0, `mechanism "CURVE"`},
		"nothing":                 {nil, 0, "EOF"},
		"half a greeting":         {greeting(3, 1, "NULL")[:40], 0, "unexpected EOF"},
		"no READY":                {greeting(3, 1, "NULL"), 0, "endpoints swapped?"},
		"a ROUTER":                {join(greeting(3, 1, "NULL"), ready("ROUTER")), 0, `"ROUTER" socket, and a SUB needs one of PUB, XPUB`},
		"ERROR":                   {join(greeting(3, 1, "NULL"), appendCommand(nil, commandError, []byte("\x07go away"))), 0, `refuses: "go away"`},
		"a message first":         {join(greeting(3, 1, "NULL"), appendMessage(nil, []byte("x"))), 0, "a message before READY"},
		"another command first":   {join(greeting(3, 1, "NULL"), appendCommand(nil, commandPing, []byte{0, 0})), 0, `"PING" before READY`},
		"a nameless command":      {join(greeting(3, 1, "NULL"), appendFrame(nil, flagCommand, nil)), 0, "without a name"},
		"a READY that lies":       {join(greeting(3, 1, "NULL"), appendCommand(nil, commandReady, []byte("\x01a\xff\xff\xff\xffx"))), 0, "a broken READY"},
		"a READY cut short":       {join(greeting(3, 1, "NULL"), appendCommand(nil, commandReady, []byte("\x20abc"))), 0, "a broken READY"},
		"a READY without a type":  {join(greeting(3, 1, "NULL"), appendCommand(nil, commandReady, nil)), 0, `the peer is a "" socket`},
		"a 1 GB frame for READY":  {join(greeting(3, 1, "NULL"), long(0, 1<<30, "x")), 0, "more than"},
		"a 1 GB command as READY": {join(greeting(3, 1, "NULL"), long(flagCommand, 1<<30, "x")), 0, "a command of 1073741824 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			got := make(chan []byte, 1)
			go func() {
				go func() { _, _ = theirs.Write(c.sends); time.Sleep(50 * time.Millisecond); theirs.Close() }()
				b, _ := io.ReadAll(theirs)
				got <- b
			}()
			_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
			_, minor, err := handshake(ours, Sub, 0)
			ours.Close()
			if c.want == "" && (err != nil || minor != c.minor) {
				t.Errorf("minor %d, %v", minor, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if b := <-got; !bytes.HasPrefix(b, appendGreeting(nil)) {
				t.Errorf("we sent %q", b)
			}
		})
	}
}

// What we send, byte for byte as RFC 37 has it.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"greeting":         {string(appendGreeting(nil)), "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01NULL" + strings.Repeat("\x00", 48)},
		"READY":            {string(appendReady(nil, Sub)), "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"},
		"READY of DEALER":  {string(appendReady(nil, Dealer)), "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"},
		"SUBSCRIBE":        {string(appendSubscribe(nil, "kv", 1)), "\x04\x0c\x09SUBSCRIBEkv"},
		"SUBSCRIBE of 3.0": {string(appendSubscribe(nil, "kv", 0)), "\x00\x03\x01kv"},
		"a long frame":     {string(appendMessage(nil, make([]byte, 256))[:9]), "\x02\x00\x00\x00\x00\x00\x00\x01\x00"},
		"the request":      {string(appendMessage(nil, nil, binary.BigEndian.AppendUint64(nil, 5))), "\x01\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x05"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"tcp://127.0.0.1:5557":   "{tcp 127.0.0.1:5557 false}",
		"tcp://engine-a:5557":    "{tcp engine-a:5557 false}",
		"tcp://[::1]:5557":       "{tcp [::1]:5557 false}",
		"tcp://*:5557":           "{tcp :5557 true}",
		"tcp://0.0.0.0:5557":     "{tcp 0.0.0.0:5557 true}",
		"tcp://[::]:5557":        "{tcp [::]:5557 true}",
		"ipc:///run/vllm/events": "{unix /run/vllm/events false}",
		"tcp://:5557":            "the host is missing",
		"tcp://h":                "missing port",
		"tcp://h:0":              `"0" is no port`,
		"tcp://h:99999":          `"99999" is no port`,
		"tcp://*:*":              `"*" is no port`,
		"http://h:1":             "http is neither tcp nor ipc",
		"inproc://x":             "inproc is neither tcp nor ipc",
		"ipc://":                 "the path is missing",
		"h:1":                    "is not tcp://host:port",
		"":                       "is not tcp://host:port",
	} {
		e, err := ParseEndpoint(in)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("{%s %s %v}", e.Network, e.Address, e.Bind)
			if again, err := ParseEndpoint(e.String()); err != nil || again.Address != e.Address || again.Bind != e.Bind {
				t.Errorf("%s is written %s", in, e)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %s", in, got, want)
		}
	}
}
