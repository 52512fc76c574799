// Package deploy checks what is shipped beside the binary: the Grafana
// dashboard, the alerts, the compose files, the systemd unit, the Kubernetes
// manifests, every configuration among them, and what the documents say.
//
// Each is held against the thing itself: names of metrics against the /metrics
// of a running binary, alerts against a real Prometheus while a fault is on,
// flags against --help, configurations against `ramjet check`, figures against
// the files that the measurements wrote. The tests build one binary, leave
// loopback never, signal only processes that they started, and run in parallel.
// What needs promtool gets it by scripts/promtool.sh; where that cannot, and
// where systemd is missing, the test says so and is skipped.
//
// RAMJET_BINARY names a binary to test instead of building one; with
// RAMJET_E2E_OUTPUT=1 a failed test shows what its processes said.
package deploy
