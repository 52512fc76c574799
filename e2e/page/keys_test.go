package page

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Everything can be reached and read without a pointer.
func TestKeyboard(t *testing.T) {
	f := newFeed(t, newWorld(3))
	tb := newTab(t)
	tb.open(f.URL)
	tb.until("document.querySelectorAll('.card').length === 3")
	current := func(view string) string {
		return "document.querySelector('#tabs [aria-current=page]').dataset.view === '" + view + "' && document.querySelector('main .view." + view + "')"
	}
	for key, view := range map[string]string{"2": "gpu", "3": "requests", "4": "explain", "1": "topology"} {
		tb.press(key)
		tb.until(current(view))
	}
	// The first stop of Tab leads past the bar, the next ones along it.
	tb.press("1", "Tab")
	tb.until("document.activeElement.classList.contains('skip')")
	var stops []string
	for range 12 {
		tb.press("Tab")
		var stop string
		tb.eval("document.activeElement.innerText || document.activeElement.tagName", &stop)
		stops = append(stops, strings.TrimSpace(strings.ReplaceAll(stop, "\n", " ")))
	}
	for _, want := range []string{"GPU", "Requests", "Explain", "System colours", "?", "More"} {
		if !slices.ContainsFunc(stops, func(s string) bool { return strings.HasSuffix(s, want) }) {
			t.Errorf("Tab does not reach %s: %q", want, stops)
		}
	}
	// A stop can be seen.
	var outline string
	tb.eval("getComputedStyle(document.activeElement).outlineStyle", &outline)
	if outline == "none" {
		t.Error("who tabs does not see where they are")
	}
	// Requests: rows by j and k, Enter opens, Escape closes and goes back to the row.
	tb.press("3")
	tb.until("document.querySelectorAll('.requests-table tbody tr').length > 20")
	tb.press("p", "j", "j", "j", "k")
	tb.until("document.activeElement === document.querySelectorAll('.requests-table tbody tr')[1]")
	tb.press("Enter")
	tb.until("document.querySelector('.detail h2')?.innerText === document.querySelectorAll('.requests-table tbody tr')[1].querySelector('.id').innerText")
	tb.press("j")
	tb.until("document.querySelector('.detail h2').innerText === document.querySelectorAll('.requests-table tbody tr')[2].querySelector('.id').innerText")
	tb.press("Escape")
	tb.until("document.querySelector('.detail').hidden && document.activeElement.tagName === 'TR'")
	tb.press("/")
	tb.until("document.activeElement.type === 'search'")
	// What is typed into a field is no key of the page's.
	tb.press("1", "t", "p")
	tb.until("document.activeElement.value === '1tp' && " + current("requests"))
	tb.press("Escape", "4", "/")
	tb.until("document.activeElement.tagName === 'TEXTAREA'")
	tb.press("Escape", "?")
	tb.until("document.querySelector('dialog').open")
	tb.press("Escape")
	tb.until("!document.querySelector('dialog').open")
	tb.quiet()
}

// What a screen reader is told: a name for every control, table and picture,
// headers for every cell, one main part, one current view.
func TestScreenReader(t *testing.T) {
	f := newFeed(t, newWorld(3))
	tb := newTab(t)
	tb.do("Accessibility.enable", fields{})
	tb.open(f.URL)
	tb.until("document.querySelectorAll('.card').length === 3")
	tb.click(".as-table summary")
	for key, tables := range map[string][]string{"1": {"All engines; a column's button sorts by it"}, "2": nil, "3": {"The last decisions, the newest first; Enter opens one"}, "4": nil} {
		tb.press(key)
		tb.until("document.querySelector('#main').innerText.length > 0 && document.querySelectorAll('canvas:not([aria-label])').length === 0")
		var tree struct {
			Nodes []struct {
				Ignored    bool
				Role, Name struct{ Value string }
			}
		}
		if err := json.Unmarshal(tb.do("Accessibility.getFullAXTree", fields{}), &tree); err != nil {
			t.Fatal(err)
		}
		roles, named := map[string]int{}, []string{}
		for _, n := range tree.Nodes {
			if n.Ignored {
				continue
			}
			roles[n.Role.Value]++
			switch n.Role.Value {
			case "button", "link", "textbox", "searchbox", "combobox", "img", "image", "dialog", "navigation", "columnheader", "rowheader":
				if n.Name.Value == "" {
					t.Errorf("view %s: a %s has no name", key, n.Role.Value)
				}
			case "table":
				named = append(named, n.Name.Value)
			}
		}
		if roles["main"] != 1 || roles["navigation"] != 1 || roles["banner"] != 1 {
			t.Errorf("view %s: landmarks %v", key, roles)
		}
		for _, want := range tables {
			if !slices.Contains(named, want) {
				t.Errorf("view %s: tables %q, want %q", key, named, want)
			}
		}
	}
	tb.quiet()
}

