package handoff

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"ramjet/benchmarks/lab"
)

// perVisit is how many requests each of those at once makes in a visit.
const perVisit = 6

// rate returns requests a second.
func (v Visit) rate() float64 { return float64(v.Requests) / v.Seconds }

// address returns where a way begins, and the process in between, nil for none.
func (r *runner) address(way string) (base string, router *lab.Process) {
	switch way {
	case Asking:
		return r.askingURL(), r.asking
	case Ramjet:
		return "http://" + r.proxy.Public, r.proxy.Process
	}
	return r.engine, nil
}

// visit sends turns of the conversation by one way.
func (r *runner) visit(way string, atOnce int) (v Visit, err error) {
	base, router := r.address(way)
	v = Visit{Way: way, AtOnce: atOnce, Requests: atOnce * perVisit}
	bodies := make([][]byte, v.Requests)
	for i := range bodies {
		bodies[i] = r.talk.turn()
	}
	handedBefore, err := r.handed()
	if err != nil {
		return v, err
	}
	apiBefore, routerBefore, err := r.clocks(router)
	if err != nil {
		return v, err
	}
	answers, err := r.ask(base, bodies, atOnce, &v)
	if err != nil {
		return v, err
	}
	time.Sleep(100 * time.Millisecond) // what follows an answer belongs to it, Ramjet's sample of ids too
	apiAfter, routerAfter, err := r.clocks(router)
	if err != nil {
		return v, err
	}
	n := float64(v.Requests)
	v.API, v.Router = (apiAfter-apiBefore)/n, (routerAfter-routerBefore)/n
	for _, s := range answers {
		v.First = append(v.First, s.first.Seconds())
		v.Prompt += float64(s.prompt) / n
		if s.cached < s.prompt-3*blockTokens {
			return v, fmt.Errorf("%d of %d tokens were cached: this is no conversation that comes back", s.cached, s.prompt)
		}
	}
	handed, err := r.handed()
	if want := map[bool]int{true: v.Requests}[way == Ramjet]; err == nil && handed-handedBefore != want {
		err = fmt.Errorf("ids were handed over in %d of %d requests, not %d", handed-handedBefore, v.Requests, want)
	}
	return v, err
}

// ask sends all bodies, so many at once, each of those over a connection of its own.
func (r *runner) ask(base string, bodies [][]byte, atOnce int, v *Visit) ([]seen, error) {
	c, end := client()
	defer end()
	answers, errs := make([]seen, len(bodies)), make([]error, atOnce)
	var all sync.WaitGroup
	began := time.Now()
	for w := range atOnce {
		all.Go(func() {
			for i := w; i < len(bodies) && errs[w] == nil && r.ctx.Err() == nil; i += atOnce {
				answers[i], errs[w] = send(c, base, bodies[i])
			}
		})
	}
	all.Wait()
	v.Seconds = time.Since(began).Seconds()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, r.ctx.Err()
}

// clocks reads the CPU clocks of the engine's API process and of the router.
func (r *runner) clocks(router *lab.Process) (api, between float64, err error) {
	if api, err = lab.CPUOf(r.api); err == nil && router != nil {
		between, err = router.CPU()
	}
	return api, between, err
}

// blockTokens is the engine's block size.
const blockTokens = 128

// vllmLimit bounds how long a server may take until it is healthy: 25 s alone on two quiet cores, minutes on busy ones.
const vllmLimit = 15 * time.Minute

// start runs vLLM, then both routers in front of it.
func (r *runner) start() error {
	ports, err := lab.FreePorts(2)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(r.cfg.VLLM)
	if err != nil {
		return err
	}
	model := filepath.Join(folder, "models", "long")
	if _, err := os.Stat(model); err != nil {
		return fmt.Errorf("real vLLM is not installed: %w (scripts/vllm-install.sh does it)", err)
	}
	r.engine = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	began := time.Now()
	r.vllm, err = lab.Start(r.dir, "vllm", filepath.Join(folder, "venv", "bin", "python"), r.cfg.Serve, model, "--until-eof", "--port", strconv.Itoa(ports[0]),
		"--context", "131072", "--block-size", strconv.Itoa(blockTokens))
	if err != nil {
		return err
	}
	if err := r.vllm.Await("vLLM", vllmLimit, func() bool { return r.ctx.Err() != nil || lab.Answers(r.engine+"/health") }); err != nil {
		return err
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.say("vLLM is healthy after %.0f s", time.Since(began).Seconds())
	if r.api, err = r.apiProcess(); err != nil {
		return err
	}
	if err := r.versions(folder); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %w", err)
	}
	r.meta.asking = fmt.Sprintf("127.0.0.1:%d", ports[1])
	if r.asking, err = lab.Start(r.dir, "asking", self, ModeAsk, r.meta.asking, r.engine); err != nil {
		return err
	}
	if err := r.asking.Await("the asking router", lab.StartLimit, func() bool { return lab.Answers(r.askingURL() + "/health") }); err != nil {
		return err
	}
	// A machine that runs a server beside it may take the processor away for longer than the usual 20 ms.
	r.meta.Flags = "--handoff.mode=auto --tokens.max-time=1s"
	r.proxy, err = lab.StartProxy(r.cfg.Binary, r.dir, "--engine", "a="+r.engine, "--tokenizer", model, "--handoff.mode=auto", "--tokens.max-time=1s")
	return err
}

func (r *runner) askingURL() string { return "http://" + r.meta.asking }

func (r *runner) stop() {
	if r.proxy != nil {
		r.proxy.Stop()
	}
	r.asking.Stop()
	r.vllm.Stop()
}

// apiProcess reads the number that scripts/vllm-serve.py printed first.
func (r *runner) apiProcess() (pid int, err error) {
	text, err := os.ReadFile(r.vllm.Log)
	if err != nil {
		return 0, err
	}
	for line := range linesOf(text) {
		if n, _ := fmt.Sscanf(line, "pid %d", &pid); n == 1 {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("cannot find vLLM's process in what it said: %.200s", text)
}
