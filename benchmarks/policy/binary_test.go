package policy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binarySpeed is how many times faster than the reference the sims are, so that a minute of arrivals takes 30 s. Times of
// the binary are multiplied by it.
const binarySpeed = 2

// binaryRun is one process of Ramjet in front of two sims.
type binaryRun struct {
	*testing.T
	public, admin string
	client        *http.Client
}

// start runs a command of the binary that ends with the test, and returns a reader of what it prints.
func (b *binaryRun) start(binary string, args ...string) *bufio.Reader {
	b.Helper()
	cmd := exec.Command(binary, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatalf("cannot start %s: %v", args[0], err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		for line := range strings.Lines(said.String()) {
			if b.Failed() && !strings.Contains(line, `"end":"done"`) {
				b.Log(line)
			}
		}
	})
	return bufio.NewReader(out)
}

// newBinaryRun builds the binary, unless RAMJET_BINARY names one, and starts everything.
func newBinaryRun(t *testing.T) *binaryRun {
	t.Helper()
	b := &binaryRun{T: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 2 * time.Minute}}
	dir := t.TempDir()
	binary := os.Getenv("RAMJET_BINARY")
	if binary == "" {
		binary = filepath.Join(dir, "ramjet")
		if out, err := exec.Command("go", "build", "-o", binary, "ramjet").CombinedOutput(); err != nil {
			t.Fatalf("cannot build ramjet: %v\n%s", err, out)
		}
	}
	folder, ports := filepath.Join(dir, "model"), filepath.Join(dir, "ports")
	if out, err := exec.Command(binary, "sim", "--write-model", folder).CombinedOutput(); err != nil {
		t.Fatalf("cannot write the model: %v\n%s", err, out)
	}
	// The limits are those of a machine that may be busy: what is compared is whom the requests go to.
	args := []string{"serve", "--timeouts.dial=20s", "--health.timeout=20s", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--port-file=" + ports, "--log.format=json",
		"--tokenizer=" + folder, "--tokens.max-time=5s", fmt.Sprintf("--route.tie=%v", 20*time.Millisecond/binarySpeed)}
	for i := range 2 {
		line, err := b.start(binary, "sim", "--listen=127.0.0.1:0", "--model=m", "--profile=standard", fmt.Sprint("--speed=", binarySpeed),
			fmt.Sprint("--seed=", i+1), fmt.Sprint("--kv-blocks=", cacheTokens/16), "--events=tcp://*:0", "--replay=tcp://*:0").ReadString('\n')
		_, url, ok := strings.Cut(strings.TrimSpace(line), "http://")
		if err != nil || !ok {
			t.Fatalf("the sim says %q: %v", line, err)
		}
		args = append(args, fmt.Sprintf("--engine=%c=http://%s,profile=standard", 'a'+i, url))
	}
	b.start(binary, args...)
	t.Cleanup(b.client.CloseIdleConnections) // before Ramjet is told to stop, which would wait for them
	b.until("the port file", func() bool {
		text, _ := os.ReadFile(ports)
		for _, line := range strings.Fields(string(text)) {
			name, address, _ := strings.Cut(line, "=")
			*map[string]*string{"public": &b.public, "admin": &b.admin}[name] = address
		}
		return b.admin != ""
	})
	b.until("both engines exact", func() bool { return b.exact() == 2 })
	b.teach()
	return b
}

func (b *binaryRun) until(what string, ok func() bool) {
	b.Helper()
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			b.Fatalf("waited in vain for %s", what)
		}
	}
}

// exact counts the engines whose cache is known exactly.
func (b *binaryRun) exact() (n int) {
	resp, err := b.client.Get("http://" + b.admin + "/api/v1/topology")
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	var v struct {
		Engines []struct{ State, Trust string }
	}
	_ = json.NewDecoder(resp.Body).Decode(&v)
	for _, e := range v.Engines {
		if e.State == "ready" && e.Trust == "exact" {
			n++
		}
	}
	return n
}

// A Ramjet that knows nothing of its engines takes them to be as fast as the reference, with short contexts. Sims at
// another speed are not, and where the first requests go depends on it: so both runs begin with lessons, which let both
// engines compute prompts and answers.
const (
	lessonRounds = 3
	lessonSize   = 4    // requests at once
	lessonEvery  = 3.0  // seconds; enough for one to be answered
	lessonsTake  = 10.0 // seconds
)

