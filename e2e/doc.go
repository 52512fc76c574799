// Package e2e holds the whole-process tests: each starts the built ramjet
// binary in front of engines that follow a script byte for byte, talks to it
// over raw sockets, and judges by what the client saw, what the engines
// recorded and what the process reported.
//
// The package has no code of its own and imports nothing of Ramjet but e2e/rig,
// which the tests are made of: a test that could look inside would stop being a
// witness. It refuses to leave loopback and signals only processes that it
// started.
//
// Tests named TestCaseC.. are the reports from the field, TestAnchor.. the
// behaviour that other proxies were measured for; the fault table is the folder
// faults. A figure in a test is an order of events times ten, not a performance
// gate.
package e2e
