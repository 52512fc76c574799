// Package wire knows the bytes of the public APIs: HTTP heads, chunked
// framing, server-sent events, the few JSON members that routing needs, and
// the error bodies of each dialect. It never re-serialises what it reads:
// results alias the input, and splices copy everything around the one value
// that they change. Nothing here does I/O or keeps global state; a value of
// any scanner type belongs to one goroutine at a time.
package wire
