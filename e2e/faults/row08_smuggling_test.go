package faults

import (
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row08SmugglingVectors sends every vector of rig/testdata/requests. A
// request is refused and the connection closed, or exactly one well-formed
// request reaches the engine; the byte-recording engine is the judge. One
// engine, so that nothing hides at the other.
func TestB7Row08SmugglingVectors(t *testing.T) {
	t.Parallel()
	e := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{e}, Flags: []string{"--timeouts.client-header=3s", "--limits.body=1MiB"}})
	for _, v := range rig.ReadVectors(t, "requests") {
		t.Run(v.Name, func(t *testing.T) {
			e.Forget()
			rig.JudgeRequest(t, r, e, v)
			id := r.ID(rig.AutoID + "after")
			if after := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false))); after.Status != 200 {
				t.Errorf("the next request was answered %d %.200q", after.Status, after.Body)
			}
		})
	}
}
