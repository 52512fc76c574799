package page

import (
	"fmt"
	"testing"
	"time"
)

// stored makes the page's store reachable from expressions, as kept.store.
func (t *tab) stored() {
	t.Helper()
	t.until("document.querySelector('#main')?.innerText.length > 0")
	t.eval(`import('/assets/store.js').then((m) => { window.kept = m; window.widest = (series) => {
		const all = series.t.filter((at) => at > m.store.now() - 60000);
		return Math.max(...all.slice(1).map((at, i) => at - all[i])); }; })`, nil)
}

// What was missed while the connection was broken is read again: the charts have
// no gap, whether the page reads all engines or those that are looked at.
func TestGapOfABrokenConnectionIsFilled(t *testing.T) {
	for _, engines := range []int{2, 40} {
		t.Run(fmt.Sprint(engines), func(t *testing.T) {
			w := newWorld(engines)
			name := w.engines[0].name
			f := newFeed(t, w)
			tb := newTab(t)
			tb.open(f.URL + "/#/gpu")
			tb.until("document.querySelectorAll('.gpu-engine canvas').length > 2")
			tb.stored()
			tokens, device := "kept.store.tokens.get("+quote(name)+")", "[...kept.store.gpus.get("+quote(name)+").values()][0]"
			tb.until(tokens + "?.t.length > 1000 && " + device + ".t.length > 1000")
			f.refuse(true)
			f.CloseClientConnections()
			tb.until("document.querySelector('#link').innerText === 'reconnecting'")
			time.Sleep(5 * time.Second)
			tb.eval("window.lost = "+tokens+".last", nil)
			f.delay(true)
			f.refuse(false)
			tb.until("document.querySelector('#link').innerText === 'live' && " + tokens + ".last > lost + 4000")
			tb.until("[" + tokens + ", " + device + "].every((s) => widest(s) <= 1000 && s.t.every((at, i) => i === 0 || at > s.t[i - 1]) && Object.values(s.columns).every((c) => c.length === s.t.length))")
			tb.quiet("Failed to load resource", "503", "net::ERR")
		})
	}
}

// Samples come in any order; what is there already stays.
func TestSeriesAreMergedByTime(t *testing.T) {
	f := newFeed(t, newWorld(1))
	tb := newTab(t)
	tb.open(f.URL)
	tb.stored()
	var got string
	tb.eval(`{
		const stamp = (s) => new Date(s * 1000).toISOString();
		const told = (...samples) => kept.store.takeGPU({ tokens: { time: samples.map(([s]) => stamp(s)), engines: [{ engine: 'z', prefill_tokens_per_s: samples.map(([, v]) => v), decode_tokens_per_s: samples.map(() => null) }] } });
		told([20, 1], [21, 2]); told([25, 3]); told([10, 4], [20, 5], [22, 6], [23, 7]); told([21, 8], [24, 9], [26, 10]); told(); told([26, 11]);
		const s = kept.store.tokens.get('z');
		s.t.map((at, i) => at / 1000 + ':' + s.columns.prefill[i] + ':' + s.columns.decode[i]).join(' ') }`, &got)
	if want := "10:4:NaN 20:1:NaN 21:2:NaN 22:6:NaN 23:7:NaN 24:9:NaN 25:3:NaN 26:10:NaN"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	tb.quiet()
}

// Two GPUs of one index, in two machines, are two rows with a chart each, and
// none is left behind from one second to the next.
func TestGPUsOfOneIndex(t *testing.T) {
	w := newWorld(2)
	w.twins = true
	f := newFeed(t, w)
	tb := newTab(t)
	tb.size(1440, 1400)
	tb.open(f.URL + "/#/gpu")
	tb.until("document.querySelectorAll('.gpu-engine .strip.device').length === 4")
	tb.stored()
	tb.eval("window.from = kept.store.now()", nil)
	tb.until("kept.store.now() > from + 4000")
	var rows, series int
	tb.eval("document.querySelectorAll('.gpu-engine .strip.device').length", &rows)
	tb.eval("[...kept.store.gpus.values()].filter((devices) => devices.size === 2).length", &series)
	if rows != 4 || series != 2 {
		t.Errorf("%d rows and %d engines with two series, want 4 and 2", rows, series)
	}
	var left int
	tb.eval(`import('/assets/dom.js').then(({ h, list }) => { const p = h('div');
		for (let i = 0; i < 5; i++) list(p, ['x', 'x', 'y'], (k) => k, () => ({ node: h('i') }), () => {});
		return p.children.length; })`, &left)
	if left != 3 {
		t.Errorf("a list of three has %d children", left)
	}
	tb.quiet()
}

// A GPU that another source speaks for goes on with its ten minutes, once.
func TestGPUOfAnotherSourceKeepsItsPast(t *testing.T) {
	f := newFeed(t, newWorld(1))
	tb := newTab(t)
	tb.open(f.URL + "/#/gpu")
	tb.stored()
	tb.until("[...kept.store.gpus.get('a').entries()].every(([key, s]) => key.endsWith(' nvidia-smi') && s.t.length > 1000)")
	f.change(func(w *world) { w.source = "dcgm node" })
	tb.until("[...kept.store.gpus.get('a').entries()].every(([key, s]) => key.endsWith(' dcgm node') && s.t.length > 1000)")
	tb.until("document.querySelectorAll('.gpu-engine .strip.device').length === 2")
	tb.quiet()
}

// A column of the table sorts by what it shows.
func TestTableSortsByItsColumn(t *testing.T) {
	w := newWorld(2)
	w.engines[0].leases, w.engines[1].leases = fields{"prefill": 9, "decode": 1}, fields{"prefill": 0, "decode": 5}
	f := newFeed(t, w)
	tb := newTab(t)
	tb.open(f.URL)
	tb.click(".as-table summary")
	tb.until("document.querySelectorAll('.engine-table tbody tr').length === 2")
	for column, first := range map[string]string{"Prefill": "a", "Decode": "b"} {
		tb.eval("[...document.querySelectorAll('.engine-table th button')].find((b) => b.innerText === "+quote(column)+").click()", nil)
		tb.until("document.querySelector('.engine-table [aria-sort=descending]')?.innerText === " + quote(column))
		if got := tb.text(".engine-table tbody th")[0]; got != first {
			t.Errorf("by %s the first is %s, want %s", column, got, first)
		}
	}
	tb.quiet()
}
