package page

import (
	"strings"
	"testing"
)

// hostile are names that would be markup, code or a property of every object if
// they were taken for it.
var hostile = []string{
	`<img src=x onerror=alert(1)>`, `"><script>window.owned=1</script>`, `</script><script>owned=1</script>`, `javascript:owned=1`, `__proto__`, `constructor`,
	`<svg onload=owned=1>`, "\u202egnol\u202c", strings.Repeat("long", 200), "a\nb\x00\x1b[31m", `'-owned=1-'`, "{{owned=1}}${owned=1}",
}

// Names of engines, models, requests and reasons are text wherever they appear.
func TestHostileNamesStayText(t *testing.T) {
	w := newWorld(len(hostile))
	w.models = hostile
	for i, name := range hostile {
		e := &w.engines[i]
		e.name, e.reason, e.trustReason, e.profile = name, name, name, name
		w.changes = append(w.changes, fields{"time": stampOf(w.started), "engine": name, "from": "down", "to": "ready", "reason": name})
	}
	w.note = hostile[0]
	f := newFeed(t, w)
	f.change(func(w *world) {
		for i := range f.records {
			x, name := f.records[i], hostile[i%len(hostile)]
			for _, field := range []string{"request_id", "model", "path", "keys_note", "session"} {
				x[field] = name
			}
			x["time"] = stampOf(w.started.Add(1e9 * 60))
			x["result"].(fields)["duration_s"] = float64(i)
		}
	})
	f.perSecond = 0
	tb := newTab(t)
	tb.open(f.URL)
	tb.until("document.querySelectorAll('.card').length === " + quote("12")[1:3])
	tb.click(".as-table summary")
	tb.until("document.querySelectorAll('.engine-table tbody tr').length === 12")
	for _, key := range []string{"1", "2", "3", "4"} {
		tb.press(key)
		tb.until("location.hash !== '' && document.querySelector('#main').innerText.length > 0")
		if key == "3" {
			for i := range hostile {
				tb.until("document.querySelectorAll('.requests-table tbody tr').length > 11")
				tb.eval("document.querySelectorAll('.requests-table tbody tr')["+string(rune('0'+i%10))+"].click()", nil)
				tb.until("document.querySelector('.detail .candidates')")
			}
		}
		var owned []string
		tb.eval(`[window.owned, {}.owned, document.querySelector('main img, main script, main iframe, main object, main a[href^="javascript"]') && 'element',
			...[...document.querySelectorAll('main *')].flatMap(e => [...e.attributes].filter(a => /^on/.test(a.name)).map(a => a.name))].filter(Boolean)`, &owned)
		if len(owned) != 0 {
			t.Errorf("view %s: a name became %v", key, owned)
		}
	}
	tb.press("1")
	tb.until("document.querySelectorAll('.card').length === 12")
	names := tb.text(".card h3")
	for i, name := range hostile[:5] {
		if names[i] != name {
			t.Errorf("%q is shown as %q", name, names[i])
		}
	}
	var wide bool
	tb.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth", &wide)
	if wide {
		var who []string
		tb.eval("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).slice(0, 8).map(e => e.tagName + '.' + e.className)", &who)
		t.Errorf("a long name makes the page wider than the window: %q", who)
	}
	tb.screenshot("hostile")
	tb.quiet("Failed to load resource") // explanations of ids that the feed does not find
}

// The same with a real engine whose model has such a name.
func TestHostileModelOfARealEngine(t *testing.T) {
	theBrowser(t)
	a := sim(t, "--model="+hostile[0])
	r := serve(t, "--engine=a=http://"+a+",events=off")
	answers(t, r.url("readyz"))
	tb := newTab(t)
	tb.open(r.url(""))
	tb.until("document.querySelector('.self')?.innerText.includes('<img src=x onerror=alert(1)>')")
	r.ask(t, "x", "hello")
	tb.press("4")
	tb.until("document.querySelector('textarea').value.includes('onerror')")
	tb.click(".explain .primary")
	tb.until("document.querySelector('.answer .candidates')")
	var n int
	tb.eval("document.querySelectorAll('main img').length", &n)
	if n != 0 {
		t.Error("a model's name became an image")
	}
	tb.quiet()
}