// lessons are the requests of one round.
func lessons(round int) (jobs []*job) {
	for i := range lessonSize {
		j := &job{at: float64(round) * lessonEvery, in: 8192, out: 48, limit: 48}
		for k := range j.in / mooncakeBlock {
			j.words = append(j.words, mix(uint64(1<<40+round<<20+i<<10+k))) //nolint:gosec // small
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// afterLessons puts the lessons before a load.
func afterLessons(load *workload) *workload {
	l := &workload{blockTokens: load.blockTokens}
	for round := range lessonRounds {
		l.jobs = append(l.jobs, lessons(round)...)
	}
	for _, j := range load.jobs {
		c := *j
		c.at += lessonsTake
		l.jobs = append(l.jobs, &c)
	}
	return l
}

// teach gives the lessons.
func (b *binaryRun) teach() {
	b.Helper()
	for round := range lessonRounds {
		var wg sync.WaitGroup
		for _, j := range lessons(round) {
			wg.Go(func() {
				if a := b.ask(j); a.err != nil {
					b.Errorf("cannot teach: %v", a.err)
				}
			})
		}
		wg.Wait()
	}
}

// answered is what a client saw of one request.
type answered struct {
	job        *job
	engine     string
	hit        int
	ttft, done time.Duration
	err        error
}

// body renders a job as a completion of token ids: 512 made of each word, and an end that no other job has.
func (j *job) body() []byte {
	b := append(make([]byte, 0, 6*j.in), `{"model":"m","stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"max_tokens":`...)
	b = append(strconv.AppendInt(b, int64(j.out), 10), `,"prompt":[`...)
	id := func(seed uint64, k int) {
		const words = 4000                                                    // of the sims' vocabulary
		b = append(strconv.AppendUint(b, mix(seed+uint64(k))%words, 10), ',') //nolint:gosec // small
	}
	for _, word := range j.words {
		for k := range mooncakeBlock {
			id(word, k)
		}
	}
	for k := range j.in - len(j.words)*mooncakeBlock {
		id(j.session^0x9e3779b97f4a7c15, k)
	}
	b[len(b)-1] = ']'
	return append(b, '}')
}

// ask sends a job and reads its answer.
func (b *binaryRun) ask(j *job) (a answered) {
	a.job = j
	began := time.Now()
	body := j.body()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+b.public+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = resp.Body.Close() }()
	a.engine = resp.Header.Get("X-Ramjet-Engine")
	lines := bufio.NewScanner(resp.Body)
	var usage, odd []byte
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			odd = append(odd, lines.Bytes()...)
			continue
		}
		if a.ttft == 0 {
			a.ttft = time.Since(began)
		}
		if bytes.Contains(data, []byte(`"prompt_tokens"`)) {
			usage = bytes.Clone(data)
		}
	}
	a.done = time.Since(began)
	var v struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Output  int `json:"completion_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	switch a.err = lines.Err(); {
	case a.err != nil:
	case resp.StatusCode != http.StatusOK:
		a.err = fmt.Errorf("status %d: %s", resp.StatusCode, odd)
	default:
		a.err = json.Unmarshal(usage, &v)
		if a.hit = v.Usage.Details.Cached; a.err == nil && (v.Usage.Prompt != j.in || v.Usage.Output != j.out) {
			a.err = fmt.Errorf("prompt of %d and answer of %d tokens, want %d and %d", v.Usage.Prompt, v.Usage.Output, j.in, j.out)
		}
	}
	return a
}

// keptUp is how late a job may be sent by a machine that keeps up.
const keptUp = 60 * time.Millisecond

// play sends a load's jobs at their times, and says whether the machine kept up with them: sims whose steps come late are
// slower than the virtual engines.
func (b *binaryRun) play(load *workload) (f figures, ok bool) {
	b.Helper()
	answers := make(chan answered, len(load.jobs))
	began := time.Now()
	var late time.Duration
	for _, j := range load.jobs {
		at := time.Duration(j.at / binarySpeed * float64(time.Second))
		time.Sleep(at - time.Since(began))
		late = max(late, time.Since(began)-at)
		go func() { answers <- b.ask(j) }()
	}
	var sum tally
	for range load.jobs {
		a := <-answers
		if a.err != nil {
			b.Fatalf("request at %.2f s: %v", a.job.at, a.err)
		}
		sum.add(a.job, int(a.engine[0]-'a'), a.hit, a.ttft.Seconds()*binarySpeed, a.done.Seconds()*binarySpeed)
	}
	b.Logf("%d requests in %v, sent %v late at most", len(load.jobs), time.Since(began).Round(time.Millisecond), late.Round(time.Millisecond))
	return sum.figures(), late <= keptUp
}

// tries is how often a load is played on a machine that does not keep up.
const tries = 3

// TestBinaryAgrees plays the herds and the hot prefix through the built binary and two sims, and in virtual time: both
// choose the same within a tenth, and requests take the same time within a tenth.
func TestBinaryAgrees(t *testing.T) {
	if os.Getenv("RAMJET_AGREES") == "" {
		t.Skip("two minutes in real time on a machine that does nothing else: RAMJET_AGREES=1 go test ./benchmarks/policy -run TestBinaryAgrees -v")
	}
	needTraces(t)
	chat, err := azure(tracesDir, "azure_llm_2023_conv.csv.gz", 6000)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		*scenario
		seconds float64
	}{{herd8, 65}, {single8, 30}} {
		t.Run(c.name, func(t *testing.T) {
			load := first(c.make(&traces{chat: chat}, rand.New(rand.NewPCG(1, 1)), false), c.seconds)
			runs := virtualRuns(t, []string{profileStandard, profileStandard}, afterLessons(load), lessonsTake, 9)
			var got figures
			kept := false
			for n := 1; n <= tries && !kept; n++ {
				t.Run(fmt.Sprint("try ", n), func(t *testing.T) { got, kept = newBinaryRun(t).play(load) })
				t.Logf("%d requests: virtual %+v, .., binary %+v", len(load.jobs), runs[0], got)
			}
			if !kept {
				t.Fatal("nothing is compared: this machine was too busy to keep time; run it where nothing else runs")
			}
			compareChoices(t, got, runs)
			compareTimes(t, got, runs)
		})
	}
}
