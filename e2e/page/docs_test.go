package page

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var docs = flag.Bool("docs", false, "write the pictures of docs/PAGE.md")

// TestPictures keeps one picture of each view, light and dark. With -docs the
// light ones go to docs/.
func TestPictures(t *testing.T) {
	w := newWorld(2)
	w.engines[1].load, w.engines[1].habit = 0.8, "busy"
	w.engines[0].load, w.engines[0].habit = 0.6, "bursts"
	now := time.Now()
	for _, c := range []struct {
		ago      time.Duration
		from, to string
		reason   string
	}{
		{8 * time.Minute, "ready", "down", "connection refused"},
		{6*time.Minute + 40*time.Second, "down", "warming", "answers again"},
		{6 * time.Minute, "warming", "slow-start", "three good checks and 30 s since the first"},
		{5*time.Minute + 30*time.Second, "slow-start", "ready", "slow start is over"},
	} {
		w.changes = append(w.changes, fields{"time": stampOf(now.Add(-c.ago)), "engine": "b", "from": c.from, "to": c.to, "reason": c.reason})
	}
	w.engines[1].since, w.engines[1].reason = now.Add(-5*time.Minute-30*time.Second), "slow start is over"
	f := newFeed(t, w)
	for _, scheme := range []string{"light", "dark"} {
		tb := newTab(t)
		tb.scheme(scheme)
		keep := func(name string, height int) {
			tb.size(1360, height)
			tb.eval("new Promise(done => setTimeout(done, 1200))", nil)
			tb.screenshot(name + "-" + scheme)
			if *docs && scheme == "light" {
				picture, err := os.ReadFile(filepath.Join(pictures, name+"-light.png"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join("../../docs", "page-"+name+".png"), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		tb.open(f.URL)
		tb.until(shown)
		tb.until("document.querySelectorAll('.card').length === 2")
		keep("topology", 1010)
		tb.press("2")
		tb.until("document.querySelectorAll('.gpu-engine canvas').length >= 8")
		keep("gpu", 560)
		tb.press("3")
		tb.until("document.querySelectorAll('.requests-table tbody tr').length > 20")
		tb.press("p", "j", "j", "Enter")
		tb.until("document.querySelector('.detail .candidates')")
		keep("requests", 900)
		tb.press("Escape", "4")
		tb.until("document.querySelector('textarea').value.includes('qwen')")
		tb.click(".explain .primary")
		tb.until("document.querySelector('.answer .candidates')")
		keep("explain", 800)
		tb.quiet()
	}
}
