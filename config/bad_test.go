package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// badFiles holds, for each testdata/NAME.bad.yaml, every line that loading it
// must report. The file's own name and its colon are left out at the start of a
// line and written FILE inside.
var badFiles = map[string][]string{
	"aliases": {
		`7:5: model.aliases: an empty name; write name=model on both sides`,
		`8:8: model.aliases: an empty name; write name=model on both sides`,
	},
	"aliases-self": {
		`3:12: model.aliases: alias "a" means itself`,
		`3:12: model.aliases: alias "b" means "c", which is an alias too; name the served model`,
	},
	"aliases-twice": {
		`3:19: model.aliases: "a" is given twice`,
	},
	"bad-indent": {
		`3:2: not YAML: did not find expected key`,
	},
	"body-memory": {
		`4:9: limits.body: limits.body_memory (1MiB) is less than limits.body (2MiB); one body must fit`,
	},
	"bools": {
		`2:21: headers.x_ramjet: want true or false, got "maybe"`,
		`2:43: headers.server_timing: want true or false, got "2"`,
	},
	"control-character": {
		`2:13: tls.cert: holds a control character or is not UTF-8; name a file`,
		`2:26: tls.key: holds a control character or is not UTF-8; name a file`,
	},
	"dcgm": {
		`3:10: gpu.dcgm: url carries a user or password; leave it out, whatever needs a secret reads it from a file`,
		`3:39: gpu.dcgm: url "h:9400" has no scheme; did you mean http://h:9400?`,
		`3:49: gpu.dcgm: url "http://169.254.169.254/" leads to a link-local address`,
	},
	"duplicate-key": {
		`4:1: usage: given twice, first in line 2`,
	},
	"duplicate-mapping": {
		`5:1: route: given twice, first in line 2`,
	},
	"durations": {
		`3:9: timeouts.dial: duration 5 has no unit; did you mean 5s?`,
		`4:9: timeouts.head: negative duration -1s`,
		`5:16: timeouts.first_event: bad duration "1 minute"; write a number with ms, s, m or h, such as 30s`,
		`6:10: timeouts.total: bad duration ""; write a number with ms, s, m or h, such as 30s`,
		`7:10: timeouts.drain: bad duration "2d"; write a number with ms, s, m or h, such as 30s`,
		`8:20: health.interval: must be more than 0, is 0`,
		`8:32: health.timeout: must be more than 0, is 0s`,
	},
	"eject": {
		`2:25: eject.max: eject.max (5s) is less than eject.base (10s)`,
	},
	"engine-incomplete": {
		`2:5: engines.a.url: missing`,
		`3:5: engines[1].name: missing`,
	},
	"engine-name-twice": {
		`7:11: engines.a.name: the name is taken by the engine of FILE:2`,
	},
	"engine-names": {
		`2:12: engines[0].name: bad name "A"; 1 to 32 of a-z, 0-9 and -`,
		`3:12: engines[1].name: bad name ""; 1 to 32 of a-z, 0-9 and -`,
		`4:12: engines[2].name: bad name "abcdefghijklmnopqrstuvwxyz-0123456"; 1 to 32 of a-z, 0-9 and -`,
		`5:12: engines[3].name: bad name "a_b"; 1 to 32 of a-z, 0-9 and -`,
	},
	"engine-url-secret": {
		`3:10: engines.a.url: url carries a user or password; leave it out, whatever needs a secret reads it from a file`,
		`5:10: engines.b.url: url carries a user or password; leave it out, whatever needs a secret reads it from a file`,
	},
	"engine-urls": {
		`2:20: engines.a.url: url "127.0.0.1:8001" has no scheme; did you mean http://127.0.0.1:8001?`,
		`3:20: engines.b.url: url "ftp://h:1" is neither http nor https`,
		`4:20: engines.c.url: url "file:///etc/passwd" is neither http nor https`,
		`5:20: engines.d.url: url "http://" names no host; write http://host:port`,
		`6:20: engines.e.url: url "http://:8001" names no host; write http://host:port`,
		`7:20: engines.f.url: url "http://h:1/v1" has a path; did you mean http://h:1?`,
		`8:20: engines.g.url: url "http://h:1?x=1" has a query or fragment`,
		`9:20: engines.h.url: url "http://h:1/#" has a query or fragment`,
		`10:20: engines.i.url: url "http://h:0" has a bad port`,
		`11:20: engines.j.url: url "http://h:70000" has a bad port`,
		`12:20: engines.k.url: url "http://h:" has a bad port`,
		`13:20: engines.l.url: url "unix:///run/vllm.sock" is neither http nor https`,
		`14:20: engines.m.url: bad url "http://h h:1"; write http://host:port`,
		`15:20: engines.n.url: bad url "http://bücher.example:1"; write http://host:port`,
		`16:20: engines.o.url: url "http:h:1" names no host; write http://host:port`,
		`17:20: engines.p.url: no url; write http://host:port`,
	},
	"engines-empty": {
		` engines: no engine is given; add --engine NAME=http://HOST:PORT or an engines list`,
	},
	"engines-mapping": {
		`2:3: engines: want a list, got a mapping; write - name: a`,
	},
	"engines-scalars": {
		`2:5: engines[0]: want a mapping, got one value`,
		`3:4: engines[1]: an empty engine; write name and url`,
	},
	"events": {
		`2:43: engines.e0.events: bad events endpoint "on"; write auto, off, tcp://host:port or tcp://*:port`,
		`3:43: engines.e1.events: bad events endpoint "5557"; write auto, off, tcp://host:port or tcp://*:port`,
		`4:43: engines.e2.replay: bad replay endpoint "tcp://h"; write tcp://host:port, or tcp://*:port to bind`,
		`5:43: engines.e3.events: bad events endpoint "tcp://:5557"; write tcp://host:port, or tcp://*:port to bind`,
		`6:43: engines.e4.events: bad events endpoint "tcp://h:0"; write tcp://host:port, or tcp://*:port to bind`,
		`7:43: engines.e5.replay: bad replay endpoint "udp://h:1"; write auto, off, tcp://host:port or tcp://*:port`,
		`8:43: engines.e6.events: bad events endpoint "tcp://h:99999"; write tcp://host:port, or tcp://*:port to bind`,
		`9:43: engines.e7.events: bad events endpoint "tcp://0.0.0.0:5557"; write tcp://*:5557 to bind, or the engine's host to connect`,
		`10:43: engines.e8.events: bad events endpoint "tcp://::1:5557"; write tcp://host:port, or tcp://*:port to bind`,
		`11:44: engines.e9.replay: bad replay endpoint "tcp://h:1/x"; write tcp://host:port, or tcp://*:port to bind`,
		`12:45: engines.e10.events: events endpoint "tcp://169.254.169.254:80" leads to a link-local address`,
		`13:45: engines.e11.replay: bad replay endpoint "of"; did you mean off?`,
	},
	"events-bind-twice": {
		`3:42: engines.b.events: endpoint tcp://*:05557 is also events of engine a (FILE:2); each socket belongs to one engine`,
	},
	"events-replay-same": {
		`5:13: engines.a.replay: endpoint tcp://H:5557 is also events of engine a (FILE:4); each socket belongs to one engine`,
	},
	"events-twice": {
		`8:13: engines.b.events: endpoint tcp://127.0.0.1:5557 is also events of engine a (FILE:4); each socket belongs to one engine`,
		`9:13: engines.b.replay: endpoint tcp://localhost:5558 is also replay of engine a (FILE:5); each socket belongs to one engine`,
	},
	"everything": {
		`1:1: listn: unknown key; did you mean listen?`,
		`3:11: engines[0].name: bad name "A"; 1 to 32 of a-z, 0-9 and -`,
		`4:10: engines[0].url: url "http://169.254.169.254" leads to a link-local address`,
		`5:13: engines[0].events: bad events endpoint "tcp://h"; write tcp://host:port, or tcp://*:port to bind`,
		`7:11: route.policy: unknown policy "lat"; did you mean latency?`,
		`8:8: route.tie: duration 20 has no unit; did you mean 20s?`,
		`9:18: limits.header: size 1 has no unit; did you mean 1B?`,
		`10:13: tls.cert: tls.key is missing; a certificate needs both`,
	},
	"exact": {
		`2:16: route.exact: bad share "50"; did you mean 50%?`,
	},
	"exact-negative": {
		`2:16: route.exact: bad share "-1%"; write off, shadow or a percentage such as 10%`,
	},
	"exact-range": {
		`2:16: route.exact: share 100.5% is not within 0% and 100%`,
	},
	"exact-word": {
		`2:16: route.exact: bad share "shadows"; did you mean shadow?`,
	},
	"floats": {
		`2:23: route.delay_weight: want a number, got ".nan"`,
	},
	"floats-negative": {
		`2:23: route.delay_weight: must be at least 0, is -0.1`,
	},
	"gpus": {
		`2:44: engines.a.gpus: bad GPU index "-1"; write 0-3 or 0,1,2,3`,
		`3:40: engines.b.gpus: bad GPU index "3-1"; write 0-3 or 0,1,2,3`,
		`4:41: engines.c.gpus: bad GPU index "0-4000"; write 0-3 or 0,1,2,3`,
	},
	"group-scalar": {
		`2:8: route: want a mapping, got one value`,
	},
	"integers": {
		`3:14: health.successes: must be at least 1, is 0`,
		`4:13: health.failures: want a whole number, got "three"`,
		`5:16: eject.after: want a whole number, got "1.5"`,
		`7:10: limits.queue: must be at least 0, is -1`,
		`8:16: limits.connections: want a whole number, got "1_000"`,
		`9:24: route.memory_tokens: want auto or a whole number above 0, got "0"`,
		`9:46: route.profile_threshold: want a whole number, got "0x10"`,
	},
	"key-in-wrong-place": {
		`2:1: policy: unknown key; did you mean route.policy?`,
		`3:1: events: unknown key; did you mean events of an engine?`,
	},
	"key-not-scalar": {
		`2:3: a key must be a plain name`,
	},
	"leaf-mapping": {
		`2:8: relay: want one value, got a mapping`,
		`4:10: log.level: want one value, got a list`,
	},
	"list-mapping": {
		`2:9: listen: want one value or a list, got a mapping`,
		`3:17: paths.allow: want one value, got a list`,
	},
	"listen": {
		`2:10: listen: bad listen address "8000"; did you mean :8000?`,
		`2:18: listen: bad listen address "http://h:80"; write host:port or unix:///path, without http://`,
		`2:33: listen: bad listen address "h"; write host:port, such as 127.0.0.1:8000 or :8000`,
		`2:38: listen: bad listen address "h:http"; write host:port, such as 127.0.0.1:8000 or :8000`,
		`2:48: listen: bad listen address "h:70000"; write host:port, such as 127.0.0.1:8000 or :8000`,
		`2:59: listen: bad listen address "unix://run/x"; write unix:///path/to/socket`,
		`2:75: listen: bad listen address "::1:80"; write host:port, such as 127.0.0.1:8000 or :8000`,
		`2:85: listen: bad listen address "h:80 "; write host:port, such as 127.0.0.1:8000 or :8000`,
	},
	"listen-admin-socket": {
		`2:17: admin.listen: the admin port cannot be a socket file; write host:port, such as 127.0.0.1:9900`,
	},
	"listen-empty": {
		`2:9: listen: no address to listen on`,
		`3:17: admin.listen: bad listen address ""; write host:port, such as 127.0.0.1:8000 or :8000`,
	},
	"listen-overlap": {
		`2:9: listen: addresses :8000 and 127.0.0.1:8000 overlap`,
		`4:11: admin.listen: public address :8000 and admin address localhost:8000 overlap; the admin port must be its own`,
		`4:11: admin.listen: public address 127.0.0.1:8000 and admin address localhost:8000 overlap; the admin port must be its own`,
	},
	"merge-key": {
		`3:5: engines.b: merge keys (<<) are not supported`,
	},
	"metadata": {
		`2:21: engines.m0.url: url "http://169.254.169.254" leads to a link-local address`,
		`3:21: engines.m1.url: url "http://2852039166" leads to a link-local address`,
		`4:21: engines.m2.url: url "http://0xa9fea9fe/" leads to a link-local address`,
		`5:21: engines.m3.url: url "http://0251.0376.0251.0376" leads to a link-local address`,
		`6:21: engines.m4.url: url "http://0xA9.254.0251.0xfe" leads to a link-local address`,
		`7:21: engines.m5.url: url "http://169.16689662" leads to a link-local address`,
		`8:21: engines.m6.url: url "http://169.254.43518" leads to a link-local address`,
		`9:21: engines.m7.url: url "http://[::ffff:169.254.169.254]" leads to a link-local address`,
		`10:21: engines.m8.url: url "http://[::ffff:a9fe:a9fe]:80" leads to a link-local address`,
		`11:21: engines.m9.url: url "http://[::a9fe:a9fe]" leads to a link-local address`,
		`12:22: engines.m10.url: url "http://[64:ff9b::169.254.169.254]" leads to a link-local address`,
		`13:22: engines.m11.url: url "http://[2002:a9fe:a9fe::1]" leads to a link-local address`,
		`14:22: engines.m12.url: url "http://[fe80::1]:8001" leads to a link-local address`,
		`15:22: engines.m13.url: url "http://[fe80::1%25eth0]:8001" leads to a link-local address`,
		`16:22: engines.m14.url: url "http://[fd00:ec2::254]" leads to a cloud metadata service`,
		`17:22: engines.m15.url: url "http://metadata.google.internal" leads to a cloud metadata service`,
		`18:22: engines.m16.url: url "http://METADATA.google.internal./" leads to a cloud metadata service`,
		`19:22: engines.m17.url: url "http://100.100.100.200" leads to a cloud metadata service`,
		`20:22: engines.m18.url: url "http://169.254.169.254.:8001" leads to a link-local address`,
	},
	"no-engines": {
		` engines: no engine is given; add --engine NAME=http://HOST:PORT or an engines list`,
	},
	"not-utf8": {
		`3:12: not UTF-8 text`,
	},
	"null-item": {
		`3:11: paths.allow: an empty value`,
	},
	"pairs-list": {
		`3:12: model.aliases: want a mapping, got a list`,
	},
	"paths": {
		`3:11: paths.allow: bad path "sleep"; did you mean /sleep?`,
		`3:18: paths.allow: bad path "/a//b"; no empty, . or .. segments`,
		`3:25: paths.allow: bad path "/a/../b"; no empty, . or .. segments`,
		`3:34: paths.allow: bad path "/x*"; there are no wildcards: list each path`,
		`3:39: paths.allow: bad path "/a?b"; letters, digits and / _ - . only`,
		`3:47: paths.allow: bad path "/%2e"; letters, digits and / _ - . only`,
		`3:53: paths.allow: bad path "/a;b"; letters, digits and / _ - . only`,
	},
	"policy": {
		`6:11: route.policy: unknown policy "lat"; did you mean latency?`,
	},
	"root-list": {
		`1:1: want a mapping, got a list`,
	},
	"root-scalar": {
		`1:1: want a mapping, got one value`,
	},
	"second-document": {
		`2:1: a second document; everything belongs in one, without ---`,
	},
	"secret-as-file": {
		`2:21: admin.token_file: looks like a secret, not like a path; name a file that holds it`,
		`4:14: auth.keys_file: looks like a secret, not like a path; name a file that holds it`,
	},
	"sizes": {
		`3:9: limits.body: size 64 has no unit; did you mean 64B?`,
		`4:16: limits.body_memory: unknown unit "gib" in size 1gib; did you mean GiB?`,
		`5:11: limits.header: unknown unit "K" in size 32K; did you mean KiB or KB?`,
		`6:17: tokens.cache: bad size "-1MiB"; write a number with B, KiB, MiB, GiB, KB, MB or GB, such as 64MiB`,
		`6:35: tokens.max_bytes: must be more than 0, is 0`,
		`7:22: journal.max_bytes: size 0.3KiB is not a whole number of bytes`,
	},
	"sizes-range": {
		`2:18: limits.header: must be at least 1KiB, is 512B`,
		`2:30: limits.body: size 99999999999GiB is too large`,
		`3:22: journal.max_bytes: must be at least 4KiB, is 1B`,
	},
	"engines-too-many": {
		`66:22: engines.e64.url: 66 engines are given, at most 64 are possible; put another Ramjet in front of the rest`,
	},
	"syntax": {
		`2:1: not YAML: did not find expected ',' or ']'`,
	},
	"tab-indent": {
		`2:1: not YAML: found character that cannot start any token; indent with spaces, not tabs`,
	},
	"tls-half": {
		`3:8: tls.key: tls.cert is missing; a certificate needs both`,
	},
	"type-tag": {
		`2:8: usage: type tags (!!binary) are not supported`,
	},
	"unknown-anchor": {
		`1:9: not YAML: unknown anchor 'public' referenced`,
	},
	"unknown-engine-key": {
		`4:5: engines.a.in-flight: unknown key; did you mean in_flight?`,
		`5:5: engines.a.weight: unknown key; the nearest known one is events`,
	},
	"unknown-far": {
		`2:1: upstreams: unknown key; the nearest known one is listen`,
	},
	"unknown-key": {
		`2:1: rout: unknown key; did you mean route?`,
	},
	"unknown-nested-key": {
		`3:3: route.polcy: unknown key; did you mean route.policy?`,
	},
	"variable-syntax": {
		`3:9: tls.cert: ${ without }; write $${ for the characters themselves`,
		`4:8: tls.key: bad variable name "A-B" in ${..}; only ${NAME} is understood; write $${ for the characters themselves`,
	},
	"variable-unset": {
		`3:9: tls.cert: variable NOT_SET is not set`,
		`4:8: tls.key: variable NOT_SET is not set`,
	},
	"variable-value": {
		`3:11: route.policy: unknown policy "fast"; one of latency, least-tokens, round-robin, session`,
		`4:8: route.tie: bad duration "${SOME_TOKEN}"; write a number with ms, s, m or h, such as 30s`,
	},
	"words": {
		`1:49: engines.a.profile: unknown profile "mtp3"; did you mean mtp?`,
		`2:18: tokens.source: unknown source "hf"; one of auto, off, engine, local`,
		`3:17: handoff.mode: unknown mode "on"; one of off, auto`,
		`4:17: route.policy: unknown policy "random"; one of latency, least-tokens, round-robin, session`,
		`4:34: route.profile: unknown profile mode "learnt"; did you mean learned?`,
		`5:8: usage: unknown usage "passs"; did you mean pass?`,
		`6:8: relay: unknown relay "streaming"; did you mean stream?`,
		`7:15: gpu.source: unknown source "nvidia"; one of auto, off`,
		`8:14: log.level: unknown level "warning"; did you mean warn?`,
		`8:31: log.format: unknown format "logfmt"; one of auto, json, console`,
	},
}

