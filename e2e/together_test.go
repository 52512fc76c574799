package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// The three things at once that no other router was measured to do all of: equal
// new prompts together, later turns where the turn before was, and new sessions
// spread. Each runs with token ids and events, and with neither.

// togetherRig is two equal engines behind Ramjet as it comes.
type togetherRig struct {
	*testing.T
	r    *rig.Ramjet
	sims []*rig.SimEngine
	a    *rig.Asker
}

func eachTogether(t *testing.T, run func(m *togetherRig), flags ...string) {
	t.Helper()
	for _, exact := range []bool{true, false} {
		t.Run(map[bool]string{true: "exact", false: "approximate"}[exact], func(t *testing.T) {
			t.Parallel()
			m := &togetherRig{T: t, sims: rig.Pair(t, "--kv-blocks=20000", "--speed=1")}
			s := rig.SimSetup{Sims: m.sims, Events: "off", Flags: flags}
			if exact {
				s.Events, s.Model, s.Settled = "auto", rig.SimModelFolder(t), rig.Both(rig.Said("token ids compared"), rig.Trusted)
			} else {
				s.Flags = append([]string{"--tokens.source=off"}, flags...)
			}
			m.r = rig.StartSims(t, s)
			m.a = m.r.Asker(t)
			run(m)
			m.a.Close()
		})
	}
}

// longPrompt is about 5,000 tokens that begin like no other's.
func longPrompt(name string) string {
	return name + " " + strings.Repeat("the ship sails on by night and nobody knows where it was ", 5000/13)
}

// settle waits until no event is on its way.
func (m *togetherRig) settle() { m.r.InStep(m.T, m.sims...) }

// TestTogetherEqualPrompts: two equal new prompts of 5,000 tokens, 5 ms apart,
// go to one engine ten times of ten, which computes them once.
func TestTogetherEqualPrompts(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(m *togetherRig) {
		same := 0
		for i := range 10 {
			m.settle()
			before := state(m.T, m.sims[0]).Prefill + state(m.T, m.sims[1]).Prefill
			body := storyAsk(longPrompt(fmt.Sprint("pair ", i)), 4, "")
			replies := make(chan rig.Reply, 2)
			for range 2 {
				go func() { replies <- m.a.Chat(m.r.ID("pair"), body) }()
				time.Sleep(5 * time.Millisecond)
			}
			p, q := <-replies, <-replies
			if !p.Ok() || !q.Ok() {
				m.Fatalf("try %d: %v; %v", i, &p, &q)
			}
			if p.Engine != q.Engine {
				for _, one := range []rig.Reply{p, q} {
					m.Logf("try %d: %v: %+v", i, &one, m.r.Explain(m.T, one.ID))
				}
			}
			if p.Engine == q.Engine {
				same++
			}
			if computed := state(m.T, m.sims[0]).Prefill + state(m.T, m.sims[1]).Prefill - before; computed > p.Prompt+p.Prompt/5 {
				m.Errorf("try %d: %d tokens were computed for two prompts of %d", i, computed, p.Prompt)
			}
		}
		if same != 10 {
			m.Errorf("two equal new prompts were on one engine %d times of 10", same)
		}
	})
}

// TestTogetherLaterTurns: five conversations of five turns, taken up in turns
// and two at a time: each later turn is on the engine of the turn before, 20
// times of 20.
func TestTogetherLaterTurns(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(m *togetherRig) {
		const talks = 5
		var said [talks]string
		var engine [talks]string
		stayed, used := 0, map[string]int{}
		for turn := range 5 {
			for i := range talks {
				m.settle()
				if said[i] == "" {
					said[i] = longPrompt(fmt.Sprint("talk ", i))
				}
				p := m.a.Chat(m.r.ID("turn"), storyAsk(said[i], 8, ""))
				if !p.Ok() {
					m.Fatalf("talk %d, turn %d: %v", i, turn, &p)
				}
				if turn > 0 && p.Engine == engine[i] {
					stayed++
				} else if turn > 0 {
					m.Errorf("talk %d, turn %d: %v; the turn before was on %s", i, turn, &p, engine[i])
				}
				engine[i], said[i] = p.Engine, said[i]+p.Text+fmt.Sprintf(" And then, for the %d. time? ", turn)
				used[p.Engine]++
			}
		}
		if stayed != 20 || used["a"] == 0 || used["b"] == 0 {
			m.Errorf("%d of 20 later turns stayed; used %v", stayed, used)
		}
	})
}

// TestTogetherNewSessions: ten new sessions of 5,000 tokens, one after another,
// spread evenly. What has been learnt of the engines' speeds is equal but for the
// machine's noise, which the wide tie band covers. Noise beyond that makes one of
// them cheaper for as long as it is believed: then nothing but that may decide.
func TestTogetherNewSessions(t *testing.T) {
	t.Parallel()
	const tie = 0.15 // seconds
	eachTogether(t, func(m *togetherRig) {
		used, ties := map[string]int{}, 0
		var order []string
		for i := range 10 {
			m.settle()
			p := m.a.Chat(m.r.ID("new"), storyAsk(longPrompt(fmt.Sprint("session ", i)), 4, fmt.Sprint("user ", i)))
			if !p.Ok() {
				m.Fatalf("session %d: %v", i, &p)
			}
			used[p.Engine]++
			var costs []string
			cs := m.r.Explain(m.T, p.ID).Candidates
			if len(cs) != 2 {
				m.Fatalf("session %d: candidates %+v", i, cs)
			}
			one, two := cs[0], cs[1]
			switch apart := one.Cost - two.Cost; {
			case max(apart, -apart) <= max(tie, 0.02*min(one.Cost, two.Cost)):
				ties++
			case (apart < 0) != (p.Engine == one.Engine):
				m.Errorf("session %d: %v, the dearer one: %+v", i, &p, cs)
			}
			if share := one.Cost * one.Rate / (two.Cost * two.Rate); share < 0.9 || share > 1.1 {
				m.Errorf("session %d: more than speed tells the engines apart: %+v", i, cs)
			}
			for _, c := range cs {
				costs = append(costs, fmt.Sprintf("%s %.3f s at %.0f tok/s", c.Engine, c.Cost, c.Rate))
			}
			order = append(order, fmt.Sprintf("%s(%s; %s)", p.Engine, p.Reason, strings.Join(costs, ", ")))
		}
		if ties == 10 && (used["a"] != 5 || used["b"] != 5) {
			m.Errorf("ten new sessions spread %v: %v", used, order)
		}
		m.Logf("%d ties, spread %v: %v", ties, used, order)
	}, fmt.Sprintf("--route.tie=%gs", tie))
}
