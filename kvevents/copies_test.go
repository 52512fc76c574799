package kvevents

import (
	"testing"
	"testing/synctest"
	"time"

	"ramjet/radix"
)

// copied is an engine with prompts of four blocks of 16 tokens and an index that follows it. What it announces of copies
// is the test's to say.
type copied struct {
	*running
	index *radix.Index
}

const (
	copiedBlocks = 4
	copiedTokens = copiedBlocks * 16
)

func followCopied(t *testing.T) *copied {
	t.Helper()
	c := &copied{index: radix.NewIndex()}
	c.running = follow(t, &fakeEngine{topic: "kv"}, func(o *Options) { o.Residency = c.index.Engine(0) })
	pass()
	return c
}

func (c *copied) ids(prompt int) []uint32 { return span(uint32(prompt*1000), copiedTokens) }

func (c *copied) hashes(prompt int) (all []uint64) {
	for b := range copiedBlocks {
		all = append(all, uint64(prompt*100+b+1))
	}
	return all
}

func (c *copied) say(event any) {
	c.engine.publish(batchOf(float64(time.Now().UnixNano())/1e9, event))
	synctest.Wait()
}

func (c *copied) store(prompt int) {
	c.say(storedMap(c.hashes(prompt), nil, c.ids(prompt), 16))
}
func (c *copied) remove(prompt int) { c.say(removedMap(c.hashes(prompt)...)) }

// ask is a request whose prompt the engine holds nothing of, or all of, and that stores what was missing.
func (c *copied) ask(prompt int, held bool) (predicted int) {
	var tokens [radix.MaxEngines]int32
	c.index.Match(radix.AppendKeys(nil, radix.Root("", "", ""), c.ids(prompt), 16), 16, &tokens)
	a := Answer{Prompt: copiedTokens + 8, Predicted: int(tokens[0]), Other: -1, Received: c.Received()}
	if held {
		a.Reported = copiedTokens
	} else {
		c.store(prompt)
	}
	c.Answered(a)
	pass()
	return a.Predicted
}

// TestLastCopyAlone: an engine that announces the removal of a block's last copy alone (vLLM pull request 55092) leaves
// copies behind in the count. Two answers show it, and from then on whatever lost a copy is not believed.
func TestLastCopyAlone(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		c := followCopied(t)
		for p := range 20 {
			c.store(p)
			c.store(p) // the same prompt beside it, at once
		}
		for p := range 10 {
			c.remove(p) // both copies went, and the last one was told of
		}
		for p, want := range []int{copiedTokens, copiedTokens, 0, 0, 0, 0, 0, 0, 0, 0} {
			if got := c.ask(p, false); got != want {
				t.Errorf("prompt %d: %d tokens predicted of a cache without it, want %d", p, got, want)
			}
			c.is(exact, "") // two wrong answers of ten are no lie
		}
		for p := 10; p < 20; p++ {
			if got := c.ask(p, true); got != copiedTokens {
				t.Errorf("prompt %d, which lost nothing: %d tokens predicted", p, got)
			}
		}
		c.is(exact, "")
	})
}

// TestAnnouncedAgain: an engine that announces blocks anew which it holds already, as vLLM does for requests that ask
// for a full report (vLLM pull request 57358), has too many copies counted. What lost one is dropped after two answers
// that show it; where removals go on to prove the count wrong belief ends, and it comes back with right answers.
func TestAnnouncedAgain(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T) {
		c := followCopied(t)
		for range 6 {
			for p := range 30 {
				c.store(p)
			}
		}
		for p := range 8 {
			c.remove(p)
		}
		wrong := 0
		for p := range 8 {
			if c.ask(p, false) != 0 {
				wrong++
			}
		}
		if wrong != auditShort {
			t.Errorf("%d predictions of what is gone, want %d", wrong, auditShort)
		}
		c.is(exact, "")
		ended := false
		for p := 8; p < 14 && !ended; p++ {
			c.remove(p)
			c.ask(p, false)
			trust, _, _ := c.Trust()
			ended = trust == degraded
		}
		if !ended {
			t.Fatal("an engine whose every removal is wrong is still believed")
		}
		c.is(degraded, "predictions are off: predicted 64 cached tokens of 72, and the engine reported 0")
		for p := 20; p < 20+auditGood; p++ {
			c.ask(p, true)
		}
		c.is(exact, "")
	})
}
