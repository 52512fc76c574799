// Package benchmarks measures whole paths of Ramjet from outside: a fake engine, a load generator that verifies what it
// receives, and an orchestrator that runs Ramjet, nginx and no proxy at all in interleaved rounds and compares them; the
// side-by-side adds HAProxy, Go's ReverseProxy and routers for language models out of packages. The goals are another
// matter: they run the Go benchmarks of the product's packages as processes and read what those print.
//
// Everything here sees Ramjet as a black box: it shares no parser, scanner or pool with the product, so that a defect in
// one of those cannot hide itself. Engine and load generator are processes of their own (modes of cmd/streambench) with
// one P each, because the CPU that they use must never be booked on the proxy under test.
//
// Timings of a shared machine carry over only as ratios of targets that were visited in the same round; this package
// therefore refuses to judge a bound from single runs: a figure whose interval over the rounds straddles its bound is
// "not separable".
//
// Nothing here is safe for concurrent use unless its comment says so.
package benchmarks
