// Package page looks at the operator's page in a real Chromium without a
// window: each view, each state of an engine, names that an attacker would
// choose, colours, keys, what happens when Ramjet goes away and comes back, and
// how long the browser is kept from answering a person when two hundred engines
// serve a thousand requests a second. It imports nothing of ours: the page comes
// out of the built binary, and what the page is fed comes from the binary or
// from a server of recorded answers, whose shapes are compared with the
// binary's own. Without Chromium its tests skip and say where to get it. The
// tests share one browser process; each has a tab of its own.
package page
