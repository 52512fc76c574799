package config

import (
	"fmt"
	"testing"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	a := mustLoad(t, LoadOptions{Args: []string{"--config=x"}, ReadFile: reader("usage: inject\nengines: [{name: a, url: 'http://h:1'}, {url: 'http://h:2/', name: b}]\nroute: {tie: 1s}\n")})
	b := mustLoad(t, LoadOptions{Args: []string{"--engine=b=http://h:2", "--engine=a=http://h:1", "--route.tie=1000ms"}, Env: []string{"RAMJET_USAGE=inject"}})
	if a.Digest() != b.Digest() {
		t.Error("source, order and notation must not change the digest")
	}
	if d := a.Digest(); len(d) != 12 || d != a.Digest() {
		t.Errorf("digest is %q", d)
	}
	swapped := mustLoad(t, LoadOptions{Args: []string{"--engine=a=http://h:2", "--engine=b=http://h:1", "--route.tie=1s", "--usage=inject"}})
	if swapped.Digest() == a.Digest() {
		t.Error("swapped engines are another configuration")
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	base := []string{"--engine=a=http://h:1", "--engine=b=http://h:2"}
	for _, tt := range []struct {
		name             string
		args             []string
		changed, restart string
	}{
		{"nothing", base, "[]", "[]"},
		{"order of engines", []string{base[1], base[0]}, "[]", "[]"},
		{"a value said again", append([]string{"--route.tie=0.02s"}, base...), "[]", "[]"},
		{"live", append([]string{"--route.tie=1s", "--log.level=warn"}, base...), "[log.level route.tie]", "[]"},
		{"restart", append([]string{"--listen=:1", "--relay=stream", "--usage=inject"}, base...), "[listen relay usage]", "[listen relay]"},
		{"engine changed", []string{base[0] + ",profile=mtp", base[1]}, "[engines.a.profile]", "[]"},
		{"engine gone", base[:1], "[engines.b]", "[]"},
		{"engine renamed", []string{base[0], "--engine=c=http://h:2"}, "[engines.b engines.c]", "[]"},
	} {
		changed, restart := Diff(mustLoad(t, LoadOptions{Args: base}), mustLoad(t, LoadOptions{Args: tt.args}))
		if c, r := fmt.Sprint(changed), fmt.Sprint(restart); c != tt.changed || r != tt.restart {
			t.Errorf("%s: got %s, restart %s, want %s, restart %s", tt.name, c, r, tt.changed, tt.restart)
		}
	}
}

// A changed secret is a change, though no dump shows it.
func TestDiffSeesSecrets(t *testing.T) {
	t.Parallel()
	load := func(secret string) *Config {
		return mustLoad(t, LoadOptions{
			Args: []string{"--config=x"}, Env: []string{"A_KEY=" + secret},
			ReadFile: reader(oneEngine + "model: {aliases: {a: '${A_KEY}'}}\n"),
		})
	}
	a, b := load("one"), load("two")
	if changed, _ := Diff(a, b); fmt.Sprint(changed) != "[model.aliases]" || a.Digest() == b.Digest() {
		t.Errorf("changed: %v", changed)
	}
}
