// Package cli holds the commands that talk to a running Ramjet, run one to show
// it, or read the journal that one left. They print for people, take every input as a parameter, and keep no
// state.
package cli
