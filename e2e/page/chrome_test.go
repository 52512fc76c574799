package page

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take that has no limit of its own: two busy
// cores are slow.
const patience = 20 * time.Second

// browser is one Chromium, spoken to by the DevTools protocol over a pipe:
// messages in JSON, each ended by a NUL (chromium --remote-debugging-pipe).
type browser struct {
	cmd    *exec.Cmd
	folder string
	out    io.WriteCloser

	mu      sync.Mutex // guards the following
	next    int
	waiting map[int]chan reply
	tabs    map[string]*tab // by session
	dead    error
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type reply struct {
	result json.RawMessage
	err    error
}

// chromium finds the browser, "" if there is none.
func chromium() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startBrowser runs the command, which ends with the browser's path.
func startBrowser(command ...string) (*browser, error) {
	folder, err := os.MkdirTemp("", "ramjet-page-")
	if err != nil {
		return nil, err
	}
	b := &browser{folder: folder, waiting: map[int]chan reply{}, tabs: map[string]*tab{}}
	fromUs, toChrome, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromChrome, toUs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := append(command[1:len(command):len(command)], "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
		"--no-default-browser-check", "--mute-audio", "--hide-scrollbars", "--force-color-profile=srgb", "--window-size=1440,900",
		"--user-data-dir="+folder, "--remote-debugging-pipe", "about:blank")
	b.cmd = exec.Command(command[0], args...)
	b.cmd.ExtraFiles = []*os.File{fromUs, toUs} // descriptors 3 and 4
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	_, _ = fromUs.Close(), toUs.Close()
	b.out = toChrome
	go b.read(fromChrome)
	return b, nil
}

// read hands out answers and events until the browser ends.
func (b *browser) read(in io.ReadCloser) {
	defer in.Close()
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.end(fmt.Errorf("the browser ended: %w", err))
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		ch, t := b.waiting[m.ID], b.tabs[m.SessionID]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case ch != nil && m.Error != nil:
			ch <- reply{err: errors.New(m.Error.Message)}
		case ch != nil:
			ch <- reply{result: m.Result}
		case t != nil && m.Method != "":
			t.event(m.Method, m.Params)
		}
	}
}

func (b *browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = err
	for _, ch := range b.waiting {
		ch <- reply{err: err}
	}
	clear(b.waiting)
}

// call sends one command and waits for its answer.
func (b *browser) call(session, method string, params any) (json.RawMessage, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	ch := make(chan reply, 1)
	b.mu.Lock()
	if b.dead != nil {
		b.mu.Unlock()
		return nil, b.dead
	}
	b.next++
	m := message{ID: b.next, SessionID: session, Method: method, Params: text}
	b.waiting[m.ID] = ch
	text, _ = json.Marshal(m)
	_, err = b.out.Write(append(text, 0))
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-ch:
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", method, r.err)
		}
		return r.result, nil
	case <-time.After(patience + time.Minute):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

func (b *browser) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		_, _ = b.call("", "Browser.close", map[string]any{})
		_ = b.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		_ = b.cmd.Process.Kill()
		<-done
	}
	_ = b.out.Close()
	_ = os.RemoveAll(b.folder)
}

// tab is one page in a profile of its own.
type tab struct {
	*testing.T
	b       *browser
	session string
	target  string
	context string

	mu       sync.Mutex // guards the following
	troubles []string   // what the console, the policy or a script complained of
	asked    []string   // addresses that were asked for
}

type fields = map[string]any

// newTab opens an empty page of 1440 x 900.
func newTab(t *testing.T) *tab {
	t.Helper()
	return theBrowser(t).tab(t)
}

