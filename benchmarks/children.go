package benchmarks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Names of the modes in which cmd/streambench starts itself.
const (
	ModeEngine = "engine"
	ModeLoad   = "load"
	ModeHold   = "hold"
)

// Child runs one of the modes of the program and returns when it is over. Child processes have one P: their share of
// the machine must be the same beside every proxy.
func Child(mode string, args []string, in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	if _, err := RaiseDescriptors(); err != nil {
		return err
	}
	if mode == ModeEngine {
		return childEngine(in, out)
	}
	if len(args) != 1 {
		return fmt.Errorf("cannot run %s: one argument, the specification as JSON, is needed", mode)
	}
	if mode == ModeHold {
		return childHold(args[0], in, out)
	}
	var spec LoadSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return fmt.Errorf("cannot read the specification: %w", err)
	}
	res, err := Load(spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(res)
}

// childEngine serves until the parent closes in, which also happens when the parent dies.
func childEngine(in io.Reader, out io.Writer) error {
	e, err := NewEngine("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer e.Close()
	if _, err := fmt.Fprintln(out, e.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// childHold reports each step as a line of JSON and goes on when it gets a line.
func childHold(arg string, in io.Reader, out io.Writer) error {
	var spec HoldSpec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return fmt.Errorf("cannot read the specification: %w", err)
	}
	enc, lines := json.NewEncoder(out), bufio.NewScanner(in)
	var failed error
	err := Hold(spec, func(r HoldReport) {
		if failed == nil {
			failed = enc.Encode(r)
		}
		if failed == nil && !lines.Scan() {
			failed = errors.New("the parent is gone")
		}
	})
	return errors.Join(err, failed)
}

// engineProcess is a fake engine in a process of its own.
type engineProcess struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	address string
}

func startEngine(self string) (*engineProcess, error) {
	cmd := exec.Command(self, ModeEngine)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	e := &engineProcess{cmd: cmd, stdin: stdin, address: strings.TrimSpace(line)}
	if err != nil {
		e.stop()
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	return e, nil
}

func (e *engineProcess) stop() {
	_ = e.stdin.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	_ = e.cmd.Wait()
}

// counter reads one of the engine's own counters; 0 when it cannot.
func (e *engineProcess) counter(name string) int64 {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get("http://" + e.address + "/metrics")
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

func runLoad(ctx context.Context, self string, spec LoadSpec) (res LoadResult, err error) {
	arg, err := json.Marshal(spec)
	if err != nil {
		return res, err
	}
	cmd := exec.CommandContext(ctx, self, ModeLoad, string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return res, fmt.Errorf("cannot run the load generator: %w", err)
	}
	if err := json.Unmarshal(out, &res); err != nil {
		return res, fmt.Errorf("cannot read the load generator's result: %w", err)
	}
	return res, nil
}

// runHold calls reached at every step of spec.
func runHold(ctx context.Context, self string, spec HoldSpec, reached func(HoldReport) error) error {
	arg, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, ModeHold, string(arg))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("cannot hold streams: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("cannot hold streams: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot hold streams: %w", err)
	}
	dec := json.NewDecoder(stdout)
	for range spec.Steps {
		var r HoldReport
		if err = dec.Decode(&r); err == nil {
			err = reached(r)
		}
		if err != nil {
			break
		}
		if _, err = io.WriteString(stdin, "\n"); err != nil {
			break
		}
	}
	_ = stdin.Close()
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return fmt.Errorf("cannot hold streams: %w", err)
	}
	return nil
}
