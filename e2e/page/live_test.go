package page

import (
	"strings"
	"testing"
)

// Ramjet goes away and comes back at the same address: the page says that
// nothing is heard, greys what it shows with its age, and goes on by itself with
// what the new process says.
func TestPageComesBackAfterARestart(t *testing.T) {
	r := pair(t)
	r.ask(t, "before", "hello")
	tb := newTab(t)
	tb.open(r.url("#/requests"))
	tb.until(shown)
	tb.until("document.querySelector('.requests-table tbody').innerText.includes('before')")
	r.kill()
	tb.until("document.querySelector('#link').innerText.startsWith('reconnecting') && document.body.classList.contains('is-stale')")
	tb.until("/What is shown is [0-9]+ s old/.test(document.querySelector('#stale').innerText)")
	tb.screenshot("stale")
	r.again(t)
	answers(t, r.url("readyz"))
	tb.until("document.querySelector('#link').innerText === 'live' && !document.body.classList.contains('is-stale') && document.querySelector('#stale').hidden")
	// The new process knows nothing of the old one's requests.
	tb.until("document.querySelectorAll('.requests-table tbody tr').length === 0")
	r.ask(t, "after", "hello again")
	tb.until("document.querySelector('.requests-table tbody').innerText.includes('after')")
	tb.press("1")
	tb.until("document.querySelectorAll('.card[data-state=ready]').length === 2")
	tb.quiet("Failed to load resource", "net::ERR")
}

// A page that is opened while nobody answers, or whose stream is refused, comes
// up by itself.
func TestPageComesBackAfterARefusedStream(t *testing.T) {
	f := newFeed(t, newWorld(2))
	f.refuse(true)
	tb := newTab(t)
	tb.open(f.URL)
	tb.until("document.querySelector('#link')?.innerText === 'reconnecting'")
	tb.until("document.querySelector('#stale').innerText.includes('does not answer')")
	f.refuse(false)
	tb.until("document.querySelector('#link').innerText === 'live' && document.querySelectorAll('.card').length === 2")
	tb.quiet("Failed to load resource", "503")
}

// A connection that is open and says nothing is not taken for life.
func TestSilentStreamIsStale(t *testing.T) {
	f := newFeed(t, newWorld(2))
	tb := newTab(t)
	tb.open(f.URL)
	tb.until("document.querySelectorAll('.card').length === 2")
	f.hush(true)
	tb.until("document.querySelector('#link').innerText.startsWith('silent') && document.body.classList.contains('is-stale')")
	var filter string
	tb.eval("getComputedStyle(document.querySelector('main')).filter", &filter)
	if !strings.Contains(filter, "grayscale") {
		t.Errorf("old figures look like new ones: filter %q", filter)
	}
	f.hush(false)
	tb.until("document.querySelector('#link').innerText === 'live' && !document.body.classList.contains('is-stale')")
	tb.quiet()
}

// A filter, a view and the colours survive a reload of the page; a link leads
// to what it names.
func TestAddressNamesTheView(t *testing.T) {
	f := newFeed(t, newWorld(3))
	tb := newTab(t)
	tb.open(f.URL + "/#/requests?engine=b&end=done")
	tb.until("document.querySelector('[aria-label=Engine]')?.value === 'b' && document.querySelector('[aria-label=End]').value === 'done'")
	tb.until("document.querySelectorAll('.requests-table tbody tr').length > 0 && [...document.querySelectorAll('.requests-table tbody tr')].every(r => r.children[2].innerText === 'b' && r.dataset.end === 'done')")
	tb.eval("{ const s = document.querySelector('[aria-label=Reason]'); s.value = 'load'; s.dispatchEvent(new Event('change')); }", nil)
	tb.until("location.hash === '#/requests?engine=b&reason=load&end=done'")
	tb.do("Page.reload", fields{})
	tb.until("document.querySelector('[aria-label=Reason]')?.value === 'load'")
	tb.open(f.URL + "/#/nonsense")
	tb.until("document.querySelector('#tabs [aria-current=page]').dataset.view === 'topology'")
	tb.quiet()
}
