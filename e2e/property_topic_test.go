package e2e

import (
	"slices"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC22CheckProbe: `check --probe` tells a topic that fits nothing from one that fits, names both, and needs
// neither a replay socket nor an event that was there before.
func TestCaseC22CheckProbe(t *testing.T) {
	t.Parallel()
	const wrong = `bad the engine publishes "kv@10.0.0.1@m", and the subscription is "nope"; set engines.topic`
	noReplay := []string{"--events=tcp://*:0"}
	for _, c := range []struct {
		what, topic string
		sim         []string
		code        int
		want        string // level and words of the line about the topic
	}{
		{"the very topic", "kv@10.0.0.1@m", rig.Publishing, 0, `ok the engine publishes "kv@10.0.0.1@m"`},
		{"a prefix", "kv@10.0.0.1", rig.Publishing, 0, `ok which the subscription "kv@10.0.0.1" takes`},
		{"fits nothing", "nope", rig.Publishing, 1, wrong},
		{"fits nothing, no replay", "nope", noReplay, 1, wrong},
		{"fits, no replay and no event yet", "kv@", noReplay, 0, `ok the engine publishes "kv@10.0.0.1@m", which the subscription "kv@" takes`},
		{"longer than what is published", "kv@10.0.0.1@m2", rig.Publishing, 1, `bad and the subscription is "kv@10.0.0.1@m2"`},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			sim := rig.StartSim(t, "a", slices.Concat(simFast, c.sim, []string{"--topic=kv@10.0.0.1@m"})...)
			code, out, errs := runRamjet(t, "", "check", "--probe", "--engine", "a="+sim.URL()+",topic="+c.topic, "--tokens.source=off")
			level, text := probeLines(out, "a")
			l, words, _ := strings.Cut(c.want, " ")
			if level["topic"] != l || !containsAll(text["topic"], strings.Split(words, "; ")) || code != c.code || errs != "" {
				t.Errorf("exit %d, want %d; topic %q %q, want %q %s\n%s", code, c.code, level["topic"], text["topic"], c.want, errs, out)
			}
		})
	}
}