// badEnv is the environment that the bad files are read in.
var badEnv = []string{"POLICY=fast", "SOME_TOKEN=hunter2"}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".bad.yaml")
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkBadFile(t, path, name)
		})
	}
	for name := range badFiles {
		if !slices.Contains(names, name) {
			t.Errorf("testdata/%s.bad.yaml is missing", name)
		}
	}
}

func checkBadFile(t *testing.T, path, name string) {
	cfg, err := Load(LoadOptions{Args: []string{"--config=" + path}, Env: badEnv})
	var problems Problems
	if !errors.As(err, &problems) || cfg != nil {
		t.Fatalf("got config %v and error %v, want no config and Problems", cfg != nil, err)
	}
	var got []string
	for _, p := range problems {
		line := strings.TrimPrefix(p.String(), path+":")
		got = append(got, strings.ReplaceAll(line, path, "FILE"))
		if p.Usage {
			t.Errorf("%s: a wrong file is no wrong usage", p)
		}
	}
	if want := badFiles[name]; !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := err.Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "sk-abcdef") {
		t.Errorf("the report repeats a secret:\n%s", text)
	}
}

// The parser is fed every beginning of every test file: it must report or
// accept, never panic, and a problem must have a place.
func TestFileCutAtEveryByte(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %d files, error %v", len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(data) + 1 {
			checkPlaces(t, data[:n])
		}
	}
}

func checkPlaces(t *testing.T, data []byte) {
	t.Helper()
	cfg, err := Load(LoadOptions{
		Args:           []string{"--config=f.yaml"},
		Env:            badEnv,
		ReadFile:       func(string) ([]byte, error) { return data, nil },
		AllowNoEngines: true,
	})
	if err == nil {
		if cfg == nil {
			t.Fatal("neither a config nor an error")
		}
		return
	}
	lines := len(yamlBreak.Split(string(data), -1))
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is a %T", err)
	}
	for _, p := range problems {
		if p.File != "f.yaml" || p.Line < 1 || p.Line > lines+1 || p.Col < 1 {
			t.Fatalf("%d bytes %q: problem without a place: %s", len(data), data, p)
		}
	}
}

func FuzzFile(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkPlaces(t, data)
	})
}
