// Package cli holds the commands that talk to a running Ramjet, or run one to
// show it. They print for people, take every input as a parameter, and keep no
// state.
package cli
