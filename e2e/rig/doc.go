// Package rig is what the whole-process tests are made of: Ramjet as a process,
// engines that follow a script byte for byte (in the test's process, or in one
// of their own that can be stopped and killed), simulated engines, publishers
// of cache events, raw clients, and strict readers of what came over the wire.
//
// Start and StartWith run the binary, built once per test process, and register
// the closing assertions: at the end of a test no lease is held, no request runs
// at an engine, goroutines and descriptors are back to the base, each request
// has one access line, and the next request is served.
//
// It takes a testing.TB and fails that test; it is of no use to anything else.
// A Client belongs to one goroutine; Ramjet, Engine and SimEngine may be used by
// several. It imports nothing of Ramjet: a harness that could look inside would
// stop being a witness. It refuses to leave loopback and signals only processes
// that it started.
//
// Environment: RAMJET_BINARY names a binary to test instead of building one;
// RAMJET_E2E_FLAGS holds flags for every process, such as --relay=stream.
package rig
