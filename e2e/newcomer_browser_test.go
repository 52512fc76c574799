package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// eveningPictures is where the evening's screenshots go.
const eveningPictures = "../.tools/newcomer"

// window is one page in a real Chromium without a screen, spoken to by the
// DevTools protocol over a pipe (chromium --remote-debugging-pipe): one command
// at a time, by one goroutine.
type window struct {
	t       testing.TB
	to      *os.File
	from    *os.File
	reader  *bufio.Reader
	last    int
	session string
}

// chromiumPath finds the browser, "" if there is none.
func chromiumPath() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// openWindow starts the browser with an empty page; it ends with the test.
func openWindow(t testing.TB) *window {
	t.Helper()
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(chromiumPath(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--no-default-browser-check", "--mute-audio", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start Chromium: %v", err)
	}
	_, _ = fromUs.Close(), toUs.Close()
	w := &window{t: t, to: to, from: from, reader: bufio.NewReaderSize(from, 1<<20)}
	t.Cleanup(func() {
		_, _ = w.ask("Browser.close", nil)
		kill := time.AfterFunc(2*rig.Patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		_, _ = to.Close(), from.Close()
	})
	var made struct{ BrowserContextID, TargetID, SessionID string }
	for _, c := range []struct {
		method string
		params func() map[string]any
	}{
		{"Target.createBrowserContext", func() map[string]any { return nil }},
		{"Target.createTarget", func() map[string]any {
			return map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID, "width": 1440, "height": 900}
		}},
		{"Target.attachToTarget", func() map[string]any { return map[string]any{"targetId": made.TargetID, "flatten": true} }},
	} {
		answer, err := w.ask(c.method, c.params())
		if err == nil {
			err = json.Unmarshal(answer, &made)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.method, err)
		}
	}
	w.session = made.SessionID
	return w
}

// ask sends one command and returns its result; what the browser tells
// meanwhile is passed over.
func (w *window) ask(method string, params map[string]any) (json.RawMessage, error) {
	w.last++
	text, err := json.Marshal(map[string]any{"id": w.last, "method": method, "params": params, "sessionId": w.session})
	if w.session == "" || err != nil {
		text, err = json.Marshal(map[string]any{"id": w.last, "method": method, "params": params})
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.to.Write(append(text, 0)); err != nil {
		return nil, err
	}
	_ = w.from.SetReadDeadline(time.Now().Add(10 * rig.Patience))
	for {
		text, err := w.reader.ReadBytes(0)
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		switch err := json.Unmarshal(text[:len(text)-1], &m); {
		case err != nil:
			return nil, err
		case m.ID != w.last:
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		default:
			return m.Result, nil
		}
	}
}

// open goes to an address.
func (w *window) open(t testing.TB, url string) {
	t.Helper()
	if _, err := w.ask("Page.navigate", map[string]any{"url": url}); err != nil {
		t.Fatal(err)
	}
}

// value is that of an expression in the page; "" while there is none.
func (w *window) value(expression string) string {
	answer, err := w.ask("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")", "returnByValue": true})
	var got struct{ Result struct{ Value string } }
	if err != nil || json.Unmarshal(answer, &got) != nil {
		return ""
	}
	return got.Result.Value
}

// sees waits until the words that a person reads at a place fulfil what is
// asked of them, and keeps a picture of that.
func (w *window) sees(t testing.TB, picture, selector, what string, ok func(text string) bool) {
	t.Helper()
	text := ""
	last := rig.Poll(12*rig.Patience, func() string {
		if text = w.value("document.querySelector(" + strconv.Quote(selector) + ")?.innerText ?? ''"); ok(text) {
			return ""
		}
		return fmt.Sprintf("%s reads %.1500q", selector, text)
	})
	w.photograph(t, picture)
	if last != "" {
		t.Fatalf("the page does not show %s: %s\nThe whole page:\n%s", what, last, w.value("document.body?.innerText.slice(0, 3000)"))
	}
}

// photograph keeps what the window shows.
func (w *window) photograph(t testing.TB, name string) {
	t.Helper()
	answer, err := w.ask("Page.captureScreenshot", map[string]any{"format": "png"})
	var got struct{ Data []byte }
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if err == nil {
		err = os.MkdirAll(eveningPictures, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(eveningPictures, name+".png"), got.Data, 0o600)
	}
	if err != nil {
		t.Logf("no picture %s: %v", name, err)
	}
}
