package config

import (
	"strings"
	"testing"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, flags, rest string }{
		{"", "", ""},
		{"--listen :1 --port-file F", "--listen=:1", "--port-file F"},
		{"--port-file F --listen=:1 x", "--listen=:1", "--port-file F x"},
		{"--headers.x-ramjet --json", "--headers.x-ramjet", "--json"},
		{"--headers.x-ramjet false y", "--headers.x-ramjet=false", "y"},
		{"--headers.x-ramjet y", "--headers.x-ramjet", "y"},
		{"--headers.x_ramjet=no", "--headers.x_ramjet=no", ""},
		{"--route.delay_weight 0.1", "--route.delay_weight=0.1", ""},
		{"--engine a=http://h:1,profile=mtp --engine b=http://h:2", "--engine=a=http://h:1,profile=mtp --engine=b=http://h:2", ""},
		{"--listen", "--listen", ""},
		{"--listen --json", "--listen", "--json"},
		{"--limits.queue -1", "--limits.queue=-1", ""},
		{"--config -", "--config=-", ""},
		{"--nope --exact=1%", "--exact=1%", "--nope"},
		{"-h --exact 1% -- --listen :1", "--exact=1%", "-h -- --listen :1"},
		{"listen :1", "", "listen :1"},
	} {
		flags, rest := ParseArgs(strings.Fields(tt.args))
		if f, r := strings.Join(flags, " "), strings.Join(rest, " "); f != tt.flags || r != tt.rest {
			t.Errorf("%q: got %q and %q, want %q and %q", tt.args, f, r, tt.flags, tt.rest)
		}
	}
}

func TestUnknownFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--port-file F --json x -v":    "",
		"--port-fil F":                 "flag --port-fil: unknown flag; did you mean --port-file?",
		"--route.polcy=x --json":       "flag --route.polcy: unknown flag; did you mean --route.policy?",
		"--policy x":                   "flag --policy: unknown flag; did you mean --route.policy?",
		"--engines=x":                  "flag --engines: unknown flag; did you mean --engine?",
		"--timeouts.eventgap 1s":       "flag --timeouts.eventgap: unknown flag; did you mean --timeouts.event-gap?",
		"--completely-different-thing": "flag --completely-different-thing: unknown flag; the nearest known one is --",
		"-- --port-fil":                "",
	} {
		ps := UnknownFlags(strings.Fields(args), "port-file", "json")
		got := ""
		if len(ps) > 0 {
			got = ps.Error()
		}
		if got != want && (!strings.HasSuffix(want, "--") || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
		if got != "" && !ps.Usage() {
			t.Errorf("%q: must be wrong usage", args)
		}
	}
}

func TestBooleanFlags(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]bool{
		"--headers.x-ramjet": true, "--headers.x-ramjet=true": true, "--headers.x-ramjet=1": true, "--headers.x-ramjet=Yes": true,
		"--headers.x-ramjet=false": false, "--headers.x-ramjet=0": false, "--headers.x-ramjet=off": false,
	} {
		c := mustLoad(t, LoadOptions{Args: []string{arg, "--engine=a=http://h:1"}, Env: []string{"RAMJET_HEADERS_X_RAMJET=" + map[bool]string{true: "no", false: "yes"}[want]}})
		if c.Headers.XRamjet != want {
			t.Errorf("%s: got %v", arg, c.Headers.XRamjet)
		}
	}
}
