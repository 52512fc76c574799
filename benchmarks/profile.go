package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// profileSeconds is how long each load is profiled: some 4,000 samples a load at the 100 Hz of the runtime, on two cores.
const profileSeconds = 28

// Profile runs the built binary under the loads that a proxy of language models sees most (short answers, streams, and
// sessions of long prompts that come back) and writes the merged CPU profile to out. The compiler takes it as
// default.pgo; which loads are in it decides what it makes faster, so every load gets the same time.
func Profile(ctx context.Context, cfg Config, out string) (err error) {
	cfg.Skip = append(cfg.Skip, "syscalls", "memory")
	b, err := prepare(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.stop()
	t, err := b.start(ramjetStarter(b.cfg.Binary, b.cfg.Name, b.cfg.Extra...))
	if err != nil {
		return err
	}
	defer t.stop()
	sessions, stop, err := b.sessionTarget(ctx)
	if err != nil {
		return err
	}
	defer stop()
	loads := []struct {
		target *target
		run    func(context.Context) error
	}{
		{t, b.profileLoad(t, shortScenario(profileSeconds+1).spec)},
		{t, b.profileLoad(t, streamScenario(scenarioC16, 16, profileSeconds/2+1).spec)},
		{t, b.profileLoad(t, streamScenario(scenarioC64, 64, profileSeconds/2+1).spec)},
		{sessions, func(ctx context.Context) error { return profileSessions(ctx, sessions.addresses[0]) }},
	}
	var parts []string
	for i, load := range loads {
		part := filepath.Join(b.dir, "cpu"+strconv.Itoa(i))
		if err := profileOne(ctx, load.target.admin, part, load.run); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	merged, err := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof", "-proto"}, parts...)...).Output()
	if err != nil {
		return fmt.Errorf("cannot merge the profiles: %w", err)
	}
	if err := os.WriteFile(out, merged, 0o600); err != nil {
		return fmt.Errorf("cannot write the profile: %w", err)
	}
	b.say("%d bytes of profile, %d loads of %d s each", len(merged), len(parts), profileSeconds)
	return nil
}

// sessionTarget starts Ramjet with a tokenizer in front of simulated engines, whose speed is far above a real one's: what
// is profiled is the proxy.
func (b *bench) sessionTarget(ctx context.Context) (*target, func(), error) {
	model := filepath.Join(b.dir, "model")
	if text, err := exec.CommandContext(ctx, b.cfg.Binary, "sim", "--write-model", model).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("cannot write a tokenizer: %w: %s", err, text)
	}
	var engines []*process
	stop := func() {
		for _, e := range engines {
			e.stop()
		}
	}
	var addresses []string
	for range 2 {
		address, err := freePort()
		if err != nil {
			stop()
			return nil, nil, err
		}
		e, err := startProcess(b.dir, "sim", b.cfg.Binary, "sim", "--listen", address, "--model", Model, "--speed", "1000")
		if err != nil {
			stop()
			return nil, nil, err
		}
		engines, addresses = append(engines, e), append(addresses, address)
		if err := e.wait("sim", 15*time.Second, func() bool { return answers200("http://" + address + "/health") }); err != nil {
			stop()
			return nil, nil, err
		}
	}
	t, err := ramjetStarter(b.cfg.Binary, b.cfg.Name, append(b.cfg.Extra, "--tokens.path="+model)...)(b.dir, addresses)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return t, func() { t.stop(); stop() }, nil
}

func (b *bench) profileLoad(t *target, spec LoadSpec) func(context.Context) error {
	spec.Targets, spec.Seed = t.addresses, b.cfg.Seed
	return func(ctx context.Context) error {
		res, err := runLoad(ctx, b.self, spec)
		if err == nil && res.Errors > 0 {
			err = fmt.Errorf("%d requests failed: %s", res.Errors, res.FirstError)
		}
		return err
	}
}

// profileOne takes a profile while load runs.
func profileOne(ctx context.Context, admin, name string, load func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = load(ctx) })
	defer wg.Wait()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, profileSeconds), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot take a profile: %w", err)
	}
	profile, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot take a profile: %s %w", resp.Status, err)
	}
	wg.Wait()
	if failed != nil {
		return fmt.Errorf("cannot put load on ramjet: %w", failed)
	}
	return os.WriteFile(name, profile, 0o600)
}

// profileSessions holds eight conversations whose prompts grow to some 200 KB, a turn every 5 ms.
func profileSessions(ctx context.Context, address string) error {
	rng := rand.New(rand.NewPCG(1, 2))
	sessions := make([]strings.Builder, 8)
	for end := time.Now().Add((profileSeconds + 1) * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		s := &sessions[rng.IntN(len(sessions))]
		if s.Len() > 200<<10 {
			s.Reset()
		}
		if s.Len() == 0 {
			_, _ = fmt.Fprintf(s, `{"role":"system","content":"session %d `, rng.Uint64())
			for range 8 << 10 {
				_, _ = s.WriteString(word(rng))
			}
			_, _ = s.WriteString(`"}`)
		}
		_, _ = s.WriteString(`,{"role":"user","content":"`)
		for range 200 {
			_, _ = s.WriteString(word(rng))
		}
		_, _ = s.WriteString(`"}`)
		body := `{"model":"` + Model + `","max_tokens":2,"messages":[` + s.String() + `]}`
		resp, err := http.Post("http://"+address+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a session was answered %s: %s", resp.Status, bytes.TrimSpace(text))
		}
	}
	return nil
}

// word is an English-like word with a space behind it.
func word(rng *rand.Rand) string {
	const letters = "etaoinshrdlucmfw"
	n := 2 + rng.IntN(7)
	w := make([]byte, 0, n+1)
	for range n {
		w = append(w, letters[rng.IntN(len(letters))])
	}
	return string(append(w, ' '))
}
