// Package chaos holds the tests that break everything at once and keep a
// ledger: a built ramjet in front of simulated engines of their own processes
// that are killed, frozen and restarted, through a proxy that cuts, stalls,
// slices and corrupts what they say, while clients of several kinds, real SDKs
// among them, load it fully and leave in the middle.
//
// What happens is drawn from one seed: the operator's and the engines' troubles
// from a timetable, the fate of each request's bytes from its id. The order in
// which a machine runs it all is not, so that a seed repeats a scenario and not
// a schedule. A failed run prints its seed and the least scenario that still
// fails.
//
// The package has no code of its own and imports nothing of Ramjet; what an
// answer's text must be it asks of one more engine, which nobody disturbs.
// Nothing leaves loopback, and only processes that it started are signalled.
//
// Environment: RAMJET_CHAOS is how long TestChaos runs (default 10 s, `make
// chaos`: 10m), RAMJET_CHAOS_SEED its seed (default: another one each time),
// RAMJET_CHAOS_RACE=1 builds the proxy with the race detector. RAMJET_SOAK is how
// long TestSoak runs; without it the test is skipped. RAMJET_BINARY names a
// binary to test instead of building one.
package chaos
