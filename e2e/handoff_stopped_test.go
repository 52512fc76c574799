package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestHandoffMismatchStopsTheClass: a prompt of the right length with other ids
// is what counting cannot find. The comparison of a sample does, before any are
// handed over, and ends it for the class alone.
func TestHandoffMismatchStopsTheClass(t *testing.T) {
	t.Parallel()
	dir := rig.SimModelFolder(t)
	// With documents, which the sim's own template does not know, the last
	// header is another word of as many tokens.
	editFile(t, filepath.Join(dir, "chat_template.jinja"), "  {{- '<|im_start|>assistant\\n' -}}\n  {%- if enable_thinking",
		"  {{- '<|im_start|>' + ('resistant' if documents else 'assistant') + '\\n' -}}\n  {%- if enable_thinking")
	s := rig.StartSim(t, "a", simFast...)
	r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: dir, Flags: handingOver, Settled: probed})
	plain := `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"` + strings.Repeat(longEnough, 6) + `"}]}`
	documents := `{"model":"m","max_tokens":2,"documents":[{"text":"d"}],` + plain[1:]
	if a := askBody(t, r, rig.ChatPath, documents); a.x.Handoff {
		t.Error("a class of which nothing is proven was handed over")
	} else {
		a.counted(t)
	}
	if a := askBody(t, r, rig.ChatPath, documents); a.x.Handoff {
		t.Error("a class of which only counts were compared was handed over")
	}
	rig.Eventually(t, 2*rig.Patience, "the class is stopped", func() string {
		if m, n := r.Handed("mismatch"), r.Handed("stopped"); m != 1 || n != 1 {
			return fmt.Sprintf("mismatch %d, stopped %d", m, n)
		}
		return ""
	})
	rig.Eventually(t, rig.Patience, "the log says what differed", func() string {
		if !r.Logged("no more are handed over", `"class":"chat+documents"`, `"first_difference"`, `"level":"warn"`) {
			return "it does not"
		}
		return ""
	})
	for range 3 {
		if a := askBody(t, r, rig.ChatPath, documents); a.x.Handoff || a.x.Keys == "exact" || a.x.Note() != "class drifted" && a.x.Note() != "known prefix" {
			t.Errorf("handoff %v, keys %s, note %q after the difference", a.x.Handoff, a.x.Keys, a.x.Note())
		}
	}
	if a := askBody(t, r, rig.ChatPath, plain); !a.x.Handoff {
		t.Error("another class is stopped too")
	}
}

// TestHandoffWithoutProof: classes that the probes found to differ, and a
// tokenizer of another model, are never handed over.
func TestHandoffWithoutProof(t *testing.T) {
	t.Parallel()
	dir := rig.SimModelFolder(t)
	editFile(t, filepath.Join(dir, "chat_template.jinja"), "You may call functions.", "You may call any of these.")
	s := rig.StartSim(t, "a", simFast...)
	r := rig.StartSims(t, rig.SimSetup{Sims: []*rig.SimEngine{s}, Model: dir, Flags: handingOver, Settled: probed})
	body := `{"model":"m","max_tokens":2,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"` + longEnough + `"}]}`
	for range 25 { // one in twenty is counted all the same
		if a := askBody(t, r, rig.ChatPath, body); a.x.Handoff {
			t.Fatal("ids that differ were handed over")
		}
	}
	if !received(t, s, body) {
		t.Error("the body was changed")
	}
}
