package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// shown is true once the page has figures.
const shown = "document.querySelector('#link').textContent === 'live' && document.querySelector('#main').innerText.length > 0"

// pair is a Ramjet in front of two simulated engines.
func pair(t *testing.T, args ...string) *ramjet {
	t.Helper()
	theBrowser(t)
	a, b := sim(t, "--profile=mtp", "--model=demo"), sim(t, "--model=demo")
	r := serve(t, append([]string{"--engine=a=http://" + a + ",profile=mtp,events=off", "--engine=b=http://" + b + ",profile=standard,events=off"}, args...)...)
	answers(t, r.url("readyz"))
	return r
}

// TestViews walks through all views of a real Ramjet while requests pass.
func TestViews(t *testing.T) {
	r := pair(t)
	tb := newTab(t)
	tb.open(r.url(""))
	tb.until(shown)
	tb.until("document.querySelectorAll('.card[data-state=ready]').length === 2")
	for i := range 4 {
		r.ask(t, fmt.Sprintf("view-%d", i), "Tell me about rivers.")
	}

	// Topology: the figures of what just passed.
	tb.until("Number(document.querySelector('.legend [data-word=done] .number')?.innerText) === 4")
	cards := strings.Join(tb.text(".card"), "\n")
	for _, want := range []string{"ready", "blind", "mtp", "standard", "answered when Ramjet started", "prefill", "decode", "KV cache", "predicted", "reported", "First token", "Per token", "running + waiting"} {
		if !strings.Contains(cards, want) {
			t.Errorf("the cards do not say %q:\n%s", want, cards)
		}
	}
	if lines := tb.text(".flows g"); len(lines) != 3 {
		t.Errorf("%d lines between clients, Ramjet and two engines", len(lines))
	}
	for _, want := range []string{"Why engines were chosen", "Exact against approximate", "Waste", "How requests ended"} {
		if !slices.Contains(tb.text(".panel h2"), want) {
			t.Errorf("there is no panel %q", want)
		}
	}

	// The same in a table, for who does not see.
	tb.click(".as-table summary")
	tb.until("document.querySelectorAll('.engine-table tbody tr').length === 2")
	if row := tb.text(".engine-table tbody tr")[1]; !strings.HasPrefix(strings.Join(strings.Fields(row), " "), "b standard ready ") {
		t.Errorf("the table says %q", row)
	}
	tb.click(".engine-table th:nth-child(1) button")
	tb.until("document.querySelector('.engine-table tbody th').innerText === 'b' && document.querySelector('[aria-sort=descending]')")

	// GPU: none here, and it says what to set.
	tb.press("2")
	tb.until("document.querySelector('.notice')?.innerText.includes('gpu.')")
	tb.until("document.querySelectorAll('.gpu-engine').length === 2")

	// Requests, and an explanation.
	tb.press("3")
	tb.until("document.querySelectorAll('.requests-table tbody tr').length === 4")
	r.ask(t, "while-looking", "Tell me about seas.")
	tb.until("document.querySelector('.requests-table tbody tr td.id').innerText === 'while-looking'")
	tb.click(".requests-table tbody tr:first-child")
	tb.until("document.querySelector('.detail .candidates')")
	detail := strings.Join(tb.text(".detail"), "\n")
	for _, want := range []string{"while-looking", "chosen", "runner-up", "Match used", "Cost", "approximate", "done", "the engines' own"} {
		if !strings.Contains(detail, want) {
			t.Errorf("the explanation does not say %q:\n%s", want, detail)
		}
	}
	engine := tb.text(".requests-table tbody tr:first-child td:nth-child(3)")[0]
	other := map[string]string{"a": "b", "b": "a"}[engine]
	for query, want := range map[string]int{"?engine=" + engine + "&end=done": -1, "?end=shed": 0, "?engine=" + other: -2} {
		tb.eval("location.hash = '#/requests"+query+"'", nil)
		var rows []string
		tb.until("new URLSearchParams(location.hash.split('?')[1]).get('end') === (document.querySelector('[aria-label=End]').value || null) && new URLSearchParams(location.hash.split('?')[1]).get('engine') === (document.querySelector('[aria-label=Engine]').value || null)")
		rows = tb.text(".requests-table tbody tr td:nth-child(3)")
		if want == 0 && len(rows) != 0 || want == -1 && (len(rows) == 0 || slices.Contains(rows, other)) || want == -2 && slices.Contains(rows, engine) {
			t.Errorf("%s shows %v", query, rows)
		}
	}

	// Explain: a dry run, then one that is refused.
	tb.press("Escape", "4")
	tb.until("document.querySelector('textarea')?.value.includes('\"demo\"')")
	tb.click(".explain .primary")
	tb.until("document.querySelector('.answer .candidates')")
	if answer := strings.Join(tb.text(".answer"), "\n"); !strings.Contains(answer, "chosen") || strings.Contains(answer, "Attempts") {
		t.Errorf("the dry run says:\n%s", answer)
	}
	tb.eval("document.querySelector('textarea').value = '{\"model\": '", nil)
	tb.click(".explain .primary")
	tb.until("document.querySelector('.answer [role=alert]')?.innerText.includes('400 invalid_request')")
	tb.quiet("status of 400")

	// Everything came from here.
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, address := range tb.asked {
		if !strings.HasPrefix(address, r.url("")) {
			t.Errorf("the page asked for %s", address)
		}
	}
}

