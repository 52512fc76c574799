//go:build panicpoints

package proxy

// panicPoint panics where the request's X-Ramjet-Panic header asks for it, so
// that tests can see what a programming error costs.
func panicPoint(f *flight, place string) {
	if string(f.c.head.Get("x-ramjet-panic")) == place {
		panic("BUG: asked for by a test at " + place)
	}
}