// contrast finds texts that are hard to read: less than 4.5 to 1 (WCAG 2.2,
// 1.4.3) against the nearest ground that is painted behind them.
const contrast = `(() => {
	const ctx = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
	const rgba = (css) => { ctx.clearRect(0, 0, 1, 1); ctx.fillStyle = css; ctx.fillRect(0, 0, 1, 1); const d = ctx.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
	const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const light = (c) => { const l = c.slice(0, 3).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
	const ground = (e) => { const layers = []; for (let n = e; n; n = n.parentElement) { const c = rgba(getComputedStyle(n).backgroundColor); if (c[3] > 0) layers.push(c); if (c[3] === 1) break; }
		return layers.reduceRight((below, c) => over(c, below), [255, 255, 255, 1]); };
	const bad = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const e = n.parentElement;
		if (!n.nodeValue.trim() || !e.checkVisibility() || e.closest('script, noscript, .hidden, .skip, option, .state-piece')) continue;
		const back = ground(e), front = over(rgba(getComputedStyle(e).color), back);
		const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) bad.add(ratio.toFixed(2) + ' ' + e.tagName + '.' + e.className + ' "' + n.nodeValue.trim().slice(0, 30) + '"');
	}
	return [...bad];
})()`

// Light and dark, by the system and by choice, in every view: texts can be
// read, and the choice is remembered.
func TestColours(t *testing.T) {
	w := newWorld(7)
	for i, s := range []string{"ready", "slow-start", "suspect", "warming", "draining", "ejected", "down"} {
		w.engines[i].state = s
		w.engines[i].trust = []string{"exact", "degraded", "blind"}[i%3]
		w.changes = append(w.changes, fields{"time": stampOf(w.started), "engine": w.engines[i].name, "from": "ready", "to": s, "reason": "for this test"})
	}
	f := newFeed(t, w)
	tb := newTab(t)
	ground := func() (c string) {
		tb.eval("getComputedStyle(document.body).backgroundColor", &c)
		return c
	}
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		tb.scheme(scheme)
		tb.open(f.URL)
		tb.until("document.querySelectorAll('.card').length === 7")
		tb.click(".as-table summary")
		for _, key := range []string{"1", "2", "3", "4"} {
			tb.press(key)
			switch key {
			case "3":
				tb.until("document.querySelectorAll('.requests-table tbody tr').length > 20")
				tb.press("j", "Enter")
				tb.until("document.querySelector('.detail .candidates')")
			default:
				tb.until("document.querySelector('#main').innerText.length > 0")
			}
			var bad []string
			tb.eval(contrast, &bad)
			for _, b := range bad {
				t.Errorf("%s, view %s: %s", scheme, key, b)
			}
		}
		grounds[scheme] = ground()
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("light and dark look alike: %v", grounds)
	}
	// By choice: the system's (dark), light, dark, and so on.
	tb.press("Escape", "Escape", "1", "t")
	tb.until("document.documentElement.dataset.theme === 'light'")
	if got := ground(); got != grounds["light"] {
		t.Errorf("light on a dark system has ground %s, want %s", got, grounds["light"])
	}
	tb.do("Page.reload", fields{})
	tb.until("document.documentElement.dataset.theme === 'light' && document.querySelectorAll('.card').length === 7")
	tb.scheme("light")
	tb.press("t")
	tb.until("document.documentElement.dataset.theme === 'dark'")
	if got := ground(); got != grounds["dark"] {
		t.Errorf("dark on a light system has ground %s, want %s", got, grounds["dark"])
	}
	tb.quiet()
}
