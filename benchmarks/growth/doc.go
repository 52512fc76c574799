// Package growth measures how Ramjet's costs grow: with the length of a prompt, the number of engines, the size of the
// index, the number of open streams and the rate of cache events. Of each relation it keeps a table, a curve (an SVG that
// it draws itself) and the exponent of a power law, fitted by least squares to the logarithms, round by round.
//
// Prompts and streams are measured on the built binary from outside, by its CPU clock and its resident memory, with
// engines and clients in other processes. Engines, index and events are measured on the objects that serve builds, in this
// process, because what a decision costs cannot be told apart from outside.
//
// An exponent says how a cost grows, and nothing about how large it is: a bound on a cost stands in RESULTS.md. The package
// refuses to judge an exponent from points that are in one order of magnitude of sizes, and an exponent whose rounds lie on
// both sides of its bound is "not separable".
//
// Nothing here is safe for concurrent use unless its comment says so.
package growth
