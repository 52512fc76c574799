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
		{"live", append([]string{"--route.tie=1s", "--auth.keys-file=k"}, base...), "[auth.keys_file route.tie]", "[]"},
		{"one process", append([]string{"--log.level=warn", "--tokens.max-time=1s"}, base...), "[log.level tokens.max_time]", "[log.level tokens.max_time]"},
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

// TestKeep: what needs a restart stays, with its source; the rest is new.
func TestKeep(t *testing.T) {
	t.Parallel()
	running := mustLoad(t, LoadOptions{Args: []string{"--config=x", "--engine=a=http://h:1", "--listen=:1"}, ReadFile: reader("relay: stream\n")})
	next := mustLoad(t, LoadOptions{Args: []string{"--config=y", "--engine=b=http://h:2", "--route.tie=1s"}, ReadFile: reader("listen: ':2'\nlimits: {body: 3GiB, body_memory: 4GiB}\n")})
	c := Keep(running, next)
	if changed, restart := Diff(running, c); fmt.Sprint(changed) != "[engines.a engines.b limits.body route.tie]" || len(restart) > 0 {
		t.Errorf("taken over are %v, against the rule %v", changed, restart)
	}
	for key, want := range map[string]string{"listen": "flag --listen", "relay": "x:1", "route.tie": "flag --route.tie", "limits.body": "y:2", "limits.body_memory": "default"} {
		if got := c.Source(key); got != want {
			t.Errorf("the source of %s is %s, want %s", key, got, want)
		}
	}
	if c.Limits.Body != running.Limits.BodyMemory {
		t.Errorf("one body may have %d bytes, more than all together", c.Limits.Body)
	}
	if next.Source("listen") != "y:1" || next.Limits.Body != 3<<30 {
		t.Error("the configuration that was loaded is changed")
	}
	if again := Keep(c, c); again.Digest() != c.Digest() {
		t.Error("a second time makes a difference")
	}
}
