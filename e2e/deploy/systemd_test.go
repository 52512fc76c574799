package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// mostExposure is what `systemd-analyze security` may come to at most, of 10; an unhardened service has 9.6.
const mostExposure = 2.0

// TestSystemdUnit: systemd itself finds nothing wrong with the unit, and little that an intruder could do from it.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit := read(t, "deploy/systemd/ramjet.service")
	var config struct {
		Listen   string
		Admin    struct{ Listen string }
		Timeouts struct{ Drain string }
	}
	unmarshal(t, "deploy/systemd/ramjet.yaml", &config)
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(unit)
	if stop == nil || duration(t, stop[1]) < duration(t, config.Timeouts.Drain)+5*time.Second {
		t.Errorf("systemd kills after %v, before the drain of %s", stop, config.Timeouts.Drain)
	}
	var ports []string
	for _, m := range regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindAllStringSubmatch(read(t, "deploy/systemd/ramjet.socket"), -1) {
		ports = append(ports, m[1])
	}
	if want := []string{strings.TrimPrefix(config.Listen, ":"), config.Admin.Listen}; !slices.Equal(ports, want) {
		t.Errorf("ramjet.socket listens on %v, ramjet.yaml on %v", ports, want)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing (apt-get install systemd): the unit is not verified here")
	}
	// The unit as it is, with the binary where this machine has it.
	file := filepath.Join(t.TempDir(), "ramjet.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/ramjet", binary(t, ""))), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(file), "ramjet.socket")
	if err := os.WriteFile(socket, []byte(read(t, "deploy/systemd/ramjet.socket")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file, socket).CombinedOutput(); err != nil || strings.Contains(string(out), "ramjet.") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", file).CombinedOutput()
	level := regexp.MustCompile(`Overall exposure level for ramjet.service: ([0-9.]+)`).FindSubmatch(out)
	if level == nil {
		t.Skipf("this systemd-analyze cannot judge a file (%v, it is older than 250)", err)
	}
	var exposure float64
	if _, err := fmt.Sscan(string(level[1]), &exposure); err != nil || exposure > mostExposure {
		t.Errorf("the exposure is %s, more than %v\n%s", level[1], mostExposure, out)
	}
}
