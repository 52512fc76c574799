package page

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// Every state and every trust has a word and a shape of its own, beside its
// reason and age: who sees no colours loses nothing.
func TestStatesAreToldByShapeAndWord(t *testing.T) {
	states := []string{"ready", "slow-start", "suspect", "warming", "draining", "ejected", "down"}
	trusts := []string{"exact", "degraded", "blind"}
	w := newWorld(len(states))
	for i, s := range states {
		e := &w.engines[i]
		e.state, e.reason, e.since = s, "the reason of "+s, time.Now().Add(-time.Duration(i+1)*time.Hour)
		e.trust, e.trustReason = trusts[i%len(trusts)], "why it is "+trusts[i%len(trusts)]
		w.changes = append(w.changes, fields{"time": stampOf(time.Now().Add(-time.Duration(8-i) * time.Minute)), "engine": e.name, "from": "ready", "to": s, "reason": e.reason})
	}
	f := newFeed(t, w)
	tb := newTab(t)
	tb.size(1440, 2400)
	tb.open(f.URL)
	tb.until(shown)
	tb.until("document.querySelectorAll('.card').length === 7")
	var cards []struct{ Word, Shape, Trust, TrustShape, Text string }
	tb.eval(`[...document.querySelectorAll('.card')].map(c => { const s = c.querySelector('.mark.state'), t = c.querySelector('.mark.trust');
		return {word: s.innerText.trim(), shape: s.querySelector('svg').innerHTML, trust: t.innerText.trim(), trustShape: t.querySelector('svg').innerHTML, text: c.innerText}; })`, &cards)
	shapes := map[string]string{}
	for i, c := range cards {
		if c.Word != states[i] || c.Trust != trusts[i%len(trusts)] {
			t.Errorf("card %d says %q and %q", i, c.Word, c.Trust)
		}
		shapes[c.Word], shapes[c.Trust] = c.Shape, c.TrustShape
		for _, want := range []string{"the reason of " + states[i], "why it is " + c.Trust} {
			if !strings.Contains(c.Text, want) {
				t.Errorf("the card of %s does not say %q", states[i], want)
			}
		}
		if want := []string{"for 1 h 0 min", "for 2 h 0 min", "for 3 h 0 min"}; i < len(want) && !strings.Contains(c.Text, want[i]) {
			t.Errorf("the card of %s does not say %q:\n%s", states[i], want[i], c.Text)
		}
	}
	if len(shapes) != len(states)+len(trusts) || len(slices.Compact(slices.Sorted(maps.Values(shapes)))) != len(shapes) {
		t.Errorf("%d words share shapes: %v", len(shapes), shapes)
	}
	// The time line: a lane for each with the word of its state, and all changes
	// in a table, the newest first.
	if lanes := tb.text(".lane"); len(lanes) != 7 {
		t.Errorf("%d lanes", len(lanes))
	}
	rows := tb.text(".changes tbody tr")
	if len(rows) != 7 || !strings.Contains(rows[0], "down") || !strings.Contains(rows[0], "the reason of down") {
		t.Errorf("the changes say %q", rows)
	}
	var pieces []string
	tb.eval("[...document.querySelectorAll('.state-piece')].map(p => p.dataset.word)", &pieces)
	for _, s := range states {
		if !slices.Contains(pieces, s) {
			t.Errorf("no lane shows %s", s)
		}
	}
	tb.screenshot("states-light")
	tb.scheme("dark")
	tb.screenshot("states-dark")
	// The same words in the help.
	tb.press("?")
	tb.until("document.querySelector('dialog').open")
	dialog := strings.Join(tb.text("dialog"), "")
	for _, s := range append(states, trusts...) {
		if !strings.Contains(dialog, s) {
			t.Errorf("the help does not explain %s", s)
		}
	}
	tb.screenshot("help")
	tb.quiet()
}

// An operator's orders and a dead engine arrive on the page of a real Ramjet
// with their reasons.
func TestStatesArriveFromRamjet(t *testing.T) {
	theBrowser(t)
	a := sim(t, "--model=demo")
	dying := ports.Kept(t) // it dies and comes back there
	args := []string{"sim", "--listen=" + dying, "--model=demo"}
	b := start(t, args...)
	answers(t, "http://"+dying+"/health")
	r := serve(t, "--engine=a=http://"+a+",events=off", "--engine=b=http://"+dying+",events=off", "--health.failures=1")
	tb := newTab(t)
	tb.open(r.url(""))
	card := func(name, state string) string {
		return "document.querySelector('.card[data-engine=" + name + "][data-state=" + state + "]')"
	}
	tb.until(card("a", "ready") + " && " + card("b", "ready"))
	r.post(t, "api/v1/engines/a/drain")
	tb.until(card("a", "draining"))
	r.post(t, "api/v1/engines/a/ready")
	tb.until(card("a", "slow-start"))
	tb.until(card("a", "ready"))
	r.post(t, "api/v1/engines/a/eject")
	tb.until(card("a", "ejected"))
	r.post(t, "api/v1/engines/a/ready")
	b.kill()
	tb.until(card("b", "down") + " && document.querySelector('#health').innerText === 'degraded'")
	if why := strings.Join(tb.text(".card[data-engine=b] .why"), " "); !strings.Contains(why, "refused") {
		t.Errorf("the dead engine's card says %q", why)
	}
	start(t, args...)
	tb.until(card("b", "warming"))
	tb.until(card("b", "slow-start"))
	tb.until(card("b", "ready"))
	var told []string
	tb.eval("[...document.querySelectorAll('.changes tbody tr')].filter(r => r.children[1].innerText === 'b').map(r => r.children[3].innerText.trim())", &told)
	if want := []string{"ready", "slow-start", "warming", "down"}; len(told) < 4 || !slices.Equal(told[:4], want) {
		t.Errorf("the changes of b are %q, want %q first", told, want)
	}
	tb.quiet()
}
