package faults

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row43Log: a log that takes nothing, whose disk is full or whose reader
// is gone, costs no request anything; the lines that are lost are counted.
// (No descriptors left is row 16; little memory, the attack_ tests.)
func TestB7Row43Log(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("pipes and devices of Linux")
	}
	pipe := func(t *testing.T) (reader, writer *os.File) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
		return reader, writer
	}
	for _, c := range []struct {
		name     string
		requests int
		log      func(t *testing.T) (log *os.File, begin func())
	}{
		{"nobody reads", 12_000, func(t *testing.T) (*os.File, func()) { _, w := pipe(t); return w, func() {} }},
		{"the disk is full", 200, func(t *testing.T) (*os.File, func()) {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Skip("no /dev/full: ", err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f, func() {}
		}},
		{"the reader dies", 200, func(t *testing.T) (*os.File, func()) { r, w := pipe(t); return w, func() { _ = r.Close() } }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log, begin := c.log(t)
			r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{rig.NewEngine(t, "a"), rig.NewEngine(t, "b")}, Log: log, Loose: true})
			_ = log.Close() // ours
			begin()
			client := r.Dial(t)
			defer client.Close()
			for i := range c.requests {
				// A long path makes long lines, so that a megabyte is full sooner.
				client.Send(rig.Request("POST", rig.ChatPath, fmt.Sprint("log-", i), rig.ChatBody(false), "User-Agent: "+strings.Repeat("x", 100)))
				if resp := client.Response(rig.Patience); resp.Status != 200 || !resp.Whole() {
					t.Fatalf("request %d: %d %.200q", i, resp.Status, resp.Body)
				}
			}
			rig.Eventually(t, rig.Patience, "lost lines are counted", func() string {
				if n := r.Metrics().Sum("ramjet_log_dropped_total"); n == 0 {
					return "none"
				}
				return ""
			})
			r.Served("log-after", true)
			rig.Eventually(t, rig.Patience, "nothing held", func() string {
				if n := r.Metrics().Leases(); n != 0 {
					return fmt.Sprintf("%v leases", n)
				}
				return ""
			})
		})
	}
}
