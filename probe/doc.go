// Package probe judges engines: active checks, the warm-up gate, slow start,
// passive ejection, stalls and freezes. It is the only writer of an engine's
// state. The rules are one pure function over values (next); the Monitor
// around it owns the clock, the checks and the memory of what happened. A
// Monitor is safe for concurrent use. It chooses no engine, sends no client's
// request, and never restarts anything.
package probe
