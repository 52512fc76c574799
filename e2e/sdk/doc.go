// Package sdk holds the tests that real clients make: the openai and anthropic Python SDKs, the openai npm package,
// curl, and a few hundred real prompts, all against the built binary in front of two simulated engines.
//
// Like package e2e it has no code of its own, imports nothing of Ramjet, stays on loopback and signals only processes
// that it started. The scripts print one line a check; the Go tests start what they need and report each check as a
// subtest. A client that is not installed is skipped by name: `make test` installs the Python ones, node and curl are
// used where they are present.
package sdk
