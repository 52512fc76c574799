package probe

import "sync"

// page is room for one answer of an engine. The pages are shared by all
// engines, since few are asked at once; an idle Ramjet that allocated each
// anew would spend most of its time on that.
type page struct{ b []byte }

var pages = sync.Pool{New: func() any { return new(page) }}

func takePage() *page {
	p, _ := pages.Get().(*page)
	return p
}

// keep takes the room that an answer was read into, which may have grown.
func (p *page) keep(body []byte) {
	if cap(body) > cap(p.b) {
		p.b = body[:0]
	}
}

// give returns the page. Nothing may hold what was read into it.
func (p *page) give() { pages.Put(p) }
