package sim

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zmqPeer is a process of testdata/zmqpeer.py: a socket of real libzmq.
type zmqPeer struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan zmqLine // closed at the end of the output
	first zmqLine
}

type zmqLine struct {
	Missing string
	Bound   string
	Frames  []string
	Batch   json.RawMessage
}

// waitLimit is how long a test waits for what must come; on a loaded machine everything takes its time.
const waitLimit = 30 * time.Second

// startZMQ starts a peer and returns once its socket exists. It skips the test where pyzmq is missing.
func startZMQ(t *testing.T, args ...string) *zmqPeer {
	t.Helper()
	python, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("the environment .venv is missing: `make test` makes it")
	}
	p := &zmqPeer{t: t, cmd: exec.Command(python, append([]string{"testdata/zmqpeer.py"}, args...)...), lines: make(chan zmqLine, 1<<17)}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go func() {
		defer close(p.lines)
		r := bufio.NewScanner(stdout)
		r.Buffer(nil, 16<<20)
		for r.Scan() {
			var l zmqLine
			if err := json.Unmarshal(r.Bytes(), &l); err != nil {
				t.Errorf("zmqpeer.py says %q: %v", r.Text(), err)
				return
			}
			p.lines <- l
		}
	}()
	p.first = p.line()
	if p.first.Missing != "" {
		t.Skipf("Python's package %s is missing: `make test` installs it", p.first.Missing)
	}
	return p
}

// kill ends the process as SIGKILL does.
func (p *zmqPeer) kill() {
	_ = p.cmd.Process.Kill() // may have ended by itself
	_ = p.stdin.Close()
	for range p.lines {
	}
	_ = p.cmd.Wait() // says that it was killed
}

// resume ends --hold.
func (p *zmqPeer) resume() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// line waits for the next line.
func (p *zmqPeer) line() zmqLine {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatal("zmqpeer.py ended")
		}
		return l
	case <-time.After(waitLimit):
		p.t.Fatal("nothing came")
	}
	panic("BUG: unreachable")
}

// next waits for the next message.
func (p *zmqPeer) next() []string {
	p.t.Helper()
	return p.line().Frames
}

// quiet checks that nothing comes for a while.
func (p *zmqPeer) quiet(d time.Duration) {
	p.t.Helper()
	select {
	case l := <-p.lines:
		p.t.Errorf("got %v, want silence", l.Frames)
	case <-time.After(d):
	}
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

func hexSeq(n uint64) string { return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n)) }

// seqOf reads a number that hexSeq wrote.
func seqOf(t *testing.T, s string) uint64 {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 8 {
		t.Fatalf("sequence %q", s)
	}
	return binary.BigEndian.Uint64(b)
}

// await waits until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// joinAsk writes frames for --ask.
func joinAsk(frames ...string) string {
	for i, f := range frames {
		frames[i] = hexOf(f)
	}
	return strings.Join(frames, ",")
}