// A held list stays as it is while requests go on, and says how many.
func TestHoldingTheList(t *testing.T) {
	f := newFeed(t, newWorld(3))
	tb := newTab(t)
	tb.open(f.URL + "/#/requests")
	tb.until("document.querySelectorAll('.requests-table tbody tr').length >= 40")
	tb.press("p")
	first := tb.text(".requests-table tbody tr:first-child td.id")[0]
	tb.until("/held; [1-9][0-9]* more came/.test(document.querySelector('.filters .note').innerText)")
	if got := tb.text(".requests-table tbody tr:first-child td.id")[0]; got != first {
		t.Errorf("a held list moved from %s to %s", first, got)
	}
	tb.press("p")
	tb.until("document.querySelector('.requests-table tbody tr td.id').innerText !== " + quote(first))
	tb.quiet()
}

// The GPU view: strips of tokens and devices, verdicts, what slows a device, and
// a moment of the past picked by keys.
func TestGPUView(t *testing.T) {
	f := newFeed(t, newWorld(5)) // one of each habit
	tb := newTab(t)
	tb.size(1440, 1400)
	tb.open(f.URL + "/#/gpu")
	tb.until("document.querySelectorAll('.gpu-engine .strip.device').length === 10")
	tb.until("document.querySelectorAll('.verdict')[1].innerText === 'saturated'")
	verdicts := tb.text(".verdict")
	if verdicts[1] != "saturated" || verdicts[2] != "waits" || verdicts[4] != "busy" {
		t.Errorf("verdicts %v, want the second saturated, the third waits, the last busy", verdicts)
	}
	engines := tb.text(".gpu-engine")
	for _, want := range []string{"prefill", "decode", "GPU 2", "H200", "°C", "GHz", "GiB of 141 GiB", "slowed: sw_power_cap", " W"} {
		if !strings.Contains(engines[1], want) {
			t.Errorf("the saturated engine does not say %q:\n%s", want, engines[1])
		}
	}
	// Each strip has something drawn on it but for the idle engine's.
	var painted []int
	tb.until("[...document.querySelectorAll('.gpu-engine')].every(g => g.querySelector('canvas').width > 300)")
	tb.eval(`[...document.querySelectorAll('.gpu-engine')].map(g => [...g.querySelectorAll('.strip.device')].map(c => {
		const d = c.getContext('2d').getImageData(0, Math.floor(c.height * 0.5), c.width, 1).data; let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i] > 60) n++; return Math.round(100 * n / c.width); })[0])`, &painted)
	if painted[1] < 95 || painted[3] > 10 || painted[0] < 20 || painted[0] > 60 {
		t.Errorf("share of the axis with utilisation above a half: %v %%, want some, all, .., none", painted)
	}
	tb.eval("document.querySelector('.gpu-body').focus()", nil)
	tb.press("Home")
	tb.until("document.querySelector('.axis-at').innerText.includes('−10:00') && !document.querySelector('.cursor').hidden")
	tb.press("ArrowRight", "ArrowRight")
	tb.until("document.querySelector('.axis-at').innerText.includes('−9:58') && document.querySelector('[aria-live]').innerText.includes('GPU 2')")
	tb.screenshot("gpu-cursor")
	tb.press("Escape")
	tb.until("document.querySelector('.cursor').hidden")
	// Sources that go silent are greyed with their age.
	f.change(func(w *world) { w.gpus, w.note = 0, "nvidia-smi: it ended" })
	tb.until("document.querySelector('.notice')?.innerText.includes('it ended') && !document.querySelector('.strip.device')")
	tb.quiet()
}

// The age of what an engine said of itself is shown, and it is greyed.
func TestOldFiguresAreGreyed(t *testing.T) {
	f := newFeed(t, newWorld(2))
	f.change(func(w *world) { w.reportedAge = 95 })
	tb := newTab(t)
	tb.open(f.URL)
	tb.until("document.querySelectorAll('.card .cell.old').length === 2")
	if own := tb.text(".card .cell.old")[0]; !strings.Contains(own, "1 min 35 s old") {
		t.Errorf("it says %q", own)
	}
	tb.quiet()
}

func TestEmptyRamjet(t *testing.T) {
	w := newWorld(0)
	f := newFeed(t, w)
	f.perSecond = 0
	tb := newTab(t)
	tb.open(f.URL)
	tb.until(shown)
	tb.press("3")
	tb.until("document.querySelector('.requests .empty')?.innerText === 'No request yet.'")
	tb.press("2")
	time.Sleep(600 * time.Millisecond)
	tb.quiet()
}