func (b *browser) tab(t *testing.T) *tab {
	t.Helper()
	var made struct{ BrowserContextID, TargetID, SessionID string }
	tb := &tab{T: t, b: b}
	must := func(method string, params fields) {
		t.Helper()
		r, err := b.call("", method, params)
		if err == nil {
			err = json.Unmarshal(r, &made)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	must("Target.createBrowserContext", fields{})
	must("Target.createTarget", fields{"url": "about:blank", "browserContextId": made.BrowserContextID, "width": 1440, "height": 900})
	must("Target.attachToTarget", fields{"targetId": made.TargetID, "flatten": true})
	tb.session, tb.target, tb.context = made.SessionID, made.TargetID, made.BrowserContextID
	b.mu.Lock()
	b.tabs[tb.session] = tb
	b.mu.Unlock()
	t.Cleanup(func() {
		_, _ = b.call("", "Target.disposeBrowserContext", fields{"browserContextId": tb.context})
		b.mu.Lock()
		delete(b.tabs, tb.session)
		b.mu.Unlock()
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		tb.do(domain+".enable", fields{})
	}
	tb.size(1440, 900)
	return tb
}

// event notes what should not happen.
func (t *tab) event(method string, params json.RawMessage) {
	var p struct {
		Type             string
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Args    []struct{ Value, Description any }
		Request struct{ URL string }
	}
	_ = json.Unmarshal(params, &p)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch method {
	case "Runtime.exceptionThrown":
		t.troubles = append(t.troubles, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		t.troubles = append(t.troubles, fmt.Sprint("console.", p.Type, " ", p.Args))
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			t.troubles = append(t.troubles, p.Entry.Level+": "+p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.requestWillBeSent":
		t.asked = append(t.asked, p.Request.URL)
	}
}

// quiet demands that nothing went wrong, but for what holds one of these texts.
func (t *tab) quiet(but ...string) {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
next:
	for _, trouble := range t.troubles {
		for _, b := range but {
			if strings.Contains(trouble, b) {
				continue next
			}
		}
		t.Errorf("the browser complains: %s", trouble)
	}
}

// do sends one command to the page.
func (t *tab) do(method string, params fields) json.RawMessage {
	t.Helper()
	r, err := t.b.call(t.session, method, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (t *tab) open(url string) {
	t.Helper()
	t.do("Page.navigate", fields{"url": url})
}

func (t *tab) size(width, height int) {
	t.Helper()
	t.do("Emulation.setDeviceMetricsOverride", fields{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// scheme sets what the system prefers: light or dark.
func (t *tab) scheme(name string) {
	t.Helper()
	t.do("Emulation.setEmulatedMedia", fields{"features": []fields{{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}}})
}

// eval runs an expression, a promise too, and decodes its value into v.
func (t *tab) eval(expression string, v any) {
	t.Helper()
	if err := t.tryEval(expression, v); err != nil {
		t.Fatal(err)
	}
}

func (t *tab) tryEval(expression string, v any) error {
	r, err := t.b.call(t.session, "Runtime.evaluate", fields{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return err
	}
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(r, &got); err != nil {
		return err
	}
	if got.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", expression, got.ExceptionDetails.Exception.Description)
	}
	if v == nil || len(got.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(got.Result.Value, v)
}

// until waits for an expression to be true.
func (t *tab) until(expression string) {
	t.Helper()
	t.within(patience, expression)
}

func (t *tab) within(limit time.Duration, expression string) {
	t.Helper()
	var last error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var ok bool
		// While a page loads there is nothing to ask.
		if last = t.tryEval("Boolean("+expression+")", &ok); last == nil && ok {
			return
		}
	}
	var text string
	_ = t.tryEval("document.body ? document.body.innerText.slice(0, 1500) : ''", &text)
	t.screenshot("failed-" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	t.Fatalf("not true in %s: %s (%v)\nthe page says:\n%s", limit, expression, last, text)
}

// text returns what a person reads in the elements that a selector finds.
func (t *tab) text(selector string) []string {
	t.Helper()
	var all []string
	t.eval("[...document.querySelectorAll("+quote(selector)+")].map(e => e.innerText)", &all)
	return all
}

func (t *tab) click(selector string) {
	t.Helper()
	t.until("document.querySelector(" + quote(selector) + ")")
	t.eval("document.querySelector("+quote(selector)+").click()", nil)
}

// keyCodes are of keys that are no characters.
var keyCodes = map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36}

// press presses keys one after the other, as a keyboard would.
func (t *tab) press(keys ...string) {
	t.Helper()
	for _, k := range keys {
		down := fields{"type": "keyDown", "key": k}
		if code, named := keyCodes[k]; named {
			down["windowsVirtualKeyCode"], down["code"] = code, k
			if k == "Enter" {
				down["text"] = "\r"
			}
		} else {
			down["text"] = k
		}
		t.do("Input.dispatchKeyEvent", down)
		down["type"] = "keyUp"
		delete(down, "text")
		t.do("Input.dispatchKeyEvent", down)
	}
}

// screenshot keeps a picture among the test's output.
func (t *tab) screenshot(name string) {
	t.Helper()
	r, err := t.b.call(t.session, "Page.captureScreenshot", fields{"format": "png"})
	if err != nil {
		t.Log(err)
		return
	}
	var got struct{ Data string }
	if err := json.Unmarshal(r, &got); err != nil {
		t.Fatal(err)
	}
	picture, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a text that cannot be written")
	}
	return string(text)
}
