package growth

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"ramjet/benchmarks"
	"ramjet/benchmarks/lab"
)

// heldPace is the time between two tokens of a held stream: slow enough for 9,900 of them on two cores, with engine and
// client on the same two.
const heldPace = time.Second

// streams measures memory and CPU of the built binary over the number of open streams.
func (r *runner) streams() error {
	steps := r.plan.streams
	for len(steps) > 0 && steps[len(steps)-1] > benchmarks.MaxStreams(r.files) {
		steps = steps[:len(steps)-1]
	}
	memory := Curve{Name: "resident memory over that of the idle process, per stream"}
	cpu := Curve{Name: "CPU over that of the idle process, per token"}
	for _, n := range steps {
		memory.Points, cpu.Points = append(memory.Points, Point{X: float64(n)}), append(cpu.Points, Point{X: float64(n)})
	}
	var short string
	for range r.plan.streamRounds {
		failed, err := r.holdRound(steps, func(i int, perStream, perToken float64) {
			memory.Points[i].Y, cpu.Points[i].Y = append(memory.Points[i].Y, perStream), append(cpu.Points[i].Y, perToken)
		})
		if err != nil {
			return err
		}
		if failed != "" {
			short = "**Not every stream could be opened**, and those steps have no figure; the last time " + failed + ". "
		}
	}
	text := "`ramjet serve` with its defaults, two fake engines and the client in processes of their own; every stream gets one token a second. "
	text += short
	if len(steps) < len(r.plan.streams) {
		text += fmt.Sprintf("The limit of open files here, %d, leaves no room for more streams. ", r.files)
	}
	r.add(Chart{
		File: "streams-memory.svg", Per: true, Title: "Memory of a stream, by the number of streams", XTitle: "open streams", YTitle: "memory per stream", YUnit: Bytes,
		Text: text + "Resident memory less that of the same process before its first stream; in proportion is an exponent of 0. Where it did not grow by a page nothing is shown.", Curves: []Curve{memory},
	}, Chart{
		File: "streams-cpu.svg", Per: true, Title: "CPU of a token, by the number of streams", XTitle: "open streams, one token a second each", YTitle: "CPU per token", YUnit: Seconds,
		Text: text + "The CPU clock of the process less what it used while nobody asked it anything. A token costs less where several arrive in one wake-up.", Curves: []Curve{cpu},
	})
	return nil
}

// holdRound runs a fresh proxy and opens streams step by step. What failed of them, if some did, is no error: on a machine
// that does other things the engines may not accept as fast as streams are opened.
func (r *runner) holdRound(steps []int, took func(i int, perStream, perToken float64)) (failed string, err error) {
	dir, err := os.MkdirTemp(r.dir, "streams-")
	if err != nil {
		return "", err
	}
	var flags, targets []string
	for i := range 2 {
		e, err := startEngine(r.self)
		if err != nil {
			return "", err
		}
		defer e.stop()
		flags = append(flags, "--engine", fmt.Sprintf("%c=http://%s", 'a'+i, e.address))
	}
	p, err := lab.StartProxy(r.cfg.Binary, dir, flags...)
	if err != nil {
		return "", err
	}
	defer p.Stop()
	targets = []string{p.Public}
	if _, err := r.load(benchmarks.LoadSpec{Mode: benchmarks.ModeStream, Targets: targets, Streams: 8, Requests: 2, Tokens: 5, PaceMicros: 1000}); err != nil {
		return "", err
	}
	idle, err := p.Window(r.ctx, r.plan.window)
	if err != nil {
		return "", err
	}
	base, err := p.Resident()
	if err != nil {
		return "", err
	}
	spec := benchmarks.HoldSpec{Targets: targets, Steps: steps, PerSecond: 500, PaceMicros: int(heldPace.Microseconds()), Seed: r.nextSeed()}
	at := 0
	err = r.hold(spec, func(h benchmarks.HoldReport) error {
		if h.Errors > 0 || h.Live != int64(h.Want) {
			failed = fmt.Sprintf("%d of %d streams run, %d failed: %s", h.Live, h.Want, h.Errors, h.First)
			r.say("%s", failed)
			took(at, 0, 0) // no figure: a point without a logarithm
			at++
			return nil
		}
		used, err := p.Window(r.ctx, r.plan.window)
		if err != nil {
			return err
		}
		rss, err := p.Resident()
		if err != nil {
			return err
		}
		n := float64(h.Want)
		r.say("%5d streams: %s a stream, %s of CPU a token, process %s of a core", h.Want, Bytes.format((rss-base)/n, 3), Seconds.format(max(0, used-idle)/n, 3), Cores.format(used, 2))
		took(at, (rss-base)/n, (used-idle)/n*heldPace.Seconds())
		at++
		return nil
	})
	return failed, err
}

// engineChild is a fake engine in a process of its own, with one P: its CPU must not be booked on the proxy.
type engineChild struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

func startEngine(self string) (*engineChild, error) {
	cmd := exec.Command(self, benchmarks.ModeEngine)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("cannot start an engine: %w, %w", err1, err2)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	e := &engineChild{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if e.address = strings.TrimSpace(line); err != nil {
		e.stop()
		return nil, fmt.Errorf("cannot start an engine: %w", err)
	}
	return e, nil
}

// stop closes the engine's input, which ends it.
func (e *engineChild) stop() {
	_ = e.stdin.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	_ = e.cmd.Wait()
}

// load runs the load generator in a process of its own; a failed request is an error.
func (r *runner) load(spec benchmarks.LoadSpec) (res benchmarks.LoadResult, err error) {
	spec.Seed = r.nextSeed()
	arg, err := json.Marshal(spec)
	if err != nil {
		return res, err
	}
	cmd := exec.CommandContext(r.ctx, r.self, benchmarks.ModeLoad, string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &res)
	}
	if err == nil && res.Errors > 0 {
		err = fmt.Errorf("%d failed requests: %s", res.Errors, res.FirstError)
	}
	if err != nil {
		return res, fmt.Errorf("cannot run the load generator: %w", err)
	}
	return res, nil
}

// hold opens streams in a process of its own and calls reached at every step.
func (r *runner) hold(spec benchmarks.HoldSpec, reached func(benchmarks.HoldReport) error) error {
	arg, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(r.ctx, r.self, benchmarks.ModeHold, string(arg))
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		return fmt.Errorf("cannot hold streams: %w, %w", err1, err2)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot hold streams: %w", err)
	}
	steps := json.NewDecoder(stdout)
	for range spec.Steps {
		var h benchmarks.HoldReport
		if err = steps.Decode(&h); err == nil {
			err = reached(h)
		}
		if err == nil {
			_, err = io.WriteString(stdin, "\n")
		}
		if err != nil {
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
